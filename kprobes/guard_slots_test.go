package kprobes

import (
	"context"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestTheGuardKnowsWhatStandsInsideOfAJump: where a probe that is disabled lies inside of another's jump, the guard leads to
// the copy that belongs to what stands there now.
func TestTheGuardKnowsWhatStandsInsideOfAJump(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "optstorm"))
	s, err := Attach(context.Background(), prog.PID(), Options{Log: testprog.NoWarnings(t)})
	if err != nil {
		t.Fatal(err)
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var st *site
	for _, name := range []string{"s_one", "s_push", "s_frame", "s_loop"} {
		outer := &Kprobe{SymbolName: name}
		if s.RegisterKprobe(outer) != nil {
			continue
		}
		do(s.WaitForOptimizer(t.Context(), outer))
		if st = outer.placements[0].site; st.jump() != nil && len(st.jump().heads) > 0 {
			break
		}
		st = nil
	}
	if st == nil {
		t.Fatal("no jump has a head inside that traps")
	}
	head := st.jump().heads[0]
	leads := func(when string, want func() arch.Addr) {
		t.Helper()
		do(s.WaitForOptimizer(t.Context()))
		do(s.do(func() error {
			for at, to := range s.mainDomain().region.Resumes() {
				if at == head && to != want() {
					t.Errorf("%s: the guard leads to %s, want %s", when, to, want())
				}
			}
			return nil
		}))
	}
	copied := func() arch.Addr {
		if st.jump() == nil {
			t.Fatal("there is no jump")
		}
		to, _ := st.jump().CopyOf(head)
		return to
	}
	inner := &Kprobe{Addr: head}
	do(s.RegisterKprobe(inner))
	slot := func() arch.Addr { return inner.placements[0].site.slot.Alone }
	leads("a probe inside", slot)
	do(s.DisableKprobe(inner))
	leads("it is disabled", copied)
	do(s.EnableKprobe(inner))
	leads("it is enabled again", slot)
	do(s.DisableKprobe(inner))
	leads("it is disabled again", copied)
	do(s.UnregisterKprobe(inner))
	leads("it has gone", copied)
	do(s.SetOptimization(false))
	leads("the jump has gone", func() arch.Addr { return head })
	do(s.Close())
	prog.CheckClean()
}
