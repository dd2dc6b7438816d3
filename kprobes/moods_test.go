package kprobes_test

import (
	"math/rand"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestProgramsThatChangeWhatTheyAre: while it is probed in all ways, a program changes at random moments what the kernel lets us do
// to it, or what its registers hold; and judges its own results.
func TestProgramsThatChangeWhatTheyAre(t *testing.T) {
	for _, m := range []struct{ moods, threads string }{
		{"d", "2"}, {"gfs", "2"}, {"n", "2"}, {"c", "2"}, {"u", "2"}, {"U", "0"}, {"U", "2"}, {"dgfsncuU", "2"},
	} {
		t.Run(m.moods+m.threads, func(t *testing.T) { moody(t, m.moods, m.threads) })
	}
}

func moody(t *testing.T, moods, threads string) {
	attaches := 4
	if torture() {
		attaches = 100
	}
	rng := rand.New(rand.NewSource(7))
	prog := start(t, "moods", strconv.Itoa(rng.Intn(1<<20)), threads, moods)
	for i := range attaches {
		moodyRound(t, prog, rng, i, strings.Contains(moods, "x"))
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
	prog.Do("show", "shown")
	prog.CheckClean()
	prog.Do("go", "going")
	wantRight(t, prog)
}

func moodyRound(t *testing.T, prog *testprog.Prog, rng *rand.Rand, i int, executes bool) {
	s, err := kprobes.Attach(prog.PID(), kprobes.Options{
		NoOptimize: rng.Intn(3) == 0, NoBoost: rng.Intn(3) == 0, Follow: rng.Intn(2) == 0,
		Log: func(m string) { t.Logf("session warns: %s", m) },
	})
	if err != nil {
		t.Errorf("attach: %v", err)
		return
	}
	defer closeSession(t, s)
	nothing := func(*kprobes.KretprobeInstance, *kprobes.Regs) int { return 0 }
	registers := []func() error{
		func() error { return s.RegisterKprobe(modes[i%2].probe("foo")) },
		func() error { return s.RegisterKprobe(modes[rng.Intn(2)].probe("quiet")) },
		func() error { return s.RegisterKprobe(modes[rng.Intn(2)].probe("quiet+0x5")) }, // the call
		func() error { return s.RegisterKprobe(modes[rng.Intn(2)].probe("inner")) },
		func() error { return s.RegisterKprobe(&kprobes.Kprobe{SymbolName: "check"}) },
		func() error {
			return s.RegisterKretprobe(&kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "deep"}, Handler: nothing})
		},
		func() error {
			return s.RegisterKretprobe(&kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "writes"}})
		},
	}
	for _, register := range registers {
		if err := register(); err != nil && !executes { // it may have executed itself just then
			t.Errorf("register: %v", err)
		}
	}
	for began := rounds(t, prog); rounds(t, prog) < began+uint64(rng.Intn(20)); {
	}
}
