package ptrace

import "testing"

// TestAStepIsTakenBackWithItsTrapFlag: that of the processor's, but not the program's own.
func TestAStepIsTakenBackWithItsTrapFlag(t *testing.T) {
	for _, own := range []bool{false, true} {
		th := &Thread{at: &standing{}}
		th.at.regs.valid = true
		if own {
			th.at.regs.own.Eflags |= 1 << 8
		}
		th.Go(StepOnce())
		th.at.regs.own.Eflags |= 1 << 8 // as an instruction finds it that saves the flags
		th.Go(Undecided())
		if got := th.at.regs.own.TrapFlag(); got != own || th.at.next != nextAny {
			t.Errorf("the program's own: %v; behind it the flag is %v, the request %d", own, got, th.at.next)
		}
	}
}
