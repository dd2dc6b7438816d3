package kprobes_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// launchShop holds a program that prices ten orders and delivers them, before it has done anything.
func launchShop() *kprobes.Session {
	s, err := kprobes.Launch(context.Background(), kprobes.Command{Path: testprog.MustBuild("shop"), Args: []string{"shop"}}, kprobes.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return s
}

// A probe's handler sees each call's registers.
func Example() {
	s := launchShop() // kprobes.Attach for a program that runs
	defer s.Close()
	last := uint64(0)
	kp := &kprobes.Kprobe{SymbolName: "deliver", PreHandler: func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
		last, _ = regs.Arg(0)
		return 0 // go on with the instruction
	}}
	if err := s.RegisterKprobe(kp); err != nil {
		log.Fatal(err)
	}
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}
	<-s.Done()
	fmt.Println(kp.Hits(), "calls, the last one for order", last)
	// Output: 10 calls, the last one for order 9
}

// Calls are followed to their returns. The handler reads what they return, and may change it.
func ExampleSession_RegisterKretprobe() {
	s := launchShop()
	defer s.Close()
	sum := uint64(0)
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "price"}, Handler: func(_ *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
		sum += regs.ReturnValue()
		return 0
	}}
	if err := s.RegisterKretprobe(rp); err != nil {
		log.Fatal(err)
	}
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}
	<-s.Done()
	fmt.Println(rp.Hits(), "prices, in all", sum)
	// Output: 10 prices, in all 110
}

// A probe without a handler counts. Once it is optimized, its hits stop nobody.
func ExampleSession_WaitForOptimizer() {
	s := launchShop()
	defer s.Close()
	kp := &kprobes.Kprobe{SymbolName: "price"}
	if err := s.RegisterKprobe(kp); err != nil {
		log.Fatal(err)
	}
	if err := s.WaitForOptimizer(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Status(kp).Mechanism)
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}
	<-s.Done()
	fmt.Println(kp.Hits(), "calls")
	// Output:
	// optimized
	// 10 calls
}
