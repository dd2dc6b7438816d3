package kprobes

import (
	"context"
	"errors"
	"os"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/guardian"
	"github.com/gokprobe/gokprobe/internal/helper"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/recovery"
	"github.com/gokprobe/gokprobe/ptrace"
)

// The guardian is a small process of ours that outlives us. When we are killed, it at
// once recovers the processes that we held, as Recover does. Package internal/guardian
// starts it and wakes it. It is there beside the guard in the target (guard.go): that
// acts in between, and where there is no guardian.
//
// What a killed tracer's target does until the guardian has it, other threads see as ever: a thread that was in a ptrace-stop goes on
// with its signal (ptrace/reap.go), one that runs meets breakpoints, which the guard answers. From PTRACE_SEIZE on, a thread that
// traps stops for the guardian, and from then on nothing is delivered that our breakpoints have raised (internal/recovery).

// ErrOwnerAlive is why a process is not recovered: the one that probes it lives.
var ErrOwnerAlive = recovery.ErrOwnerAlive

// Recovered is what Recover did.
type Recovered struct {
	Regions int // that killed tracers had left; 0: there was nothing to do
	Patches int // breakpoints and jumps whose original code is back
	Moved   int // threads that were on their way through a copy
	// Kept are regions that stay mapped, since a signal's handler that runs returns to them, or a process is inside
	// vfork(2). They do nothing. Once the handler or vfork(2) has returned, another Recover takes them away.
	Kept int
}

// Recover puts a process right whose tracer was killed: its original code, its signals' actions
// and its memory are as if it had never been probed. It needs the same rights as
// Attach. The error is an *ptrace.AttachError, matches ErrOwnerAlive, or tells what could not
// be undone; what could be, is.
//
// It is given up if ctx is done before all threads have stopped: the error matches
// ErrGivenUp then, and nothing has changed. A recovery that has begun is finished.
func Recover(ctx context.Context, pid int) (*Recovered, error) {
	if err := host.Supported(); err != nil {
		return nil, err
	}
	return recoverMeant(ctx, pid, nil)
}

// recoverMeant is Recover for the process that is meant, if that is told.
func recoverMeant(ctx context.Context, pid int, meant *ptrace.Identity) (*Recovered, error) {
	r, err := recovery.Recover(ctx, pid, recovery.Options{Meant: meant, Tracer: newTracer})
	return (*Recovered)(r), err
}

// putRight undoes, before an attach, what a killed tracer has left in the process: its
// breakpoints would be taken for the program's own, and two guards can't both have the
// signals. If that is refused, the attach fails and says why.
func (tg *target) putRight(ctx context.Context, pid int) {
	r, err := recoverMeant(ctx, pid, tg.s.opts.Meant)
	var refused *ptrace.AttachError
	if errors.Is(err, ErrGivenUp) || errors.As(err, &refused) || errors.Is(err, ErrOwnerAlive) || errors.Is(err, os.ErrPermission) || err != nil && r == nil {
		return
	}
	_ = tg.s.do(func() error {
		if r.Regions > 0 {
			tg.s.warn("a killed gokprobe had left %s patched; that was put right", escape.Count(r.Patches, "place"))
		}
		if err != nil {
			tg.s.warn("putting right what a killed gokprobe had left: %v", err)
		}
		return nil
	})
}

// GuardianMain makes this process the guardian of a tracer, if it was started as one,
// and does not return then. A program that traces calls it first in its main function.
// Only then it has guardians. Without the call, if the program is killed, its
// breakpoints stay in the processes that it probes. These live on by the guard in them
// alone, until Recover.
//
// The guardian is this program's executable, executed a second time under the name
// gokprobe-guardian, when the first process is attached to; one for all sessions. It
// has this process's rights, a session (setsid(2)) of its own, and only the standard
// error open, for one line when it had something to do. It ends with this process.
//
// Package trace evaluates expressions with the prefix go: in another process of the same kind, which this call runs, too.
func GuardianMain() {
	helper.Main()
	if !guardian.Is() {
		guardian.OptIn()
		return
	}
	guardian.Run(recovery.Rescue)
	os.Exit(0)
}

// startGuardian sees to it that there is one, and waits until it is executed: it runs on then when we are killed, and so is there before the first
// change of the target. It has been told all facts before.
func (tg *target) startGuardian(ctx context.Context) {
	ready := guardian.Start(func(err error) {
		_ = tg.s.do(func() error {
			tg.s.warn("there is no guardian process: if gokprobe is killed, the process has to be put right by gokprobe recover: %v", err)
			return nil
		})
	})
	select {
	case <-ready:
	case <-tg.s.life.Done():
	case <-ctx.Done(): // who waits for the attach is told so in another place
	}
}

// endGuardian is called by the tracer's thread when it lets nothing go any more by its end.
func (tg *target) endGuardian() {
	for d := range tg.s.settled() {
		d.guard.told.Release()
	}
	tg.tracing.End()
}

// holdOther is called when p leaves the address space: the guardian is to look for another process there.
func (g *guard) holdOther(space *ptrace.Space, p *ptrace.Process) {
	if g.told.PID() != p.PID {
		return
	}
	for _, q := range space.Processes() {
		if q != p {
			g.told.Move(q.PID, q.StartTime())
			return
		}
	}
}
