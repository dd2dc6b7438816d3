package kprobes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestUprobesThatComeAndGo: six threads have uprobes come and go at random at the functions of a program, at their first instructions and behind what
// jumps cover or, in every other round, at all others, while it runs them in four threads, and sessions attach, probe, have breakpoints become jumps, and
// leave. (What is left open is in SECURITY.md.) The program judges its own results; its text is the file's in the end. The seed is in the output.
func TestUprobesThatComeAndGo(t *testing.T) {
	testprog.NeedUprobes(t)
	rounds := testsize.Rounds(2, 6, 200)
	seed := testprog.Seed(t, 13)
	bin := ownCopy(t, "optstorm")
	for i := range rounds {
		t.Run(fmt.Sprint(i), func(t *testing.T) { amongUprobes(t, testprog.Start(t, bin), seed+uint64(i), i%2 == 1) })
	}
}

// TestTracersAreKilledBesideUprobes that come and go: what stood there first may have gone when the guardian, or the next recovery, puts the code back. Nothing is
// left, and the program is right.
func TestTracersAreKilledBesideUprobes(t *testing.T) {
	testprog.NeedUprobes(t)
	rounds := testsize.Rounds(2, 6, 200)
	seed := testprog.Seed(t, 17)
	bin := ownCopy(t, "optstorm")
	for i := range rounds {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			prog, r := testprog.Start(t, bin), rand.New(rand.NewPCG(seed, uint64(i)))
			storm := testprog.StormOfUprobes(prog.PID(), seed+uint64(i), placesAround(t, prog.PID(), stormed, i%2 == 1), false)
			prog.Send(fmt.Sprintf("storm %d", 2+r.IntN(10)))
			g := startGuarded(t, prog.PID(), "GOKPROBE_SYMBOLS="+strings.Join(stormed, " "))
			g.guardian(0)
			g.ask("armed")
			prog.Expect("did")
			prog.Do(fmt.Sprintf("storm %d", 1+r.IntN(10)), "did")
			g.kill()
			prog.Do("forks 2", "did") // a signal's handler may see where we had it go, until the code is back
			storm.Stop()
			recovered(t, prog.PID())
			prog.Do("storm 2", "did")
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

var stormed = []string{"s_ret", "s_push", "s_one", "s_call", "s_loop", "s_jump"}

func amongUprobes(t *testing.T, prog *testprog.Prog, seed uint64, inside bool) {
	r := rand.New(rand.NewPCG(seed, 1))
	storm := testprog.StormOfUprobes(prog.PID(), seed, placesAround(t, prog.PID(), stormed, inside), false)
	var disturbed uint64
	for range 1 + r.IntN(3) {
		prog.Send(fmt.Sprintf("storm %d", 2+r.IntN(30)))
		opts := kprobes.Options{NoOptimize: r.IntN(4) == 0, NoBoost: r.IntN(6) == 0}
		s, err := kprobes.Attach(context.Background(), prog.PID(), opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range stormed {
			probeAtRandom(t, s, r, f)
		}
		s.WaitForOptimizer(t.Context())
		prog.Expect("did")
		for range 2 + r.IntN(6) {
			prog.Do(fmt.Sprintf("storm %d", 1+r.IntN(10)), "did")
			if r.IntN(2) == 0 {
				_ = s.SetOptimization(r.IntN(3) > 0)
			}
		}
		disturbed += s.Disturbances()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		prog.Do("storm 2", "did")
	}
	came := storm.Stop()
	t.Logf("%d uprobes came, %d patches were disturbed", came, disturbed)
	prog.Do("storm 2", "did")
	prog.CheckClean()
	if last := prog.Quit(); last != "right" {
		t.Errorf("the program says %q", last)
	}
}

// probeAtRandom puts a probe of some kind on a function, or none.
func probeAtRandom(t *testing.T, s *kprobes.Session, r *rand.Rand, function string) {
	t.Helper()
	var err error
	switch r.IntN(5) {
	case 0, 1:
		err = s.RegisterKprobe(&kprobes.Kprobe{SymbolName: function})
	case 2:
		err = s.RegisterKprobe(&kprobes.Kprobe{SymbolName: function, PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }})
	case 3:
		rp := &kprobes.Kretprobe{}
		rp.KP.SymbolName = function
		err = s.RegisterKretprobe(rp)
	}
	if err != nil {
		t.Errorf("%s: %v", function, err)
	}
}
