package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

func recoverCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "recover",
		Usage:     "undo what a killed gokprobe has left in a process",
		UsageText: "gokprobe recover -p PID",
		Description: `A gokprobe that ends leaves nothing behind. If it is killed with SIGKILL, its guardian, a
second process, restores the target. If the guardian was killed as well, breakpoints and
jumps stay, and the process goes on with them. recover puts the original code back, and
removes all memory that gokprobe has added. If a signal handler is running that will return
to this memory, recover waits for that.

Exit status: 0 done, or there was nothing to do; 1 the gokprobe that probes the process is
alive, or something can't be undone; 3 cannot attach.`,
		Flags: []cli.Flag{&cli.StringFlag{Name: "p", Usage: "recover process `PID`"}},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return strayArgument(c, "")
			}
			to, err := findTarget(c.String("p"))
			if err != nil {
				return err
			}
			return recoverProcess(std, to.pid)
		},
	}
}

func recoverProcess(std stdio, pid int) error {
	interrupted, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	wait := func(d time.Duration) bool {
		select {
		case <-interrupted.Done():
			return false
		case <-time.After(d):
			return true
		}
	}
	done, err := recoverAll(std, pid, func() (*kprobes.Recovered, error) { return kprobes.Recover(interrupted, pid) }, wait)
	var refused *ptrace.AttachError
	switch {
	case errors.As(err, &refused):
		return err
	case errors.Is(err, kprobes.ErrGivenUp):
		return fmt.Errorf("process %d is not recovered: interrupted before all of its threads had stopped", pid)
	case err != nil:
		return fmt.Errorf("cannot recover process %d: %w", pid, err)
	case done.Regions == 0:
		fmt.Fprintf(std.out, "nothing to recover: no killed gokprobe has left anything in process %d\n", pid)
	default:
		fmt.Fprintf(std.out, "recovered: process %d has its original code back in %s, and nothing of gokprobe is left\n", pid, escape.Count(done.Patches, "place"))
	}
	return nil
}

var errStillUsed = errors.New("its original code is back, but a running signal handler will return to added memory, which stays until recover is run again")

// recoverAll calls once until nothing of gokprobe is left in the process. A running signal
// handler may return to memory that gokprobe has added; this memory can be removed only
// when it has returned. wait pauses, and reports false if the user has interrupted.
func recoverAll(std stdio, pid int, once func() (*kprobes.Recovered, error), wait func(time.Duration) bool) (*kprobes.Recovered, error) {
	began := time.Now()
	all, err := once()
	if err == nil && all.Kept > 0 {
		fmt.Fprintf(std.err, "gokprobe: process %d has its original code back; waiting for a signal handler to return, to remove the added memory\n", pid)
	}
	pause := pauseAfter(0, time.Since(began))
	for left := all; err == nil && left.Kept > 0; {
		if !wait(pause) {
			return all, errStillUsed
		}
		began = time.Now()
		if left, err = once(); left != nil {
			all.Patches = max(all.Patches, left.Patches)
		}
		pause = pauseAfter(pause, time.Since(began))
		if _, end := procfs.ReadStat(pid, 0); err != nil && procfs.Gone(end) {
			err = nil // it has ended meanwhile
			break
		}
	}
	return all, err
}

// pauseAfter is how long to wait after an attempt that took so long, and the pause before it.
// A hostile process may make every attempt long, and none the last; so pauses grow, and last
// longer than attempts.
func pauseAfter(before, took time.Duration) time.Duration {
	const first, last, rest = 20 * time.Millisecond, time.Second, 4
	return max(min(max(2*before, first), last), rest*took)
}
