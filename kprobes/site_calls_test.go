package kprobes

import (
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/program"
)

// TestCallsThatReturnAreCountedByWhatTheyNeed, and what ends leaves nothing behind.
func TestCallsThatReturnAreCountedByWhatTheyNeed(t *testing.T) {
	traced, recorded, noted := &Kretprobe{Handler: func(*KretprobeInstance, *Regs) int { return 0 }}, &Kretprobe{}, &Kretprobe{}
	recorded.KP.Program = &program.Program{}
	c := siteCalls{}
	if !c.begin(traced) || !c.begin(recorded) || c.begin(noted) {
		t.Error("a jump there would have to be made anew for the first two")
	}
	before := c.recorders
	if c.returning != 3 || c.traced != 1 || !slices.Equal(before, []*Kretprobe{recorded}) || c.none() || c.needTracer() == "" {
		t.Errorf("%+v", c)
	}
	was := c.recounted
	if c.end(recorded); before[0] != recorded || c.recounted == was {
		t.Errorf("the slice that somebody has is changed, or nobody is told: %+v", c)
	}
	_ = c.awaiting(func() error {
		if c.returning != 3 {
			t.Errorf("%d calls are awaited", c.returning)
		}
		return nil
	})
	c.end(traced)
	if c.end(noted); !c.none() || c.any() || c.needTracer() != "" {
		t.Errorf("%+v", c)
	}
}

// TestWhatRefusesAJumpForGoodIsNotForgotten: something else was in the way for a while, and is told meanwhile.
func TestWhatRefusesAJumpForGoodIsNotForgotten(t *testing.T) {
	s := &Session{}
	d := &domain{session: s}
	opt := &optimizer{d: d}
	st := &site{domain: d, stands: unarmed{}}
	st.noJump.ever("somebody stands beside it")
	for _, unwinds := range []bool{true, false} {
		st.calls.unwinds = unwinds
		_, why := opt.qualifies(st)
		st.noJump.now(why)
	}
	if !st.noJump.rejected() || st.noJump.why != "somebody stands beside it" {
		t.Errorf("the reason is %+v", st.noJump)
	}
}
