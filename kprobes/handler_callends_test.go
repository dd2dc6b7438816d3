package kprobes_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestCallsTimeOut: a function that does not return in time is left, wherever it is: in its own
// code, in front of or in the slot of a probe, in a system call, with all signals blocked. The
// program is right as if it had not been called.
func TestCallsTimeOut(t *testing.T) {
	for _, fn := range []string{"spin_on", "spin_in", "block", "masks"} {
		for _, m := range modes {
			t.Run(fn+"/"+string(m), func(t *testing.T) {
				prog := start(t, "call")
				before := testprog.TakeSnapshot(t, prog.PID())
				s := attach(t, prog.PID(), kprobes.Options{})
				at := symbol(t, s, fn)
				register(t, s, m.probe("counted"), m.caller("probed", func(r *kprobes.Regs) {
					_, err := callWithin(r, 5*time.Millisecond, at, 1)
					if !errors.Is(err, kprobes.ErrCallTimeout) {
						t.Errorf("got %v, want a timeout", err)
					}
				}))
				const rounds = 20
				for range rounds {
					wantSays(t, prog, "go 30", "ret 10")
				}
				closeSession(t, s)
				before.Compare(t, prog.PID())
				wantSays(t, prog, "go 33", "ret 11")
				wantRight(t, prog)
			})
		}
	}
}

// TestCallsThatFault: the exception ends the call; the error tells it, and the program does not
// notice, not even by its handler for the signal.
func TestCallsThatFault(t *testing.T) {
	tests := []struct {
		kind uint64
		sig  unix.Signal
		addr arch.Addr
	}{
		{0, unix.SIGSEGV, 8}, {1, unix.SIGILL, 0}, {2, unix.SIGFPE, 0}, {3, unix.SIGTRAP, 0}, {4, unix.SIGTRAP, 0},
	}
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "call")
			before := testprog.TakeSnapshot(t, prog.PID())
			s := attach(t, prog.PID(), kprobes.Options{})
			faults := symbol(t, s, "faults")
			register(t, s, m.caller("probed", func(r *kprobes.Regs) {
				for _, test := range tests {
					_, err := callWithin(r, within, faults, test.kind)
					var e *kprobes.CallError
					if !errors.Is(err, kprobes.ErrCallFault) || !errors.As(err, &e) || e.Signal != test.sig {
						t.Errorf("fault %d: %v, want %v", test.kind, err, test.sig)
						continue
					}
					if test.addr != 0 && e.Addr != test.addr || e.IP < faults || e.IP > faults+256 {
						t.Errorf("fault %d at %s, address %s", test.kind, e.IP, e.Addr)
					}
				}
			}))
			for range 20 {
				wantSays(t, prog, "go 30", "ret 10")
			}
			closeSession(t, s)
			before.Compare(t, prog.PID())
			wantRight(t, prog)
		})
	}
}

// TestWhatCannotBeCalled is refused by name, and nothing happens.
func TestWhatCannotBeCalled(t *testing.T) {
	prog := start(t, "call")
	s := attach(t, prog.PID(), kprobes.Options{})
	none := symbol(t, s, "none")
	data := mapping(t, prog.PID(), func(m procfs.Mapping) bool { return m.Write })
	var kept *kprobes.Regs
	register(t, s, &kprobes.Kprobe{SymbolName: "probed", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		kept = r
		for _, at := range []arch.Addr{0, 0x1000, data, 1 << 47, 1 << 63, ^arch.Addr(0)} {
			if _, err := callWithin(r, within, at); !errors.Is(err, kprobes.ErrNotExecutable) {
				t.Errorf("at %s: %v, want %v", at, err, kprobes.ErrNotExecutable)
			}
		}
		elsewhere := make(chan error)
		go func() {
			_, err := r.Call(none)
			elsewhere <- err
		}()
		if err := <-elsewhere; !errors.Is(err, kprobes.ErrNotInHandler) {
			t.Errorf("on another goroutine: %v", err)
		}
		wantCall(t, r, 4711, none)
		return 0
	}})
	register(t, s, &kprobes.Kprobe{SymbolName: "other", PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int {
		if _, err := kept.Call(none); !errors.Is(err, kprobes.ErrNotInHandler) {
			t.Errorf("with registers of a handler that has returned: %v", err)
		}
		return 0
	}})
	wantSays(t, prog, "go 30", "ret 10")
	wantSays(t, prog, "two", "both")
	if _, err := kept.Call(none); !errors.Is(err, kprobes.ErrNotInHandler) {
		t.Errorf("outside of every handler: %v", err)
	}
	wantRight(t, prog)
}

// TestNoCallsOnGoStacks: they are as small as Go needs them.
func TestNoCallsOnGoStacks(t *testing.T) {
	prog := start(t, "gosrv")
	s := attach(t, prog.PID(), kprobes.Options{})
	target := symbol(t, s, "main.target")
	kp := boosted.caller("main.target", func(r *kprobes.Regs) {
		if _, err := r.Call(target, 1); !errors.Is(err, kprobes.ErrGoStack) {
			t.Errorf("got %v, want %v", err, kprobes.ErrGoStack)
		}
	})
	register(t, s, kp)
	prog.Do("threads 2 10", "sum")
	wantHits(t, kp, 20)
	wantRight(t, prog)
}

