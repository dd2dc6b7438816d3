package kprobes_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// ownTraps are ways to begin to use SIGTRAP, each of which a program lives with alone.
var ownTraps = map[string]string{
	"handled":          "act handle, ask, raise, call, int3, raise, ask, int3, call",
	"handled without":  "act nodefer, call, raise, ask, int3, raise, call",
	"handled at once":  "act handle, call, call, raise, int3, raise",
	"handler replaced": "act handle, raise, call, act block, raise, call, int3, ask",
	"handler taken":    "act handle, raise, call, act default, call, ask, call, act handle, int3, call, raise",
	"ignored":          "act ignore, ask, call, raise, call, ask, raise, call",
	"ignored, handled": "act ignore, call, raise, act handle, raise, call, int3",
}

// ownMasks are others, where the program can see that a breakpoint has unblocked SIGTRAP, but has its signals when it would alone.
var ownMasks = map[string]string{
	"blocked":          "mask block, call, call, raise, call, act handle, mask unblock, call",
	"handled, blocked": "act handle, raise, mask block, call, raise, call, mask unblock, call, raise",
}

// ownTrapsDead are ways to use SIGTRAP that a killed tracer leaves as they are: before it comes, while it is there, after its death.
var ownTrapsDead = [][3]string{
	{"act handle, raise", "call, raise, int3", "call, int3, raise, call, raise"},
	{"act nodefer, int3", "call, raise", "call, int3, raise, call"},
	{"act block, raise", "call", "call, raise, call, int3"},
	{"act ignore, raise", "call, raise", "call, raise, call, raise"},
	{"call", "act handle, call, raise", "call, raise, int3, call"},
	{"act handle, raise", "act ignore, call, raise", "raise, call, raise"},
	{"act ignore, raise", "act handle, call, raise", "raise, call, int3"},
	{"act handle, raise", "act default, call, act handle", "raise, call, int3"},
}

// TestProgramsThatUseSIGTRAPOutliveTheirTracer: breakpoints that nobody waits for are not told to their handlers, nor end them, and all else is.
func TestProgramsThatUseSIGTRAPOutliveTheirTracer(t *testing.T) {
	for _, commands := range ownTrapsDead {
		t.Run(strings.Join(commands[:], "; "), func(t *testing.T) {
			alone := start(t, "owntraps")
			prog := start(t, "owntraps")
			compare := func(commands string) {
				if got, want := converse(prog, commands, true), converse(alone, commands, true); !slices.Equal(got, want) {
					t.Errorf("the program sees\n%s\nunprobed\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
			compare(commands[0])
			t.Setenv("GOKPROBE_REMOTE", "guard")
			kill := startTracer(t, prog.PID(), nil)
			compare(commands[1])
			kill()
			compare(commands[2])
			if done, err := kprobes.Recover(context.Background(), prog.PID()); err != nil || done.Regions == 0 {
				t.Errorf("recovered: %+v, %v", done, err)
			}
			compare(commands[2])
			compare("ask")
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

func converse(prog *testprog.Prog, commands string, whole bool) (answers []string) {
	for _, c := range strings.Split(commands, ", ") {
		answer := prog.Do(c, "did")
		if !whole {
			answer, _, _ = strings.Cut(answer, " blocked")
		}
		answers = append(answers, answer)
	}
	return answers
}

// TestProgramsThatBeginToUseSIGTRAPDoAsAlone: what they see is what they see unprobed.
func TestProgramsThatBeginToUseSIGTRAPDoAsAlone(t *testing.T) {
	for name, commands := range ownTraps {
		t.Run(name, func(t *testing.T) { doAsAlone(t, commands, true) })
	}
	for name, commands := range ownMasks {
		t.Run(name, func(t *testing.T) { doAsAlone(t, commands, false) })
	}
}

func doAsAlone(t *testing.T, commands string, whole bool) {
	alone := start(t, "owntraps")
	want := converse(alone, commands, whole)
	wantRight(t, alone)
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "owntraps")
			s := attach(t, prog.PID(), kprobes.Options{})
			register(t, s, m.probe("foo"))
			if got := converse(prog, commands, whole); !slices.Equal(got, want) {
				t.Errorf("the program sees\n%s\nunprobed\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

// randomTraps are commands that the program lives with alone. A handler has had a SIGTRAP before anything blocks the signal: before that
// nobody knows of it.
func randomTraps(r *rand.Rand, n int) (commands []string) {
	handled, ignored, blocked := false, false, false
	for len(commands) < n {
		switch k := r.IntN(10); {
		case k == 0 && !handled && !blocked:
			commands, ignored = append(commands, "act ignore"), true
		case k <= 2 && !blocked:
			kind := []string{"handle", "nodefer", "block"}[r.IntN(3)]
			commands, handled = append(commands, "act "+kind, "raise"), true
		case k == 6 && handled && !blocked && r.IntN(2) == 0:
			commands, handled, ignored = append(commands, "act default"), false, false
		case k == 3 && handled:
			commands = append(commands, "mask "+map[bool]string{true: "unblock", false: "block"}[blocked])
			blocked = !blocked
		case k == 4 && (handled || ignored):
			commands = append(commands, "raise")
		case k == 5 && handled && !blocked:
			commands = append(commands, "int3")
		default:
			commands = append(commands, "call")
		}
	}
	if blocked {
		commands = append(commands, "mask unblock")
	}
	return commands
}

// TestProgramsThatChangeMasksAndActionsAtRandomDoAsAlone: sessions, and probes in them, come and go meanwhile.
func TestProgramsThatChangeMasksAndActionsAtRandomDoAsAlone(t *testing.T) {
	rounds := testsize.Rounds(2, 6, 100)
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 5))
		commands := randomTraps(r, 40)
		alone := start(t, "owntraps")
		want := converse(alone, strings.Join(commands, ", "), false)
		wantRight(t, alone)
		prog := start(t, "owntraps")
		v := &visitor{t: t, pid: prog.PID(), rand: r}
		var got []string
		for _, c := range commands {
			v.next()
			got = append(got, converse(prog, c, false)...)
		}
		v.leave()
		v.leave()
		if !slices.Equal(got, want) {
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("seed %d, number %d of %q: the program sees\n%s\nunprobed\n%s", seed, i, commands, got[i], want[i])
					break
				}
			}
		}
		wantRight(t, prog)
	}
}

// visitor is a session with a process, or none, with a probe at foo, or none.
type visitor struct {
	t    *testing.T
	pid  int
	rand *rand.Rand
	s    *kprobes.Session
	kp   *kprobes.Kprobe
}

// next takes a step now and then: it attaches, arms, disarms, detaches.
func (v *visitor) next() {
	switch v.rand.IntN(5) {
	case 0:
		v.leave()
	case 1:
		if v.s == nil {
			v.s = attach(v.t, v.pid, kprobes.Options{})
		} else if v.kp == nil {
			v.kp = modes[v.rand.IntN(2)].probe("foo")
			register(v.t, v.s, v.kp)
		}
	}
}

func (v *visitor) leave() {
	switch {
	case v.kp != nil:
		ok(v.t, v.s.UnregisterKprobe(v.kp))
		v.kp = nil
	case v.s != nil:
		closeSession(v.t, v.s)
		v.s = nil
	}
}
