package kprobes_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// ownTraps are ways to begin to use SIGTRAP, each of which a program lives with alone.
var ownTraps = map[string]string{
	"handled":          "act handle, ask, raise, call, int3, raise, ask, int3, call",
	"handled without":  "act nodefer, call, raise, ask, int3, raise, call",
	"handled at once":  "act handle, call, call, raise, int3, raise",
	"handler replaced": "act handle, raise, call, act block, raise, call, int3, ask",
	"handler taken":    "act handle, raise, call, act default, call, ask, call, act handle, int3, call, raise",
}

func converse(prog *testprog.Prog, commands string) (answers []string) {
	for _, c := range strings.Split(commands, ", ") {
		answers = append(answers, prog.Do(c, "did"))
	}
	return answers
}

// TestProgramsThatBeginToUseSIGTRAPDoAsAlone: what they see is what they see unprobed.
func TestProgramsThatBeginToUseSIGTRAPDoAsAlone(t *testing.T) {
	for name, commands := range ownTraps {
		alone := start(t, "owntraps")
		want := converse(alone, commands)
		wantRight(t, alone)
		for _, m := range modes {
			t.Run(name+"/"+string(m), func(t *testing.T) {
				prog := start(t, "owntraps")
				s := attach(t, prog.PID(), kprobes.Options{})
				register(t, s, m.probe("foo"))
				if got := converse(prog, commands); !slices.Equal(got, want) {
					t.Errorf("the program sees\n%s\nunprobed\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				closeSession(t, s)
				wantRight(t, prog)
			})
		}
	}
}
