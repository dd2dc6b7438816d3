package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"
)

func demoCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "demo",
		Usage:     "start a bundled sample, probe it, show hits",
		UsageText: "gokprobe demo [-duration D]",
		Description: `Starts a small sample program that knows nothing of gokprobe, and attaches to it while it
runs. Prints the calls of two of its functions with their arguments, and one stack trace.
Then detaches, and the sample says whether it was disturbed. Needs no root: a process may
trace its own children.`,
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "duration", Value: 3 * time.Second, Usage: "print hits for time `D`"},
			&cli.StringFlag{Name: "format", Value: "text", Usage: "print hits as `FORMAT`, text or json"},
		},
		Action: func(c *cli.Context) error {
			asJSON, err := parseFormat(c)
			switch {
			case err != nil:
				return err
			case c.Duration("duration") <= 0:
				return usagef("-duration must be more than 0")
			case c.Args().Present():
				return usagef("unexpected argument %q", c.Args().First())
			}
			return demo(std, c.Duration("duration"), asJSON)
		},
	}
}

// demo is the demo command after its flags have been read.
func demo(std stdio, d time.Duration, asJSON bool) error {
	step := func(format string, args ...any) { fmt.Fprintf(std.err, "demo: "+format+"\n", args...) }
	c, err := startSample("work")
	if err != nil {
		return err
	}
	step("process %d is a sample program: %d threads serve orders and check every result", c.pid(), sampleThreads)
	step("it was not prepared for probes; now this runs: gokprobe attach -p %d -sym main.serveOrder -sym main.refund -args -duration %v", c.pid(), d)
	step("each line below is one call: time, thread, function, arguments; the first refund shows its stack too")
	req := request{
		specs: []string{"main.serveOrder", "main.refund"},
		args:  true, duration: d, json: asJSON, stackFirst: "main.refund",
	}
	if err := attach(std, c.pid(), req, newWork); err != nil {
		c.kill()
		return err
	}
	step("detached: the breakpoints are gone and the sample runs on; now it is told to end and checks itself")
	err = c.finish(func(line string) { fmt.Fprintf(std.err, "sample: %s\n", line) })
	if err == nil {
		step("done; try gokprobe list -p PID on a process of your own")
	}
	return err
}
