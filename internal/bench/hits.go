package main

import (
	"fmt"

	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

const hitsARound = 20_000

// hits measures a hit with an empty Go handler, stepped (the kernel document's row k)
// and boosted (row b), against the bare ptrace loop that any tracer has to run: the
// same number of stops, the registers read and written once.
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
	rows := []struct {
		name  string
		probe *kprobes.Kprobe
		stops int
		goal  float64
		got   series
		floor series
	}{
		{name: "k  int3 stepped, Go handlers", probe: &kprobes.Kprobe{PostHandler: func(*kprobes.Kprobe, *kprobes.Regs, uint64) {}}, stops: 2, goal: 1.25},
		{name: "b  int3 boosted, Go handler", probe: &kprobes.Kprobe{}, stops: 1, goal: 1.25},
	}
	for range rounds {
		for i := range rows {
			r := &rows[i]
			f, err := floor(bin, r.stops)
			if err != nil {
				return fmt.Errorf("measuring the ptrace floor: %w", err)
			}
			g, err := probed(bin, r.probe)
			if err != nil {
				return fmt.Errorf("measuring a probe: %w", err)
			}
			r.floor, r.got = append(r.floor, f), append(r.got, g)
		}
	}
	fmt.Printf("A hit (median of %d rounds of %d hits, smallest–largest)\n", rounds, hitsARound)
	w := table()
	fmt.Fprintln(w, "row\tper hit\tspread\tptrace floor\tspread\tratio\tgoal")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%.2f×\t≤ %.2f×\n", r.name, show(r.got.median()), r.got.spread(),
			show(r.floor.median()), r.floor.spread(), r.got.ratio(r.floor), r.goal)
	}
	return w.Flush()
}
