package ptrace

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// TestAFaultThatIsDroppedHasNeverHappened: each hit sends its thread where it faults, which the program is not told of. Whether it handles the signal, blocks
// or ignores it, its action and its mask are as it has set them: it looks after each call.
func TestAFaultThatIsDroppedHasNeverHappened(t *testing.T) {
	for _, mode := range []string{"", "handled", "ignored", "blocked", "blocked handled", "blocked ignored"} {
		t.Run(mode, func(t *testing.T) {
			args := []string{}
			for _, a := range []string{"handled", "ignored", "blocked"} {
				if len(mode) >= len(a) && (mode[:len(a)] == a || mode[len(mode)-len(a):] == a) {
					args = append(args, a)
				}
			}
			k := probe(t, "badreads", args...)
			at := k.symbol("foo")
			ud2 := arch.Addr(0)
			faults := map[unix.Signal]int{}
			const nowhere = arch.Addr(0x10)
			k.onHit = func(_ *Thread, regs arch.Regs) {
				if regs.SetIP(nowhere); k.hits%2 == 0 {
					regs.SetIP(ud2)
				}
			}
			k.onSignal = func(th *Thread, info *Siginfo) (Delivery, Verdict) {
				regs := must2(th.Regs())
				if ip := regs.IP(); !info.Synchronous() || !info.fault() || ip != nowhere && ip != ud2 {
					t.Errorf("stopped for signal %d, code %d, at %s", info.Signo(), info.Code(), ip)
					return Deliver, AsTold()
				}
				faults[info.Signo()]++
				k.remove(at)
				k.steps[th] = at
				regs.SetIP(at)
				return Drop, StepOnce()
			}
			k.do(func() error {
				ud2, _ = k.p.Space.findCode([]byte{0x0f, 0x0b}, inFile, anywhere)
				return k.p.Space.Freeze(func(*Frozen) error {
					k.plant(at)
					for range 2 {
						if err := k.p.NoteFaultActions(false); err != nil {
							return err
						}
					}
					return nil
				})
			})
			const calls = 50
			if got, want := k.prog.Do(fmt.Sprintf("call %d", calls), "called"), fmt.Sprintf("called %d", calls); got != want {
				t.Errorf("the program says %q, want %q", got, want)
			}
			if got := k.prog.Do("actions", "actions"); got != "actions own" {
				t.Errorf("the program says %q", got)
			}
			if faults[unix.SIGSEGV] != calls/2 || faults[unix.SIGILL] != calls/2 {
				t.Errorf("faults: %v", faults)
			}
			k.end()
		})
	}
}

// TestActionsOfFaultsAreReadAgainWhenTheyChange, and believed to be gone only when they are so twice: a fault of ours may have reset them for a moment.
func TestActionsOfFaultsAreReadAgainWhenTheyChange(t *testing.T) {
	k := probe(t, "badreads", "handled")
	set := func(sig unix.Signal, handler uintptr) {
		must(k.p.Remote(func(r *Remote) error {
			sa := must2(r.sigaction(sig))
			sa.handler = handler
			return r.setSigaction(sig, sa)
		}))
	}
	known := func(sigs ...unix.Signal) {
		t.Helper()
		must(k.p.NoteFaultActions(false))
		want := Sigset(0)
		for _, sig := range sigs {
			if want |= sigbit(sig); k.p.faults.action[sig] == nil {
				t.Errorf("the action of %s is not known", unix.SignalName(sig))
			}
		}
		if got := k.p.faults.handled | k.p.faults.ignored; got != want || len(k.p.faults.action) != len(sigs) {
			t.Errorf("known are %x, with %d actions, want %x", got, len(k.p.faults.action), want)
		}
	}
	k.do(func() error {
		return k.p.Space.Freeze(func(*Frozen) error {
			known(unix.SIGSEGV, unix.SIGBUS)
			own := k.p.faults.action[unix.SIGBUS].handler
			if st := must2(procfs.ReadStatus(k.p.PID, 0)); Sigset(st.SigCgt)&allFaults != k.p.faults.handled {
				t.Errorf("handled are %x, the kernel says %x", k.p.faults.handled, st.SigCgt)
			}
			set(unix.SIGBUS, 0)
			known(unix.SIGSEGV, unix.SIGBUS) // once
			known(unix.SIGSEGV)              // twice
			set(unix.SIGBUS, own)
			known(unix.SIGSEGV, unix.SIGBUS)
			set(unix.SIGBUS, 0)
			known(unix.SIGSEGV, unix.SIGBUS)
			set(unix.SIGBUS, own)
			known(unix.SIGSEGV, unix.SIGBUS)
			set(unix.SIGBUS, 0)
			known(unix.SIGSEGV, unix.SIGBUS) // it was there in between
			set(unix.SIGBUS, own)
			set(unix.SIGILL, sigIgn)
			known(unix.SIGSEGV, unix.SIGBUS, unix.SIGILL)
			set(unix.SIGILL, 0)
			known(unix.SIGSEGV, unix.SIGBUS, unix.SIGILL)
			known(unix.SIGSEGV, unix.SIGBUS)
			return nil
		})
	})
	k.end()
}

// TestWhatIsKnownOfAThreadThatIsAloneIsForgotten when it goes on, and of an action when that is set by a call that is made for us.
func TestWhatIsKnownOfAThreadThatIsAloneIsForgotten(t *testing.T) {
	k := probe(t, "badreads", "handled")
	k.do(func() error {
		return k.p.Space.Freeze(func(*Frozen) error {
			th := k.p.Leader()
			must(k.p.NoteFaultActions(true))
			own := *k.p.faults.action[unix.SIGBUS]
			if th.filtered() || !th.alone().filtersKnown || th.alone().actions != sigbit(unix.SIGSEGV)|sigbit(unix.SIGBUS) {
				t.Errorf("of a thread that stands alone is known: %+v", *th.alone())
			}
			other := own
			other.mask ^= sigbit(unix.SIGUSR1)
			must(k.p.Remote(func(r *Remote) error { return r.setSigaction(unix.SIGBUS, &other) }))
			if must(k.p.NoteFaultActions(true)); *k.p.faults.action[unix.SIGBUS] != other {
				t.Errorf("an action that was set for us is taken for the one before")
			}
			must(k.p.Remote(func(r *Remote) error { return r.setSigaction(unix.SIGBUS, &own) }))
			if !th.alone().filtersKnown {
				t.Error("calls that were made for us are taken for some of its own")
			}
			return k.p.NoteFaultActions(true)
		})
	})
	if got := k.prog.Do("actions", "actions"); got != "actions own" { // it has run
		t.Errorf("the program says %q", got)
	}
	k.do(func() error {
		return k.p.Space.Freeze(func(*Frozen) error {
			if a := k.p.aloneOf(); a.filtersKnown || a.actions != 0 {
				t.Errorf("of a thread that has run is known what was so before: %+v", *a)
			}
			return nil
		})
	})
	k.end()
}
