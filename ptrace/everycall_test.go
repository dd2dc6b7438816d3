package ptrace

import (
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// endings has the calls that the program is in end, and tells what each returned.
func endings(prog *testprog.Prog, way string) (ends []string) {
	prog.Send(way)
	for line := prog.Line(); !strings.HasPrefix(line, "did"); line = prog.Line() {
		ends = append(ends, line)
	}
	return ends
}

// compareEndings names each call that has not ended as it does without us.
func compareEndings(t *testing.T, way string, got, want []string) {
	t.Helper()
	for i, line := range got {
		if i < len(want) && line != want[i] {
			t.Errorf("%s: %q, unprobed %q", way, line, want[i])
		}
	}
	if len(got) != len(want) || len(got) < 200 {
		t.Errorf("%s: %d calls have ended, unprobed %d", way, len(got), len(want))
	}
}

// TestNoCallIsEndedByAStop: all calls that block, on everything that they block on, are stopped again and again. They end by
// what they wait for, and by a signal that has a handler, as they do alone.
func TestNoCallIsEndedByAStop(t *testing.T) {
	const stops = 8
	for _, way := range []string{"event", "signal", "restart"} {
		t.Run(way, func(t *testing.T) {
			bin := testprog.Build(t, "everycall")
			alone, prog := testprog.Start(t, bin), testprog.Start(t, bin)
			block := "block"
			if way == "event" {
				block = "block parts" // what a signal makes of a part depends on the moment
			}
			alone.Do(block, "did")
			want := endings(alone, way)
			prog.Do(block, "did")
			tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
			defer tr.Close()
			for range stops {
				whileHeld(t, tr, func() {}, func() error { return p.Space.Freeze(func(*Frozen) error { return nil }) })
			}
			prog.Do("settle", "did")
			compareEndings(t, way, endings(prog, way), want)
			end := stopAllAlong(t, tr, p)
			prog.Do("long 3", "did 3")
			end()
			whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
			prog.CheckClean()
			for _, prog := range []*testprog.Prog{alone, prog} {
				if got := prog.Quit(); got != "right" {
					t.Errorf("the program says %q, want right", got)
				}
			}
		})
	}
}
