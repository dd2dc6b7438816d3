// Command bench prints what gokprobe bench prints, and what attaching, arming many probes and
// looking up a name cost on this machine: medians of several rounds with their spread.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
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
	hitRounds := flag.Int("rounds", 5, "measure hits `N` times")
	kept := flag.String("keep", "", "write the rounds to `FILE`, for benchstat")
	flag.Parse()
	if err := run(*hitRounds, *kept); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures, and writes the rounds to the file kept, unless that is empty.
func run(hitRounds int, kept string) (err error) {
	out := io.Discard
	if kept != "" {
		f, createErr := os.Create(kept)
		if createErr != nil {
			return createErr
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out = f
	}
	dir, err := os.MkdirTemp("", "gokprobe-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin, err := buildTarget(dir)
	if err != nil {
		return err
	}
	hits := func(_, _ string, kept io.Writer) error { return hits(hitRounds, kept) }
	for _, part := range []func(dir, bin string, kept io.Writer) error{hits, returns, pauses, arming, births, lookups} {
		if err := part(dir, bin, out); err != nil {
			return err
		}
		fmt.Println()
	}
	return nil
}

// hits measures what a hit costs, in every way there is.
func hits(rounds int, kept io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	report, err := bench.Run(ctx, bench.Config{Rounds: rounds})
	if err != nil {
		return err
	}
	return errors.Join(report.Text(os.Stdout), report.Benchstat(kept))
}

// series is the measurements of one thing, one a round.
type series []time.Duration

func (s series) sorted() series { return slices.Sorted(slices.Values(s)) }

func (s series) median() time.Duration { return s.sorted()[len(s)/2] }

// keep writes the rounds for benchstat, as bench.Report.Benchstat does.
func (s series) keep(w io.Writer, name string) error {
	for _, d := range s {
		if _, err := fmt.Fprintf(w, "Benchmark%s-%d 1 %d ns/op\n", name, runtime.NumCPU(), d.Nanoseconds()); err != nil {
			return err
		}
	}
	return nil
}

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
