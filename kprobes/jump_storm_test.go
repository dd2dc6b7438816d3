package kprobes_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// optimizedAt registers probes without handlers, some of which get jumps.
func optimizedAt(t testing.TB, s *kprobes.Session, all []arch.Addr) (kps []*kprobes.Kprobe, optimized int) {
	t.Helper()
	for _, at := range all {
		kp := &kprobes.Kprobe{Addr: at}
		if err := s.RegisterKprobe(kp); err == nil {
			kps = append(kps, kp)
		}
	}
	s.WaitForOptimizer(t.Context())
	for _, kp := range kps {
		if jumps(s, kp) {
			optimized++
		}
	}
	return kps, optimized
}

// TestOptimizedProgramThatStepsItself: what TestProgramThatStepsItself does, with jumps.
func TestOptimizedProgramThatStepsItself(t *testing.T) {
	prog := start(t, "traceflag")
	want := record(prog)
	s := attach(t, prog.PID(), kprobes.Options{})
	optimized := 0
	for _, at := range instructions(t, s, prog, "tf_block") {
		kps, n := optimizedAt(t, s, []arch.Addr{at})
		if optimized += n; n > 0 {
			t.Run(s.Status(kps[0]).Symbol, func(t *testing.T) { compareSteps(t, record(prog), want) })
		}
		ok(t, s.UnregisterKprobes(kps))
	}
	if optimized < 50 {
		t.Errorf("%d instructions were optimized", optimized)
	}
	closeSession(t, s)
	compareSteps(t, record(prog), want)
	wantRight(t, prog)
}

// TestCountsBeginAnew: a probe that is registered again has no hits of before, whatever its jump
// has counted.
func TestCountsBeginAnew(t *testing.T) {
	prog := start(t, "threads", "2")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := counting("foo")
	for range 3 {
		kp.Addr, kp.Flags = 0, 0
		register(t, s, kp)
		wantOptimized(t, s, kp)
		prog.Do("go 50", "went")
		wantHits(t, kp, 100)
		ok(t, s.SetOptimization(false))
		prog.Do("go 50", "went")
		wantHits(t, kp, 200)
		ok(t, s.UnregisterKprobe(kp))
		ok(t, s.SetOptimization(true))
		wantHits(t, kp, 200)
	}
	closeSession(t, s)
	wantHits(t, kp, 200)
	wantRight(t, prog)
}

