// Command bench prints what gokprobe bench prints, and what attaching and looking up a
// name cost on this machine: medians of several rounds with their spread.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/gokprobe/gokprobe/bench"
)

const rounds = 9

func main() {
	if status, is := bench.Child(); is {
		os.Exit(status)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "gokprobe-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin, err := buildTarget(dir)
	if err != nil {
		return err
	}
	for _, part := range []func(string, string) error{hits, pauses, lookups} {
		if err := part(dir, bin); err != nil {
			return err
		}
		fmt.Println()
	}
	return nil
}

// hits measures what a hit costs, in every way there is.
func hits(_, _ string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	report, err := bench.Run(ctx, bench.Config{Rounds: 5})
	if err != nil {
		return err
	}
	return report.Text(os.Stdout)
}

// series is the measurements of one thing, one a round.
type series []time.Duration

func (s series) sorted() series { return slices.Sorted(slices.Values(s)) }

func (s series) median() time.Duration { return s.sorted()[len(s)/2] }

// spread is the smallest and the largest.
func (s series) spread() string {
	o := s.sorted()
	return fmt.Sprintf("%s–%s", show(o[0]), show(o[len(o)-1]))
}

func show(d time.Duration) string {
	switch {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.0f µs", float64(d.Nanoseconds())/1e3)
	}
	return fmt.Sprintf("%.0f ms", float64(d.Nanoseconds())/1e6)
}

func table() *tabwriter.Writer { return tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0) }
