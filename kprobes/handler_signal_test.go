package kprobes_test

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestSignalsFromHandlers: the thread gets them once, by tgkill, at an address of its own; with a delay behind that; and
// when it unblocks them.
func TestSignalsFromHandlers(t *testing.T) {
	for _, m := range modes {
		for _, d := range []time.Duration{0, 2 * time.Millisecond} {
			prog := start(t, "effects")
			s := attach(t, prog.PID(), kprobes.Options{})
			register(t, s, m.caller("probed", func(r *kprobes.Regs) {
				ok(t, r.Signal(0)) // is it there
				ok(t, r.Signal(unix.SIGUSR1))
				r.Delay(d)
			}))
			for range 50 {
				wantSays(t, prog, "worker 30", "ret 10")
				wantSays(t, prog, "signals", "signals 1")
				wantSays(t, prog, "go 30", "ret 10")
				wantSays(t, prog, "signals", "signals 1")
			}
			prog.Do("block", "blocked")
			wantSays(t, prog, "go 30", "pending 1")
			prog.Expect("ret 10")
			wantSays(t, prog, "signals", "signals 1")
			closeSession(t, s)
			wantSays(t, prog, "go 30", "ret 10")
			wantSays(t, prog, "signals", "signals 0")
			prog.CheckClean()
			wantRight(t, prog)
		}
	}
}

// TestSignalsWithResults: the thread has returned when it gets the signal.
func TestSignalsWithResults(t *testing.T) {
	prog := start(t, "effects")
	s := attach(t, prog.PID(), kprobes.Options{})
	register(t, s, &kprobes.Kprobe{SymbolName: "probed", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		ok(t, r.Signal(unix.SIGUSR1))
		ok(t, r.ReturnNow(4711))
		r.Delay(time.Millisecond)
		return 1
	}})
	for range 50 {
		wantSays(t, prog, "go 30", "ret 4711")
		wantSays(t, prog, "signals", "signals 1")
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestSignalsThatStopOrKill: job control stops the process, SIGKILL ends it, whatever delay there is.
func TestSignalsThatStopOrKill(t *testing.T) {
	for _, m := range modes {
		prog := start(t, "effects")
		s := attach(t, prog.PID(), kprobes.Options{})
		register(t, s, m.caller("probed", func(r *kprobes.Regs) {
			if err := r.Signal(unix.Signal(4711)); !errors.Is(err, unix.EINVAL) {
				t.Errorf("signal 4711: %v, want %v", err, unix.EINVAL)
			}
			ok(t, r.Signal(unix.SIGSTOP))
		}), m.caller("entered", func(r *kprobes.Regs) {
			ok(t, r.Signal(unix.SIGKILL))
			r.Delay(forever)
		}))
		prog.Send("worker 30")
		waitStopped(t, prog.PID(), true)
		stop := continuing(prog) // should it not have been stopped yet
		prog.Expect("ret 10")
		stop()
		prog.Send("enter 30")
		<-s.Done()
		if got := s.Exit(); got == nil || got.Signal != unix.SIGKILL {
			t.Errorf("the process has ended with %+v", got)
		}
		closeSession(t, s)
		prog.Wait()
	}
}

// continuing sends SIGCONT again and again until it is stopped.
func continuing(prog *testprog.Prog) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for prog.Signal(unix.SIGCONT) == nil {
			select {
			case <-quit:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() { close(quit); <-ended }
}

// TestEffectsOutsideOfHandlers: registers that are not those of a handler which runs now do nothing.
func TestEffectsOutsideOfHandlers(t *testing.T) {
	prog := start(t, "effects")
	s := attach(t, prog.PID(), kprobes.Options{})
	var late *kprobes.Regs
	register(t, s,
		&kprobes.Kprobe{SymbolName: "probed", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int { late = r; return 0 }},
		&kprobes.Kprobe{SymbolName: "entered", PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int {
			late.Delay(forever) // of a thread that goes on
			errno := late.SetErrno(unix.EIO)
			for name, err := range map[string]error{"Signal": late.Signal(unix.SIGKILL), "ReturnNow": late.ReturnNow(1), "SetErrno": errno} {
				if !errors.Is(err, kprobes.ErrNotInHandler) {
					t.Errorf("%s: %v, want %v", name, err, kprobes.ErrNotInHandler)
				}
			}
			return 0
		}})
	wantSays(t, prog, "worker 30", "ret 10")
	wantSays(t, prog, "enter 30", "ret 31")
	wantSays(t, prog, "go 30", "ret 10")
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}