// TestChildrenOfAnOptimizedProgram: every child computes what it must, with and without Follow.
func TestChildrenOfAnOptimizedProgram(t *testing.T) {
	for _, follow := range []bool{false, true} {
		t.Run(fmt.Sprintf("follow=%v", follow), func(t *testing.T) {
			prog := start(t, "forker")
			s := attach(t, prog.PID(), kprobes.Options{Follow: follow})
			kp := counting("foo")
			register(t, s, kp)
			wantOptimized(t, s, kp)
			prog.Do("run 20", "ran")
			if n := kp.Hits(); n < 40 || follow && n < 60 {
				t.Errorf("%d hits", n)
			}
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

var storming = []string{"s_ret", "s_push", "s_one", "s_call", "s_loop", "s_jump"}

// stormy starts the fixture with all its functions optimized.
func stormy(t *testing.T, o kprobes.Options, flags ...string) (*testprog.Prog, *kprobes.Session, []*kprobes.Kprobe) {
	t.Helper()
	prog := testprog.Start(t, testprog.Build(t, "optstorm", flags...))
	s := attach(t, prog.PID(), o)
	var kps []*kprobes.Kprobe
	for _, f := range storming {
		kps = append(kps, counting(f))
	}
	register(t, s, kps...)
	for _, kp := range kps {
		wantOptimized(t, s, kp)
	}
	return prog, s, kps
}

// TestNoStackForABody: a body's pushes fault at the end of the stack. The hits are counted, and what the
// program does with SIGSEGV stays as it was.
func TestNoStackForABody(t *testing.T) {
	for _, how := range []string{"none", "blocked", "ignored", "caught"} {
		t.Run(how, func(t *testing.T) {
			prog, s, kps := stormy(t, kprobes.Options{})
			if how != "none" {
				prog.Do(how+" 1 11", "did")
			}
			prog.Do("edge 640", "did")
			n := uint64(640)
			if how != "none" {
				n += 1
			}
			wantHits(t, kps[0], n)
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

// TestHeadsKeepSignals: what the program does with the signal that an inner head raises stays as it was,
// also if it began after the jump was written. No jump of the program that lies low has a
// breakpoint for a head.
func TestHeadsKeepSignals(t *testing.T) {
	const jumps = 10
	flags := map[unix.Signal][]string{unix.SIGILL: {"-no-pie", "-fno-pie"}, unix.SIGTRAP: nil}
	for sig := range flags {
		for _, how := range []string{"blocked", "ignored", "caught", "handled"} {
			for _, late := range []bool{false, sig == unix.SIGILL} {
				t.Run(fmt.Sprintf("%s/%s/late=%v", unix.SignalName(sig), how, late), func(t *testing.T) {
					prog := testprog.Start(t, testprog.Build(t, "optstorm", flags[sig]...))
					keep := fmt.Sprintf("keep %s %d", how, sig)
					if !late {
						prog.Do(keep, "did")
					}
					s := attach(t, prog.PID(), kprobes.Options{})
					kp := counting("s_ret")
					register(t, s, kp)
					wantOptimized(t, s, kp)
					if head := text(t, prog.PID(), kp, 5)[4]; (head == 0xcc) != (sig == unix.SIGTRAP) {
						t.Errorf("the head's byte is %#x", head)
					}
					if late {
						prog.Do(keep, "did")
						register(t, s, counting("s_push"))
						s.WaitForOptimizer(t.Context())
					}
					prog.Do(fmt.Sprintf("heads %d", jumps), "did")
					prog.Do(fmt.Sprintf("heads %d", jumps), "did")
					wantHits(t, kp, 0)
					closeSession(t, s)
					prog.CheckClean()
					wantRight(t, prog)
				})
			}
		}
	}
}

// TestFaultsOfDisplacedOperands: where a displaced instruction's operand relative to rip faults, the
// program sees the registers that it had, though the instruction would have written one; retried, it
// is one more hit (B11).
func TestFaultsOfDisplacedOperands(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "optstorm"))
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := counting("s_glob")
	register(t, s, kp)
	wantOptimized(t, s, kp)
	prog.Do("guarded 50", "did")
	wantHits(t, kp, 100)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestEndsAtTheBrink: the session ends while a body's fault is on its way.
func TestEndsAtTheBrink(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "optstorm"))
	prog.Send("brink")
	for range 40 {
		s := attach(t, prog.PID(), kprobes.Options{})
		kp := counting("s_ret")
		register(t, s, kp)
		s.WaitForOptimizer(t.Context())
		closeSession(t, s)
	}
	prog.Do("hello", "did")
	prog.Expect("did")
	wantRight(t, prog)
}

// TestStormInDetours: signals come to threads in detours and see no address there; handlers call what
// they interrupt, and leave by siglongjmp.
func TestStormInDetours(t *testing.T) {
	for _, flags := range [][]string{nil, {"-no-pie", "-fno-pie"}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			prog, s, kps := stormy(t, kprobes.Options{}, flags...)
			did := prog.Do("storm 300000", "did")
			t.Logf("%s, %d hits", did, kps[0].Hits())
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestForksInDetours: children of programs whose jumps have trapping heads compute what they must.
func TestForksInDetours(t *testing.T) {
	for _, flags := range [][]string{nil, {"-no-pie", "-fno-pie"}} {
		for _, follow := range []bool{false, true} {
			t.Run(fmt.Sprint(flags, follow), func(t *testing.T) {
				prog, s, kps := stormy(t, kprobes.Options{Follow: follow}, flags...)
				prog.Do("forks 30", "did")
				if n := kps[0].Hits(); n < 90 || follow && n != 180 {
					t.Errorf("%d hits", n)
				}
				closeSession(t, s)
				prog.CheckClean()
				wantRight(t, prog)
			})
		}
	}
}
