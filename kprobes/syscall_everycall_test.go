package kprobes_test

import (
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// endings has the calls that the program is in end, and tells what each returned.
func endings(prog *testprog.Prog, way string) (ends []string) {
	prog.Send(way)
	for line := prog.Line(); !strings.HasPrefix(line, "did"); line = prog.Line() {
		ends = append(ends, line)
	}
	return ends
}

// besiege attaches to the program, has libraries with probes come and go, and lets it go.
func besiege(t *testing.T, prog *testprog.Prog, m mode, lib string) {
	t.Helper()
	s := attach(t, prog.PID(), kprobes.Options{NoOptimize: m == stepped, Log: func(m string) { t.Logf("session warns: %s", m) }})
	plugged := m.probe("libplug.so:plugged")
	register(t, s, m.probe("foo"), &kprobes.Kprobe{SymbolName: "libc.so.6:abs"}, plugged)
	prog.Do("cycle 2 "+lib, "did")
	s.WaitForOptimizer(t.Context())
	closeSession(t, s)
	prog.CheckClean()
}

// TestNoCallIsEndedBySessions: sessions attach and detach, and libraries with probes come and go, while the program is in all calls that
// block, on everything that they block on. They end by what they wait for, and by a signal that has a handler, as they do alone.
func TestNoCallIsEndedBySessions(t *testing.T) {
	lib := testprog.Build(t, "libplug.so", "-shared", "-fPIC")
	for way, block := range map[string]string{"event": "block parts", "signal": "block"} {
		t.Run(way, func(t *testing.T) {
			alone, prog := start(t, "everycall"), start(t, "everycall")
			alone.Do(block, "did")
			want := endings(alone, way)
			prog.Do(block, "did")
			for range 2 {
				for _, m := range modes {
					besiege(t, prog, m, lib)
				}
			}
			s, _ := sessionWith(t, prog, "foo", kprobes.Options{})
			prog.Do("settle", "did")
			got := endings(prog, way)
			for i, line := range got {
				if i < len(want) && line != want[i] {
					t.Errorf("%q, unprobed %q", line, want[i])
				}
			}
			if len(got) != len(want) || len(got) < 200 {
				t.Errorf("%d calls have ended, unprobed %d", len(got), len(want))
			}
			closeSession(t, s)
			wantRight(t, prog)
			wantRight(t, alone)
		})
	}
}
