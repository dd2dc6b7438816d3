package kprobes_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestEveryInstructionAtOnce: probes on all instructions of functions that signals interrupt; those
// that can be have jumps.
func TestEveryInstructionAtOnce(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "optstorm"))
	s := attach(t, prog.PID(), kprobes.Options{})
	var all []arch.Addr
	for _, f := range storming {
		all = append(all, instructions(t, s, prog, f)...)
	}
	kps, optimized := optimizedAt(t, s, all)
	t.Logf("%d probes, %d optimized", len(kps), optimized)
	if prog.Do("storm 400", "did"); kps[0].Hits() < 1600 {
		t.Errorf("%d hits", kps[0].Hits())
	}
	prog.Do("forks 10", "did")
	ok(t, s.UnregisterKprobes(kps))
	prog.Do("forks 4", "did")
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestEverybodyChangesProbes: goroutines and a handler register, disable, turn optimization off, disarm;
// then the session ends among them.
func TestEverybodyChangesProbes(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "optstorm"))
	s := attach(t, prog.PID(), kprobes.Options{})
	changed := counting("s_one")
	n := 0
	inHandler := &kprobes.Kprobe{SymbolName: "s_jump", PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int {
		switch n++; n % 50 {
		case 0:
			changed.Addr, changed.Flags = 0, 0
			if err := s.RegisterKprobe(changed); err != nil && !errors.Is(err, kprobes.ErrClosed) {
				t.Errorf("register in a handler: %v", err)
			}
		case 25:
			_ = s.UnregisterKprobe(changed)
		}
		return 0
	}}
	register(t, s, inHandler)
	prog.Send("storm 60000")
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			kp := counting(storming[g])
			for i := range 60 {
				var err error
				switch i % 6 {
				case 0:
					kp.Addr, kp.Flags = 0, 0
					err = s.RegisterKprobe(kp)
				case 1:
					s.WaitForOptimizer(t.Context())
				case 2:
					err = s.DisableKprobe(kp)
				case 3:
					err = s.EnableKprobe(kp)
				case 4:
					switch g {
					case 0:
						err = errors.Join(s.DisarmAll(), s.ArmAll())
					case 1:
						err = errors.Join(s.SetOptimization(false), s.SetOptimization(true))
					}
				case 5:
					err = s.UnregisterKprobe(kp)
				}
				if err != nil {
					t.Errorf("step %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	register(t, s, counting("s_push"))
	closeSession(t, s)
	prog.Expect("did")
	prog.CheckClean()
	wantRight(t, prog)
}
