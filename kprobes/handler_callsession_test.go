package kprobes_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestCloseDuringACall, from another goroutine and from a handler for another thread: the thread
// is taken back from the function and goes on as if there had been no probe.
func TestCloseDuringACall(t *testing.T) {
	for _, fn := range []string{"spin_on", "spin_in", "block", "masks", "long_vfork"} {
		for _, m := range modes {
			t.Run(fn+"/"+string(m), func(t *testing.T) {
				prog := start(t, "call")
				before := testprog.TakeSnapshot(t, prog.PID())
				s := attach(t, prog.PID(), kprobes.Options{})
				at := symbol(t, s, fn)
				register(t, s, m.probe("counted"), m.caller("probed", func(r *kprobes.Regs) {
					if _, err := callWithin(r, within, at, 1); !errors.Is(err, kprobes.ErrClosed) {
						t.Errorf("got %v, want %v", err, kprobes.ErrClosed)
					}
					if _, err := r.Call(at); !errors.Is(err, kprobes.ErrClosed) {
						t.Errorf("another call: %v, want %v", err, kprobes.ErrClosed)
					}
				}))
				prog.Send("go 30")
				prog.Expect("in it")
				var others sync.WaitGroup
				for range 4 {
					others.Go(func() {
						for s.Signal(0) == nil { // until it is closed
						}
					})
				}
				closeSession(t, s)
				others.Wait()
				prog.Expect("ret 10")
				before.Compare(t, prog.PID())
				wantRight(t, prog)
			})
		}
	}
	for _, m := range modes {
		t.Run("in a handler/"+string(m), func(t *testing.T) {
			prog := start(t, "call")
			s := attach(t, prog.PID(), kprobes.Options{})
			at := symbol(t, s, "wait_for_other")
			register(t, s,
				m.caller("probed", func(r *kprobes.Regs) {
					if _, err := callWithin(r, within, at, 5); !errors.Is(err, kprobes.ErrClosed) {
						t.Errorf("got %v, want %v", err, kprobes.ErrClosed)
					}
				}),
				m.caller("other", func(*kprobes.Regs) { closeSession(t, s) }))
			wantSays(t, prog, "pair 10", "ret 10")
			prog.Expect("others 10")
			wantRight(t, prog)
		})
	}
}

// timeOutUntil calls a function that does not return, once more and for longer until done is closed: on a busy machine it is not
// even entered in a short time.
func timeOutUntil(t *testing.T, r *kprobes.Regs, done chan struct{}, d time.Duration, at arch.Addr, args ...uint64) {
	for ; ; d *= 2 {
		_, err := callWithin(r, d, at, args...)
		if !errors.Is(err, kprobes.ErrCallTimeout) {
			t.Errorf("got %v, want a timeout", err)
			return
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// TestTheSessionIsUsedDuringACall: probes come and go, which stops all threads, the one in the
// call too.
func TestTheSessionIsUsedDuringACall(t *testing.T) {
	for _, fn := range []string{"spin_in", "block"} {
		for _, m := range modes {
			t.Run(fn+"/"+string(m), func(t *testing.T) {
				prog := start(t, "call")
				s := attach(t, prog.PID(), kprobes.Options{})
				at := symbol(t, s, fn)
				inIt := make(chan struct{})
				register(t, s, m.probe("counted"), m.caller("probed", func(r *kprobes.Regs) {
					timeOutUntil(t, r, inIt, 400*time.Millisecond, at, 1)
				}))
				prog.Send("go 30")
				prog.Expect("in it")
				close(inIt)
				toggle(t, s, m.probe("weigh"), 100)
				at2, err := s.Alloc(4096) // with the thread that is in the function
				if err == nil {
					err = s.Free(at2, 4096)
				}
				if err != nil {
					t.Error(err)
				}
				prog.Expect("ret 10")
				wantRight(t, prog)
			})
		}
	}
}

// TestUnregisterWaitsForACall (A40): when it has returned, the handler that made the call has too.
func TestUnregisterWaitsForACall(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "call")
			s := attach(t, prog.PID(), kprobes.Options{})
			at := symbol(t, s, "block")
			ended, inIt := false, make(chan struct{})
			kp := m.caller("probed", func(r *kprobes.Regs) {
				timeOutUntil(t, r, inIt, 50*time.Millisecond, at)
				timeOutUntil(t, r, inIt, 50*time.Millisecond, at)
				ended = true
			})
			register(t, s, kp)
			prog.Send("go 30")
			prog.Expect("in it")
			close(inIt)
			if err := s.UnregisterKprobe(kp); err != nil {
				t.Error(err)
			}
			if !ended {
				t.Error("the handler still runs")
			}
			prog.Expect("ret 10")
			wantSays(t, prog, "go 33", "ret 11")
			wantHits(t, kp, 1)
			wantRight(t, prog)
		})
	}
}

