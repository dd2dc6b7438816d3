package kprobes

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
)

// What a handler can do to its thread, beside changing registers and memory and calling functions.

// inHandler is the state of the thread of r if that is the one of a handler that runs now, nil otherwise.
func (r *Regs) inHandler() *threadState {
	ts := r.state()
	if ts == nil || ts != r.top() || ts.site == nil && ts.phase != atCall || ts.over {
		return nil
	}
	return ts
}

// halted is the state of the thread of r, stopped, if that is the one of a handler that runs now. Unlike
// Regs.stopped it leaves the site optimized, however often it is wanted: what it is wanted for is rare, or takes
// longer than a stop.
func (r *Regs) halted() (*threadState, error) {
	ts := r.inHandler()
	if ts == nil {
		return nil, ErrNotInHandler
	}
	if ts.box != nil {
		if err := ts.halt(r.thread); err != nil {
			return nil, err
		}
	}
	return ts, nil
}

// Delay stops the thread for d longer, after all handlers of this stop have returned.
// The tracer serves other threads meanwhile. Delays add up; d of zero or less is none.
//
// Behind a PreHandler the thread waits in front of the probed instruction, behind a PostHandler after it, at a
// return where the function has returned to. Its signals wait with it, and a stop of the whole process is
// complete when it goes on; SIGKILL, exit and exec take it along. Close, an Unregister in its course
// and probes of others find it stopped: Close lets it go at once, the others take nothing from the delay.
func (r *Regs) Delay(d time.Duration) {
	if d <= 0 {
		return
	}
	if _, err := r.halted(); err == nil {
		r.thread.Delay(d)
	}
}

// Signal sends sig to the thread, by tgkill(2): si_code is SI_TKILL, si_pid the tracer. The thread gets it when
// it goes on, once; if the probed instruction runs, then behind that. If the thread blocks sig it waits,
// as any signal does. The error matches unix.EINVAL for what is no signal, ErrExited if the thread is gone.
func (r *Regs) Signal(sig unix.Signal) error {
	_, err := r.halted()
	if err == nil {
		err = r.thread.Kill(sig)
	}
	if errors.Is(err, ptrace.ErrExited) {
		err = ErrExited
	}
	if err != nil {
		return fmt.Errorf("sending signal %d to thread %d: %w", int(sig), r.TID(), err)
	}
	return nil
}

// ReturnNow makes the probed function return value at once, without running its body
// (override_function_with_return): the result register is value, and the thread goes on
// behind the call. Everything else, the stack too, is as it was at the call; results
// that do not fit into one integer register are the handler's to write. The handler
// must be a PreHandler, or a Kretprobe's EntryHandler; what it returns is taken for
// non-zero, so no other handler of the hit runs (B2).
//
// The probe must stand at the function's first instruction, behind an endbr64 if there is one, or in Go behind
// the check of the stack, where nothing has happened yet either: else the error matches ErrNotEntry. It
// matches ErrShadowStack if the process has one. After an error nothing has changed.
//
// A Kretprobe of the same function that was registered after the probe has followed the call by then, and its Handler
// sees the return with this value; one that was registered before, or that follows nothing yet, does not see the call.
func (r *Regs) ReturnNow(value uint64) error {
	ts := r.inHandler()
	if ts == nil || ts.phase != atSite || r.running == nil || r.undo != nil {
		return fmt.Errorf("returning from the probed function: %w: only a PreHandler can", ErrNotInHandler)
	}
	if ts.left {
		r.SetReturnValue(value)
		return nil
	}
	if err := r.domain.look.atEntry(ts.site, r.running); err != nil {
		return fmt.Errorf("returning from the probed function: %w", err)
	}
	ret, cfa, err := host.Arch.Caller(r, rawMemory{r})
	if err != nil {
		return fmt.Errorf("reading the return address: %w", err)
	}
	r.SetReturnValue(value)
	r.SetSP(cfa)
	r.SetIP(ret)
	ts.left = true
	return nil
}

// atEntry refuses what is not in front of all that a function does, and what can't be returned from. What it
// has found out of a site it keeps.
func (lo *looks) atEntry(st *site, kp *Kprobe) error {
	if st.entered == nil {
		end := lo.anew()
		_, _, err := lo.checkEntry(st.addr, kp.entry)
		if err == nil {
			err = lo.refuseShadowStack()
		}
		end()
		st.entered = &err
	}
	return *st.entered
}

// refuseShadowStack refuses to move threads between functions.
func (lo *looks) refuseShadowStack() error {
	on, err := lo.surveyed().ShadowStack()
	if err == nil && on {
		err = ErrShadowStack
	}
	return err
}
