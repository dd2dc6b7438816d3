package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/bench"
)

func benchCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "bench",
		Usage:     "measure what a hit costs on this machine",
		UsageText: "gokprobe bench [-rounds N] [-rows ROWS] [-format text|json|benchstat] [-list]",
		Description: `Measures hits of every kind: the rows of the table in the kernel's document (k b o r rb ro
j kr jr), optimized probes that work in the target, and calls that a rule of inject lets pass.
If it is permitted, the kernel's own uprobe and uretprobe with a BPF counter are measured too.
Each row is compared with a floor that is measured in the same rounds, since machines differ.
For breakpoints it is a tracer that does nothing else, for optimized probes a hand-written
detour.

The target is gokprobe itself, started again. With all rows a round takes some ten seconds;
leave the machine alone meanwhile.

Examples:
  gokprobe bench
  gokprobe bench -list
  gokprobe bench -rows b,o,u -rounds 3
  gokprobe bench -format json > here.jsonl
  gokprobe bench -rounds 10 -format benchstat > here.txt`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "rounds", Value: 5, Usage: "measure everything `N` times, in turns"},
			&cli.StringFlag{Name: "rows", Usage: "measure only `ROWS`, separated by commas: names that -list shows, or o for all o-…"},
			&cli.StringFlag{Name: "format", Value: "text", Usage: "print `FORMAT`, text, json (one object a line), or benchstat (as go test -bench does, a line for each round)"},
			&cli.BoolFlag{Name: "list", Usage: "list the rows and measure nothing"},
			&cli.IntFlag{Name: "quick", Value: 1, Hidden: true, Usage: "divide the number of calls by `N`"},
		},
		Action: func(c *cli.Context) error {
			print, known := benchFormats[c.String("format")]
			switch {
			case !known:
				return usagef("unknown format %q, choose text, json or benchstat", c.String("format"))
			case c.Int("rounds") < 1:
				return usagef("-rounds must be at least 1")
			case c.Args().Present():
				return usagef("unexpected argument %q", c.Args().First())
			case c.Bool("list"):
				for _, r := range bench.Rows() {
					if _, err := fmt.Fprintf(std.out, "%-10s %s\n", r.Name, r.What); err != nil {
						return err
					}
				}
				return nil
			}
			cfg := bench.Config{Rounds: c.Int("rounds"), Quick: c.Int("quick")}
			if rows := c.String("rows"); rows != "" {
				cfg.Rows = strings.Split(rows, ",")
			}
			return runBench(std, cfg, print)
		},
	}
}

// benchFormats maps the values of -format to functions that print a report.
var benchFormats = map[string]func(*bench.Report, io.Writer) error{
	"text": (*bench.Report).Text, "json": (*bench.Report).JSON, "benchstat": (*bench.Report).Benchstat,
}

// runBench is the bench command after its flags have been read.
func runBench(std stdio, cfg bench.Config, print func(*bench.Report, io.Writer) error) error {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup(1)
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	cfg.Progress = func(n int) { fmt.Fprintf(std.err, "bench: round %d of %d\n", n, cfg.Rounds) }
	report, err := bench.Run(ctx, cfg)
	switch {
	case errors.Is(err, bench.ErrUnknownRow):
		return usagef("%w; gokprobe bench -list shows them", err)
	case errors.Is(err, context.Canceled):
		err = errors.New("interrupted; nothing is left running")
	}
	if report == nil {
		return err
	}
	return errors.Join(err, print(report, std.out))
}