// TestCallsFromAFaultHandler, which then mends the fault or declines. The program's own handler
// finds all that the kernel tells of the exception.
func TestCallsFromAFaultHandler(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "call")
			want := func(line string) {
				t.Helper()
				wantSays(t, prog, "fault 8", line)
				prog.Expect("ret 11")
			}
			told := prog.Do("fault 8", "fault")
			if !strings.Contains(told, "trapno 14") {
				t.Fatalf("unprobed: %q", told)
			}
			prog.Expect("ret 11")
			s := attach(t, prog.PID(), kprobes.Options{})
			heavy, faults := symbol(t, s, "heavy"), symbol(t, s, "faults")
			asked := 0
			kp := m.probe("fault_insn")
			kp.FaultHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs, trapnr int) int {
				asked++
				wantCall(t, r, 3032, heavy)
				if _, err := callWithin(r, within, faults, 2); !errors.Is(err, kprobes.ErrCallFault) {
					t.Errorf("got %v", err)
				}
				if trapnr != 14 {
					t.Errorf("trapnr %d, want 14", trapnr)
				}
				if asked <= 3 {
					return 0
				}
				r.SetReturnValue(uint64(r.SP()))
				return 1
			}
			register(t, s, kp)
			for range 3 {
				want(told)
			}
			if asked != 3 {
				t.Errorf("the FaultHandler ran %d times, want 3", asked)
			}
			hits := kp.Hits()
			if got := prog.Do("fault 8", "ret"); got == "ret 11" {
				t.Errorf("the fault was not mended: %q", got)
			}
			if asked != 4 || kp.Hits() != hits+1 {
				t.Errorf("the FaultHandler ran %d times, %d more hits; want 4 and 1", asked, kp.Hits()-hits)
			}
			closeSession(t, s)
			want(told)
			wantRight(t, prog)
		})
	}
}

// TestCallsAfterASystemCall: from a PostHandler, which runs on the way out of the kernel.
func TestCallsAfterASystemCall(t *testing.T) {
	prog := start(t, "call")
	s := attach(t, prog.PID(), kprobes.Options{})
	heavy, forks := symbol(t, s, "heavy"), symbol(t, s, "forks")
	register(t, s, &kprobes.Kprobe{
		SymbolName: "fork_insn",
		PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int { wantCall(t, r, 7, forks); return 0 },
		PostHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs, _ uint64) {
			wantCall(t, r, 3032, heavy)
			wantCall(t, r, 7, forks)
		},
	})
	for range 20 {
		wantSays(t, prog, "kernel", "ret 1")
	}
	closeSession(t, s)
	wantRight(t, prog)
}

