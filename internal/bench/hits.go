package main

import (
	"fmt"

	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

const hitsARound = 20_000

// row is one of the kernel document's (Documentation/trace/kprobes.rst, Probe Overhead).
type row struct {
	name  string
	opts  kprobes.Options
	place place
	work  work
	goal  float64 // against the floor of that work
	// over is the row that the kernel's figure is compared with, and that figure.
	over   int
	kernel float64

	got, floor series
}

// The kernel's figures are those of the document's Xeon E5410, and for jprobes those of its
// Opteron 246.
func table1() []*row {
	b := kprobes.Options{}
	k := kprobes.Options{NoBoost: true}
	return []*row{
		{name: "k   kprobe, stepped", opts: k, place: kprobe, work: work{1, 2, false}, goal: 1.25},
		{name: "b   kprobe, boosted", opts: b, place: kprobe, work: work{1, 1, false}, goal: 1.25},
		{name: "r   kretprobe, stepped", opts: k, place: kretprobe, work: work{2, 2, true}, goal: 1.25, over: 0, kernel: 1.24 / 0.99},
		{name: "rb  kretprobe, boosted", opts: b, place: kretprobe, work: work{2, 1, true}, goal: 1.25, over: 1, kernel: 0.68 / 0.43},
		{name: "j   jprobe, boosted", opts: b, place: jprobe, work: work{1, 1, false}, goal: 1.25, over: 1, kernel: 0.76 / 0.49},
		{name: "kr  kprobe and kretprobe, boosted", opts: b, place: both(kprobe, kretprobe), work: work{2, 1, true}, goal: 1.25, over: 1, kernel: 0.82 / 0.49},
		{name: "jr  jprobe and kretprobe, boosted", opts: b, place: both(jprobe, kretprobe), work: work{2, 1, true}, goal: 1.25, over: 1, kernel: 1.07 / 0.49},
	}
}

// place registers probes at foo and returns what counts their hits.
type place func(s *kprobes.Session) (hits func() uint64, err error)

func kprobe(s *kprobes.Session) (func() uint64, error) {
	kp := &kprobes.Kprobe{SymbolName: "foo", PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }}
	return kp.Hits, s.RegisterKprobe(kp)
}

func kretprobe(s *kprobes.Session) (func() uint64, error) {
	handler := func(*kprobes.KretprobeInstance, *kprobes.Regs) int { return 0 }
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "foo"}, Handler: handler}
	return rp.Hits, s.RegisterKretprobe(rp)
}

func jprobe(s *kprobes.Session) (func() uint64, error) {
	jp := &kprobes.Jprobe{KP: kprobes.Kprobe{SymbolName: "foo"}, Entry: func(int64) {}}
	return jp.KP.Hits, s.RegisterJprobe(jp)
}

func both(a, b place) place {
	return func(s *kprobes.Session) (func() uint64, error) {
		if _, err := a(s); err != nil {
			return nil, err
		}
		return b(s)
	}
}

// hits measures a hit with empty Go handlers against the bare ptrace loop that any tracer
// has to run: the same number of stops, at each hit the registers read and written once, and
// for return probes the stack read at entry and return.
//
// The target stays on one processor, and so do both tracers by following it. Free to
// move, the two ping-pong between processors, and what is measured is how fast this
// machine wakes an idle one.
func hits(_, bin string) error {
	// A tracer of gokprobe's own keeps SIGCHLD quiet for the floor too.
	quiet, err := ptrace.New()
	if err != nil {
		return err
	}
	defer quiet.Close()
	rows := table1()
	for range rounds {
		for _, r := range rows {
			f, err := floor(bin, r.work)
			if err != nil {
				return fmt.Errorf("measuring the ptrace floor: %w", err)
			}
			g, err := probed(bin, r.opts, r.place)
			if err != nil {
				return fmt.Errorf("measuring %s: %w", r.name, err)
			}
			r.floor, r.got = append(r.floor, f), append(r.got, g)
		}
	}
	fmt.Printf("A hit, of return probes a call (median of %d rounds of %d, smallest–largest)\n", rounds, hitsARound)
	w := table()
	fmt.Fprintln(w, "row\teach\tspread\tstops\tptrace floor\tspread\tratio\tgoal\tagainst k or b\tthe kernel's")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%.2f×\t≤ %.2f×", r.name, show(r.got.median()), r.got.spread(),
			r.work.hits*r.work.stops, show(r.floor.median()), r.floor.spread(), r.got.ratio(r.floor), r.goal)
		if r.kernel > 0 {
			fmt.Fprintf(w, "\t%.2f×\t%.2f×", r.got.ratio(rows[r.over].got), r.kernel)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
