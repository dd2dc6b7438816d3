package kprobes_test

import (
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestWhatHandlersOfCallsCallIsMissed (B33, C3) and missed.c of tools/testing/selftests/bpf (I29): the
// handlers of a Kretprobe call functions that are probed, the one that they follow too. Each hit
// is a miss of that entry's Kprobe; the calls that a Kretprobe could not follow are another count.
func TestWhatHandlersOfCallsCallIsMissed(t *testing.T) {
	for _, opts := range []kprobes.Options{{}, {NoBoost: true}} {
		prog := start(t, "prey")
		s := attach(t, prog.PID(), opts)
		target, target2 := symbol(t, s, "target"), symbol(t, s, "target2")
		calls := func(_ *kprobes.KretprobeInstance, r *kprobes.Regs) int {
			wantCall(t, r, 5, target, 15)
			wantCall(t, r, 6, target2, 15)
			return 0
		}
		rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "target"}, EntryHandler: calls, Handler: calls}
		kp := boosted.probe("target2")
		other := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "target2"}}
		register(t, s, kp)
		registerReturns(t, s, rp, other)
		const rounds = 3
		for range rounds {
			wantSays(t, prog, "call target 30", "ret 10")
		}
		wantEntries(t, rp, rounds, 2*rounds)
		wantEntries(t, other, 0, 2*rounds)
		wantHits(t, kp, 0)
		if kp.NMissed() != 2*rounds {
			t.Errorf("target2: %d hits are missed, want %d", kp.NMissed(), 2*rounds)
		}
		closeSession(t, s)
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// wantEntries: of the entries that were hit some were missed; all others have returned.
func wantEntries(t *testing.T, rp *kprobes.Kretprobe, followed, missed uint64) {
	t.Helper()
	if rp.KP.Hits() != followed || rp.Hits() != followed || rp.KP.NMissed() != missed || rp.NMissed() != 0 {
		t.Errorf("%s: %d entries, %d missed, %d returns, %d not followed; want %d, %d, %d, 0", rp.KP.SymbolName,
			rp.KP.Hits(), rp.KP.NMissed(), rp.Hits(), rp.NMissed(), followed, missed, followed)
	}
}