// TestCallsAtTheEndOfTheStack grow it, as a call of the program's own would.
func TestCallsAtTheEndOfTheStack(t *testing.T) {
	prog := start(t, "call")
	s := attach(t, prog.PID(), kprobes.Options{})
	weigh := symbol(t, s, "weigh")
	register(t, s, boosted.caller("probed", func(r *kprobes.Regs) {
		wantCall(t, r, 55, weigh, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	}))
	for range 5 {
		wantSays(t, prog, "edge", "ret 10")
	}
	closeSession(t, s)
	wantRight(t, prog)
}

// TestCallsFromHandlersOfAllKinds of probes: what they call is neither followed nor seen (B33, B44).
func TestCallsFromHandlersOfAllKinds(t *testing.T) {
	prog := start(t, "call")
	s := attach(t, prog.PID(), kprobes.Options{})
	target := symbol(t, s, "recursed_target")
	ran := ""
	call := func(name string, r *kprobes.Regs) {
		ran += name
		before := r.Clone()
		wantCall(t, r, 9, target, 45)
		if !before.Same(r.Regs) {
			t.Errorf("%s: the registers have changed", name)
		}
	}
	rp := &kprobes.Kretprobe{
		KP:           kprobes.Kprobe{SymbolName: "recursed_target"},
		EntryHandler: func(_ *kprobes.KretprobeInstance, r *kprobes.Regs) int { call("e", r); return 0 },
		Handler:      func(_ *kprobes.KretprobeInstance, r *kprobes.Regs) int { call("r", r); return 0 },
	}
	if err := s.RegisterKretprobe(rp); err != nil {
		t.Fatal(err)
	}
	jp := &kprobes.Jprobe{
		KP:    kprobes.Kprobe{SymbolName: "recursed_target"},
		Entry: func(r *kprobes.Regs, _ int64) { call("j", r) },
	}
	if err := s.RegisterJprobe(jp); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		wantSays(t, prog, "recurse 50", "ret 10")
	}
	if want := strings.Repeat("ejr", 10); ran != want {
		t.Errorf("handlers ran %q, want %q", ran, want)
	}
	got := fmt.Sprint(rp.Hits(), rp.NMissed(), rp.KP.Hits(), rp.KP.NMissed(), jp.KP.NMissed())
	if want := "10 0 10 30 30"; got != want {
		t.Errorf("counts %s, want %s", got, want)
	}
	closeSession(t, s)
	wantRight(t, prog)
}

// TestCloseLetsCallsEnd: a function that is about to return does, with what it may have locked.
func TestCloseLetsCallsEnd(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "call")
			s := attach(t, prog.PID(), kprobes.Options{})
			at := symbol(t, s, "wait_for_other")
			begun := make(chan struct{})
			first := sync.OnceFunc(func() { close(begun) })
			register(t, s,
				m.caller("counted", func(*kprobes.Regs) { first() }),
				m.caller("probed", func(r *kprobes.Regs) {
					if got, err := callWithin(r, within, at, 5); err != nil || got != 15 {
						t.Errorf("got %d, %v, want 15", got, err)
					}
					if _, err := r.Call(at); !errors.Is(err, kprobes.ErrClosed) && !errors.Is(err, kprobes.ErrNotInHandler) {
						t.Errorf("another call: %v", err)
					}
				}))
			prog.Send("pair 200")
			<-begun
			closeSession(t, s)
			prog.Expect("ret 10")
			prog.Expect("others 200")
			wantRight(t, prog)
		})
	}
}

// TestUnregisterDuringClose (A40): nothing is registered any more, but a handler may still run.
func TestUnregisterDuringClose(t *testing.T) {
	prog := start(t, "call")
	s := attach(t, prog.PID(), kprobes.Options{})
	at := symbol(t, s, "block")
	ended := false
	kp := boosted.caller("probed", func(r *kprobes.Regs) {
		if _, err := callWithin(r, within, at); !errors.Is(err, kprobes.ErrClosed) {
			t.Errorf("got %v, want %v", err, kprobes.ErrClosed)
		}
		ended = true
	})
	register(t, s, kp)
	prog.Send("go 30")
	prog.Expect("in it")
	var closing sync.WaitGroup
	closing.Go(func() { closeSession(t, s) })
	for s.Signal(0) == nil {
	}
	if err := s.UnregisterKprobe(kp); !errors.Is(err, kprobes.ErrClosed) {
		t.Errorf("unregister: %v", err)
	}
	if !ended {
		t.Error("the handler still runs")
	}
	closing.Wait()
	prog.Expect("ret 10")
	wantRight(t, prog)
}