// TestCallsThatAreLeft: a signal's handler jumps out of the function, to a place up the stack. The
// program goes on there, whatever ends the call.
func TestCallsThatAreLeft(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "call")
			s := attach(t, prog.PID(), kprobes.Options{})
			jumps, none := symbol(t, s, "jumps"), symbol(t, s, "none")
			leave, left := false, make(chan error, 1)
			register(t, s, m.probe("other"), m.caller("probed", func(r *kprobes.Regs) {
				if !leave {
					wantCall(t, r, 4711, none)
					return
				}
				leave = false
				_, err := callWithin(r, within, jumps)
				r.SetArg(0, 3000) // of a copy
				if _, again := r.Call(none); !errors.Is(again, kprobes.ErrNotInHandler) && !errors.Is(again, kprobes.ErrClosed) {
					t.Errorf("another call: %v", again)
				}
				left <- err
			}))
			for range 5 {
				leave = true
				wantSays(t, prog, "jump 30", "jumped")
				prog.Do("shallow 1000", "did")
				prog.Do("two", "both") // another thread's handler makes a call
				// An exception of its own, which its handler mends, shows that it is not in the function.
				wantSays(t, prog, "fault 8", "ret 11")
				if err := <-left; !errors.Is(err, kprobes.ErrCallLeft) {
					t.Errorf("got %v, want %v", err, kprobes.ErrCallLeft)
				}
				wantSays(t, prog, "go 30", "ret 10")
			}
			leave = true
			wantSays(t, prog, "jump 30", "jumped")
			prog.Do("shallow 1000", "did")
			closeSession(t, s)
			if err := <-left; !errors.Is(err, kprobes.ErrCallLeft) {
				t.Errorf("got %v, want %v", err, kprobes.ErrCallLeft)
			}
			wantSays(t, prog, "go 30", "ret 10")
			wantRight(t, prog)
		})
	}
}

// TestTheEndInACall: of the process, of the thread, and of the program by exec.
func TestTheEndInACall(t *testing.T) {
	for _, m := range modes {
		t.Run("exit/"+string(m), func(t *testing.T) {
			prog := start(t, "call")
			s := attach(t, prog.PID(), kprobes.Options{})
			wantEnd(t, s, m, "quits", 5)
			prog.Send("go 30")
			<-s.Done()
			if e := prog.Wait(); e.Status != 5 {
				t.Errorf("the program ended with %+v, want status 5", e)
			}
		})
		t.Run("kill/"+string(m), func(t *testing.T) {
			prog := start(t, "call")
			s := attach(t, prog.PID(), kprobes.Options{})
			wantEnd(t, s, m, "block", 0)
			prog.Do("go 30", "in it")
			prog.Kill()
			<-s.Done()
		})
		t.Run("thread/"+string(m), func(t *testing.T) {
			prog := start(t, "call")
			s := attach(t, prog.PID(), kprobes.Options{})
			wantEnd(t, s, m, "ends_thread", 0)
			wantSays(t, prog, "thread", "joined")
			closeSession(t, s)
			wantRight(t, prog)
		})
		for _, follow := range []bool{false, true} {
			t.Run(fmt.Sprintf("exec/%s/follow=%v", m, follow), func(t *testing.T) {
				prog := start(t, "call")
				s := attach(t, prog.PID(), kprobes.Options{Follow: follow})
				kp := wantEnd(t, s, m, "runs", 0)
				wantSays(t, prog, "go 30", "again")
				if !follow {
					wantSays(t, prog, "go 30", "ret 10")
					wantHits(t, kp, 1)
				}
				closeSession(t, s)
				wantRight(t, prog)
			})
		}
	}
}

func wantEnd(t *testing.T, s *kprobes.Session, m mode, fn string, arg uint64) *kprobes.Kprobe {
	t.Helper()
	at := symbol(t, s, fn)
	kp := m.caller("probed", func(r *kprobes.Regs) {
		_, err := callWithin(r, within, at, arg)
		if !errors.Is(err, kprobes.ErrExited) || !errors.Is(err, unix.ESRCH) {
			t.Errorf("%s: %v, want %v", fn, err, kprobes.ErrExited)
		}
		r.SetArg(0, 3000)
	})
	register(t, s, kp)
	return kp
}

// TestJobControlDuringACall: the process is stopped while a thread is in the function, and the
// deadline passes. It is stopped still, until SIGCONT.
func TestJobControlDuringACall(t *testing.T) {
	for _, fn := range []string{"block", "spin_on"} {
		for _, m := range modes {
			t.Run(fn+"/"+string(m), func(t *testing.T) {
				prog := start(t, "call")
				s := attach(t, prog.PID(), kprobes.Options{})
				at := symbol(t, s, fn)
				sent, over := make(chan struct{}), make(chan struct{})
				register(t, s, m.caller("probed", func(r *kprobes.Regs) {
					timeOutUntil(t, r, sent, 200*time.Millisecond, at)
					close(over)
				}))
				prog.Send("go 30")
				prog.Expect("in it")
				if err := prog.Signal(unix.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				close(sent)
				<-over
				for range 2000 { // rounds of the tracer, for what is on its way
					if err := s.Signal(0); err != nil {
						t.Fatal(err)
					}
				}
				if st, err := procfs.ReadStat(prog.PID(), 0); err != nil || st.State == 'S' {
					t.Errorf("the process is in state %c, %v, not stopped", st.State, err)
				}
				if err := prog.Signal(unix.SIGCONT); err != nil {
					t.Fatal(err)
				}
				prog.Expect("ret 10")
				wantSays(t, prog, "shallow 10", "did 10")
				closeSession(t, s)
				wantRight(t, prog)
			})
		}
	}
}
