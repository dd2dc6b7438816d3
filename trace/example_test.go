package trace_test

import (
	"fmt"
	"log"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// shop is the program that the examples probe: it prices ten orders and delivers them.
func shop() kprobes.Command {
	return kprobes.Command{Path: testprog.MustBuild("shop"), Args: []string{"shop"}, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}}
}

// Calls of a function are printed with its parameters, typed by its debug information.
func Example() {
	ctx, stop := trace.Context()        // ends on an interrupt and its like
	defer stop()                        // detaches, in a panic too
	t, err := trace.Launch(ctx, shop()) // trace.Attach for a program that runs
	if err != nil {
		log.Print(err)
		return
	}
	defer t.Close()
	p, err := t.Probe("price", trace.Args(), trace.Fetch("count=o->count"), trace.If("count > 7"))
	if err != nil {
		log.Print(err)
		return
	}
	if err := t.Start(); err != nil {
		log.Print(err)
		return
	}
	for hit := range p.Hits() {
		fmt.Println(hit.Probe, hit.Arg("count"), hit.Arg("each"))
	}
	// Output:
	// price 8 2.5
	// price 9 2.5
	// price 10 2.5
}

// Calls are counted by the process itself.
func ExampleCount() {
	ctx, stop := trace.Context()
	defer stop()
	t, err := trace.Launch(ctx, shop())
	if err != nil {
		log.Print(err)
		return
	}
	defer t.Close()
	p, err := t.Probe("deliver", trace.Count())
	if err != nil {
		log.Print(err)
		return
	}
	if err := t.Start(); err != nil {
		log.Print(err)
		return
	}
	<-t.Done()
	fmt.Println(p.Stats().Hits, "calls")
	// Output:
	// 10 calls
}

// A histogram of how long calls take, by powers of two of nanoseconds.
func ExampleReturns_histogram() {
	ctx, stop := trace.Context()
	defer stop()
	t, err := trace.Launch(ctx, shop())
	if err != nil {
		log.Print(err)
		return
	}
	defer t.Close()
	p, err := t.Probe("price", trace.Returns())
	if err != nil {
		log.Print(err)
		return
	}
	if err := t.Start(); err != nil {
		log.Print(err)
		return
	}
	var histogram [64]int
	for hit := range p.Hits() {
		histogram[bits.Len64(uint64(*hit.Duration))]++
	}
	calls := 0
	for _, n := range histogram {
		calls += n
	}
	fmt.Println(calls, "calls in the histogram")
	// Output:
	// 10 calls in the histogram
}

// Calls are followed to their returns.
func ExampleReturns() {
	ctx, stop := trace.Context()
	defer stop()
	t, err := trace.Launch(ctx, shop())
	if err != nil {
		log.Print(err)
		return
	}
	defer t.Close()
	p, err := t.Probe("price%return", trace.Args(), trace.If("ret > 16"))
	if err != nil {
		log.Print(err)
		return
	}
	if err := t.Start(); err != nil {
		log.Print(err)
		return
	}
	for hit := range p.Hits() {
		fmt.Println(hit.Arg("each"), "each, in all", *hit.Ret)
	}
	// Output:
	// 2.5 each, in all 18
	// 2.5 each, in all 20
}

// One call in ten fails, while all are traced.
func ExampleSession_Kprobes() {
	ctx, stop := trace.Context()
	defer stop()
	t, err := trace.Launch(ctx, shop())
	if err != nil {
		log.Print(err)
		return
	}
	defer t.Close()
	one := fault.Always()
	one.Interval = 10
	rule := inject.Rule{Specs: []string{"deliver"}, Attr: one, Do: []inject.Action{inject.Return{Value: -1, Errno: unix.EIO}}}
	if _, err := inject.New(t.Kprobes(), inject.Options{}).Add(ctx, rule); err != nil {
		log.Print(err)
		return
	}
	if err := t.Start(); err != nil {
		log.Print(err)
		return
	}
	<-t.Done()
	// Output: 1 orders were not delivered
}
