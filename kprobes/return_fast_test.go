package kprobes_test

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// wantFollowed checks that calls of rp are followed in the target.
func wantFollowed(t testing.TB, s *kprobes.Session, rp *kprobes.Kretprobe) {
	t.Helper()
	wantOptimized(t, s, &rp.KP)
}

// inTarget runs a test of calls that the target follows, by sites and with their return addresses replaced.
func inTarget(t *testing.T, test func(t *testing.T, opts kprobes.Options)) {
	t.Helper()
	t.Run("sites", func(t *testing.T) { test(t, kprobes.Options{}) })
	t.Run("rewrite", func(t *testing.T) { test(t, rewriting) })
}

// TestCallsAreFollowedInTheTarget: no call and no return is lost, while threads come and go and
// the probe is disabled and enabled, forced back to a breakpoint, registered again.
func TestCallsAreFollowedInTheTarget(t *testing.T) { inTarget(t, callsAreFollowedInTheTarget) }

func callsAreFollowedInTheTarget(t *testing.T, opts kprobes.Options) {
	const threads, calls = 8, 100_000
	prog := start(t, "threads", fmt.Sprint(threads))
	s := attach(t, prog.PID(), opts)
	rp := follow("foo", 50)
	registerReturns(t, s, rp)
	prog.Do("go 10", "went")
	wantReturns(t, rp, threads*10, threads*10, 0)
	wantFollowed(t, s, rp)
	s.WaitForOptimizer(t.Context())
	handled := s.Handled()
	prog.Do(fmt.Sprintf("go %d", calls), "went")
	if n := s.Handled() - handled; n > calls/10 {
		t.Errorf("the tracer has dealt with %d hits of %d", n, 2*threads*calls)
	}
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

// TestSessionsEndWhileCallsAreFollowed, at any place in the bodies that follow them.
func TestSessionsEndWhileCallsAreFollowed(t *testing.T) {
	inTarget(t, sessionsEndWhileCallsAreFollowed)
}

func sessionsEndWhileCallsAreFollowed(t *testing.T, opts kprobes.Options) {
	rounds := testsize.Rounds(6, 60, 2000)
	prog := start(t, "ends")
	prog.Do("loop backtrace", "looping")
	for range rounds {
		s := attach(t, prog.PID(), opts)
		registerReturns(t, s, follow("bt_inner", 50), follow("bt_mid", 50), follow("bt_outer", 50))
		s.WaitForOptimizer(t.Context())
		s.WaitForOptimizer(t.Context())
		closeSession(t, s)
		prog.CheckClean()
	}
	prog.Do("stop", "looped")
	if last := prog.Quit(); !strings.HasPrefix(last, "last") {
		t.Errorf("it ends with %q", last)
	}
}

// TestSignalsWhileCallsAreFollowed: signals arrive in the bodies, also in those that leave a call to the
// tracer, while jumps come and go.
func TestSignalsWhileCallsAreFollowed(t *testing.T) { inTarget(t, signalsWhileCallsAreFollowed) }

func signalsWhileCallsAreFollowed(t *testing.T, opts kprobes.Options) {
	rounds := testsize.Rounds(4, 40, 2000)
	prog := start(t, "regions", "4")
	s := attach(t, prog.PID(), opts)
	var rps []*kprobes.Kretprobe
	for _, name := range functions(prog) {
		rps = append(rps, follow(name, 100))
	}
	prog.Send("start")
	registerReturns(t, s, rps...)
	for i := range rounds {
		for range 20 {
			_ = prog.Signal(syscall.SIGUSR1)
			s.Status(&rps[0].KP)
		}
		switch i % 4 {
		case 0:
			s.WaitForOptimizer(t.Context())
		case 1:
			ok(t, s.SetOptimization(false))
		case 2:
			ok(t, s.SetOptimization(true))
		case 3:
			ok(t, s.UnregisterKretprobes(rps[:5]))
			for _, rp := range rps[:5] {
				rp.KP.Addr, rp.KP.Flags = 0, 0
			}
			registerReturns(t, s, rps[:5]...)
		}
	}
	s.WaitForOptimizer(t.Context())
	for _, rp := range rps[:5] { // these are new
		for s.Status(&rp.KP).Hits == 0 {
			runtime.Gosched()
		}
	}
	prog.Do("stop", "calls")
	for _, rp := range rps {
		if st := s.Status(&rp.KP); st.Hits == 0 || st.Hits != st.Returns+st.ReturnsMissed+uint64(st.Active) {
			t.Errorf("%s: %d entries, but %d returns, %d missed, %d in flight", st.Symbol, st.Hits, st.Returns, st.ReturnsMissed, st.Active)
		}
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestAVforkChildOfFollowedCalls is TestAVforkChildHasItsOwnCalls for calls that the target follows.
func TestAVforkChildOfFollowedCalls(t *testing.T) { inTarget(t, aVforkChildOfFollowedCalls) }

func aVforkChildOfFollowedCalls(t *testing.T, opts kprobes.Options) {
	prog := startAgain(t)
	want := prog.Do("vfork 10", "sum")
	s := attach(t, prog.PID(), opts)
	forks, twice, forked := follow("vfork", 0), follow("twice", 0), follow("vforked", 0)
	registerReturns(t, s, forks, twice, forked)
	for range 3 {
		s.WaitForOptimizer(t.Context())
		if got := prog.Do("vfork 10", "sum"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	wantFollowed(t, s, twice)
	wantReturns(t, forks, 30, 60, 0)
	wantReturns(t, twice, 60, 60, 0)
	wantReturns(t, forked, 30, 30, 0)
	endReturns(t, s, prog)
}
