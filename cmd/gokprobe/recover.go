package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

func recoverCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "recover",
		Usage:     "undo what a killed gokprobe has left in a process",
		UsageText: "gokprobe recover -p PID",
		Description: `A gokprobe that ends, whatever the reason, leaves nothing behind; unless it is killed
with SIGKILL. Then its breakpoints and jumps stay, and the process goes on with them. recover puts
the original code back, and takes all memory away that was added.

Exits with status 0 if that is done or there is nothing to do, 1 if the gokprobe that probes
the process is alive or something can't be undone, 3 if it can't attach.`,
		Flags: []cli.Flag{&cli.StringFlag{Name: "p", Usage: "recover process `PID`"}},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("unexpected argument %q", c.Args().First())
			}
			pid, err := findTarget(c.String("p"))
			if err != nil {
				return err
			}
			return recoverProcess(std, pid)
		},
	}
}

func recoverProcess(std stdio, pid int) error {
	done, err := kprobes.Recover(pid)
	var refused *ptrace.AttachError
	if errors.As(err, &refused) {
		return err
	}
	if err != nil {
		return fmt.Errorf("cannot recover process %d: %w", pid, err)
	}
	switch {
	case done.Regions == 0:
		fmt.Fprintf(std.out, "nothing to recover: no killed gokprobe has left anything in process %d\n", pid)
	case done.Kept > 0:
		fmt.Fprintf(std.out, "recovered: process %d has its original code back in %d places; a signal's handler that is running returns to the added memory, so run this once more to remove that\n", pid, done.Patches)
	default:
		fmt.Fprintf(std.out, "recovered: process %d has its original code back in %d places, and nothing of gokprobe's is left\n", pid, done.Patches)
	}
	return nil
}
