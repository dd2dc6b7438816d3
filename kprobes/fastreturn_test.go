package kprobes_test

import (
	"fmt"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// wantFollowed checks that calls of rp are followed in the target.
func wantFollowed(t testing.TB, s *kprobes.Session, rp *kprobes.Kretprobe) {
	t.Helper()
	wantOptimized(t, s, &rp.KP)
}

// TestCallsAreFollowedInTheTarget: no call and no return is lost, while threads come and go and
// the probe is disabled and enabled, forced back to a breakpoint, registered again.
func TestCallsAreFollowedInTheTarget(t *testing.T) {
	const threads, calls = 8, 100_000
	prog := start(t, "threads", fmt.Sprint(threads))
	s := attach(t, prog.PID(), kprobes.Options{})
	rp := follow("foo", 50)
	registerReturns(t, s, rp)
	prog.Do("go 10", "went")
	wantReturns(t, rp, threads*10, threads*10, 0)
	wantFollowed(t, s, rp)
	prog.Do(fmt.Sprintf("go %d", calls), "went")
	wantReturns(t, rp, threads*(calls+10), threads*(calls+10), 0)
	ok(t, s.SetOptimization(false))
	prog.Do("go 10", "went")
	ok(t, s.SetOptimization(true))
	wantFollowed(t, s, rp)
	prog.Do(fmt.Sprintf("go %d", calls), "went")
	wantReturns(t, rp, threads*(2*calls+20), threads*(2*calls+20), 0)
	if st := s.Status(&rp.KP); st.Active != 0 {
		t.Errorf("%d calls in flight", st.Active)
	}
	ok(t, s.UnregisterKretprobe(rp))
	wantReturns(t, rp, threads*(2*calls+20), threads*(2*calls+20), 0)
	rp.KP.Addr, rp.KP.Flags = 0, 0
	registerReturns(t, s, rp)
	wantFollowed(t, s, rp)
	prog.Do("go 1000", "went")
	wantReturns(t, rp, threads*1000, threads*1000, 0)
	endReturns(t, s, prog)
	wantReturns(t, rp, threads*1000, threads*1000, 0)
}
