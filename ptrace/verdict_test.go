package ptrace

import (
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// verdicts are all there are, by name.
var verdicts = map[string]Verdict{
	"Undecided": Undecided(), "RunOn": RunOn(), "WithSignal": WithSignal(), "DropSignal": DropSignal(),
	"IntoCopy": IntoCopy(), "IntoCopyUntil": IntoCopyUntil(0x77), "StepOnce": StepOnce(), "IntoKernel": IntoKernel(0x10, 0x20),
}

// asked is what a thread was told.
type asked struct {
	reason        Reason
	moved, inCopy bool
	trap          bool
	next          nextStop
}

// TestAVerdictReplacesTheLast: whatever a thread was told before, what counts is what it was told last, for each kind of stop.
func TestAVerdictReplacesTheLast(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "siblings"))
	tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
	defer tr.Close()
	want := map[string]func(Reason) asked{
		"Undecided":     func(r Reason) asked { return asked{reason: r} },
		"RunOn":         func(r Reason) asked { return asked{reason: r, moved: r != Signal} },
		"WithSignal":    func(r Reason) asked { return asked{reason: ifTrap(r)} },
		"DropSignal":    func(Reason) asked { return asked{reason: Interrupt} },
		"IntoCopy":      func(r Reason) asked { return asked{reason: r, inCopy: true} },
		"IntoCopyUntil": func(r Reason) asked { return asked{reason: r, inCopy: true, trap: true} },
		"StepOnce":      func(r Reason) asked { return asked{reason: r, inCopy: true, next: nextStep} },
		"IntoKernel":    func(r Reason) asked { return asked{reason: r, inCopy: true, next: nextEntry} },
	}
	whileHeld(t, tr, func() {}, func() error {
		return p.Space.Freeze(func(*Frozen) error {
			th := p.Leader()
			regs, err := th.hostRegs()
			if err != nil {
				return err
			}
			own, stop := *regs, th.at.stop
			for _, reason := range []Reason{Breakpoint, SingleStep, Signal, Interrupt} {
				for before, first := range verdicts {
					for name, v := range verdicts {
						th.at.stop.Reason = Interrupt
						th.Go(first)
						th.at.stop.Reason = reason
						th.Go(v)
						got := asked{th.at.stop.Reason, th.at.moved, th.at.inCopy, th.at.trapAt == 0x77, th.at.next}
						if got != want[name](reason) {
							t.Errorf("%s after %s, at a %s: %+v, want %+v", name, before, reason, got, want[name](reason))
						}
						if th.HasLeft() != got.moved {
							t.Errorf("%s: it has left: %v", name, th.HasLeft())
						}
					}
				}
			}
			th.Go(Undecided())
			if th.at.stop = stop; *regs != own {
				t.Errorf("verdicts have changed the registers")
			}
			return nil
		})
	})
	whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// ifTrap is what a stop for a trap of ours is when the program gets its signal.
func ifTrap(r Reason) Reason {
	if r == Breakpoint || r == SingleStep {
		return Signal
	}
	return r
}

// TestWhatIsAnsweredOfAStopAlone: AsTold and NotOurs leave a thread at what it was told before, and NotOurs gives the program its signal.
func TestWhatIsAnsweredOfAStopAlone(t *testing.T) {
	for name, first := range verdicts {
		for _, reason := range []Reason{Breakpoint, SingleStep, Signal, Interrupt} {
			th := &Thread{at: &standing{}, Proc: &Process{tracer: &Tracer{noUserDispatch: true, handler: Nop{}}}}
			th.at.regs.valid = true
			told := func() asked {
				return asked{th.at.stop.Reason, th.at.moved, th.at.inCopy, th.at.trapAt == 0x77, th.at.next}
			}
			th.Go(first)
			th.at.stop.Reason = reason
			want := told()
			if th.Go(AsTold()); told() != want {
				t.Errorf("%s, then AsTold at a %s: %+v, was %+v", name, reason, told(), want)
			}
			want.reason = ifTrap(reason)
			if th.Go(NotOurs()); told() != want {
				t.Errorf("%s, then NotOurs at a %s: %+v, want %+v", name, reason, told(), want)
			}
		}
	}
	for name, v := range verdicts {
		if v.signals() != (name == "WithSignal") {
			t.Errorf("after %s the program gets its signal: %v", name, v.signals())
		}
	}
	if !NotOurs().signals() || AsTold().signals() {
		t.Errorf("the program gets its signal: %v if it is not ours, %v if that was told", NotOurs().signals(), AsTold().signals())
	}
}
