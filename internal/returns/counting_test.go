package returns

import (
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	prog "github.com/gokprobe/gokprobe/program"
)

// newCounter is a follower without handlers: the target follows its calls itself, where it can.
func newCounter(t *testing.T, pid int, p program, c playing) *follower {
	t.Helper()
	f := newFollower(t, pid, p, c)
	for _, rp := range f.probes {
		rp.EntryHandler, rp.Handler, rp.DataSize = nil, nil, 0
	}
	return f
}

// newMixture has every other function's calls followed by handlers.
func newMixture(t *testing.T, pid int, p program, c playing) *follower {
	t.Helper()
	f := newCounter(t, pid, p, c)
	f.strict = false
	for i, rp := range f.probes {
		if i%2 == 0 {
			rp.DataSize, rp.EntryHandler, rp.Handler = 24, f.entered, f.returned
		}
	}
	return f
}

// newTimer is a counter of durations.
func newTimer(t *testing.T, pid int, p program, c playing) *follower {
	t.Helper()
	return timing(t, newCounter(t, pid, p, c))
}

// newTimedMixture is newMixture with durations of all calls but every fourth function's.
func newTimedMixture(t *testing.T, pid int, p program, c playing) *follower {
	t.Helper()
	f := timing(t, newMixture(t, pid, p, c))
	for i, rp := range f.probes {
		if i%4 == 1 {
			rp.KP.Program = nil
		}
	}
	return f
}

// timing has f count durations.
func timing(t *testing.T, f *follower) *follower {
	t.Helper()
	durations, err := prog.Build("durations", 0, []string{"duration"}, prog.Cond{},
		prog.AddToHistogram{Map: prog.Map{Kind: prog.Log2}, Value: prog.Reg("duration")})
	if err != nil {
		t.Fatal(err)
	}
	for _, rp := range f.probes {
		rp.KP.Program = durations
	}
	return f
}

// wantDurations checks that each return has a duration.
func (f *follower) wantDurations() {
	f.t.Helper()
	for _, rp := range f.probes {
		n := uint64(0)
		for _, in := range rp.KP.Values(0) {
			n += in
		}
		if rp.KP.Program != nil && n != rp.Hits() {
			f.t.Errorf("%s: %d durations of %d returns", rp.KP.SymbolName, n, rp.Hits())
		}
	}
}

// TestAnyMomentOfCountedCalls is TestAnyMoment for calls that are only counted, and where some are.
func TestAnyMomentOfCountedCalls(t *testing.T) {
	t.Run("all", func(t *testing.T) { anyMoment(t, kprobes.ReturnSites, newCounter) })
	t.Run("some", func(t *testing.T) { anyMoment(t, kprobes.ReturnSites, newMixture) })
	t.Run("rewritten", func(t *testing.T) { anyMoment(t, kprobes.ReturnRewrite, newTimedMixture) })
	t.Run("chosen", func(t *testing.T) { anyMoment(t, kprobes.ReturnAuto, newMixture) })
	t.Run("timed", func(t *testing.T) { anyMoment(t, kprobes.ReturnSites, newTimer) })
}

// TestCountedCallsAmongOthers: calls that are counted and calls with handlers share frames, return
// addresses and stacks.
func TestCountedCallsAmongOthers(t *testing.T) {
	eachCase(t, func(t *testing.T, p program, c playing) { playOptimized(t, p, c, kprobes.ReturnSites, newMixture) })
}

// TestCountedCalls is TestFollowedCalls for calls that are only counted: in C, most of them by
// the target. The numbers are the same.
func TestCountedCalls(t *testing.T) {
	t.Run("sites", func(t *testing.T) { countedCalls(t, kprobes.ReturnSites, newCounter) })
	t.Run("rewrite", func(t *testing.T) { countedCalls(t, kprobes.ReturnRewrite, newCounter) })
}

// TestTimedCalls is TestCountedCalls with a program at each return.
func TestTimedCalls(t *testing.T) {
	t.Run("sites", func(t *testing.T) { countedCalls(t, kprobes.ReturnSites, newTimer) })
	t.Run("rewrite", func(t *testing.T) { countedCalls(t, kprobes.ReturnRewrite, newTimer) })
}

func countedCalls(t *testing.T, returns kprobes.Returns, make func(*testing.T, int, program, playing) *follower) {
	t.Helper()
	eachCase(t, func(t *testing.T, p program, c playing) {
		if playOptimized(t, p, c, returns, make) == 0 && p.prefix == "" && p.fixture != "gocgo" {
			t.Error("no call was followed in the target")
		}
	})
}

// TestCallsFollowedByUpcalls is TestFollowedCalls where the tracer runs the handlers of entries and
// of returns without stopping the threads.
func TestCallsFollowedByUpcalls(t *testing.T) {
	eachCase(t, func(t *testing.T, p program, c playing) {
		if playOptimized(t, p, c, kprobes.ReturnSites, newFollower) == 0 && p.prefix == "" && testprog.CallsTracer() {
			t.Error("no handler was called from the target")
		}
	})
}

// playOptimized has a case played with jumps at its entries and returns, and returns how many
// entries have one.
func playOptimized(t *testing.T, p program, c playing, returns kprobes.Returns, follow func(*testing.T, int, program, playing) *follower) (optimized int) {
	const rounds = 3
	target := p.start(t)
	want := play(target, c, rounds)
	s := attach(t, target.PID(), c, kprobes.Options{Returns: returns})
	f := follow(t, target.PID(), p, c)
	register(t, s, f)
	s.WaitForOptimizer(t.Context())
	for range 3 {
		if got := play(target, c, rounds); got != want {
			t.Errorf("followed it says %q, unprobed %q", got, want)
		}
		s.WaitForOptimizer(t.Context())
	}
	for _, rp := range f.probes {
		if st := s.Status(&rp.KP); st.Mechanism == kprobes.Optimized {
			optimized++
		} else {
			t.Logf("%s: %s", rp.KP.SymbolName, st.Reason)
		}
	}
	if last := target.Quit(); last != "right" && !strings.HasPrefix(last, "last") {
		t.Errorf("it ends with %q", last)
	}
	closeSession(t, s)
	f.wantCounts(p, c, 3*rounds)
	f.wantDurations()
	return optimized
}
