package returns

import (
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
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

// TestCountedCalls is TestFollowedCalls for calls that are only counted: in C, most of them by
// the target. The numbers are the same.
func TestCountedCalls(t *testing.T) {
	const rounds = 3
	eachCase(t, func(t *testing.T, p program, c playing) {
		prog := p.start(t)
		want := play(prog, c, rounds)
		s := attach(t, prog.PID(), c, kprobes.Options{})
		f := newCounter(t, prog.PID(), p, c)
		register(t, s, f)
		s.WaitForOptimizer()
		for range 3 {
			if got := play(prog, c, rounds); got != want {
				t.Errorf("followed it says %q, unprobed %q", got, want)
			}
			s.WaitForOptimizer()
		}
		optimized := 0
		for _, rp := range f.probes {
			if s.Status(&rp.KP).Mechanism == "optimized" {
				optimized++
			} else if p.prefix == "" && p.fixture != "gocgo" {
				t.Logf("%s: %s", rp.KP.SymbolName, s.Status(&rp.KP).Reason)
			}
		}
		if last := prog.Quit(); last != "right" && !strings.HasPrefix(last, "last") {
			t.Errorf("it ends with %q", last)
		}
		closeSession(t, s)
		f.wantCounts(p, c, 3*rounds)
		if optimized == 0 && p.prefix == "" && p.fixture != "gocgo" {
			t.Error("no call was followed in the target")
		}
	})
}
