package kprobes_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
)

// TestDecisionsInAStormOfSignals: signals come to threads in bodies that decide, whose handlers call what they
// interrupt, and leave by siglongjmp. No decision is lost, or made twice.
func TestDecisionsInAStormOfSignals(t *testing.T) {
	const n, seed = 7, 13
	rounds := testsize.Rounds(400, 4000, 100_000)
	for _, flags := range [][]string{nil, {"-no-pie", "-fno-pie"}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			prog := testprog.Start(t, testprog.Build(t, "optstorm", flags...))
			s := attach(t, prog.PID(), kprobes.Options{})
			ran := make([]uint64, len(storming))
			var kps []*kprobes.Kprobe
			for i, f := range storming {
				kps = append(kps, deciding(t, f, oneOf(n, seed), counted(&ran[i])))
			}
			register(t, s, kps...)
			for _, kp := range kps {
				wantOptimized(t, s, kp)
			}
			before := s.Handled()
			did := prog.Do(fmt.Sprintf("storm %d", rounds), "did")
			stops, all := s.Handled()-before, uint64(0)
			for i, kp := range kps {
				wantDecided(t, kp, ran[i], n, seed)
				all += ran[i]
			}
			t.Logf("%s, %d hits, %d chosen, %d stops", did, kps[0].Hits(), all, stops)
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// slowly is c, behind conditions that are always met and take their time.
func slowly(c program.Cond) program.Cond {
	all := make([]program.Cond, 60)
	for i := range all {
		all[i] = program.Compare(program.Now(), program.NotEqual, program.Const(0))
	}
	return program.All(append(all, c)...)
}

// TestDecisionsUnderSignals: threads that are in a body nearly all the time, and that take 2000 signals a second,
// choose the hits that they would choose without. Those that a signal finds in the body are
// chosen on their way out, too.
func TestDecisionsUnderSignals(t *testing.T) {
	const threads, n, seed = 2, 20, 17
	for _, how := range []string{"optimized", "switched"} {
		t.Run(how, func(t *testing.T) {
			prog := start(t, "ticks", fmt.Sprint(threads))
			s := attach(t, prog.PID(), kprobes.Options{})
			var ran uint64
			kp := deciding(t, "foo", slowly(oneOf(n, seed)), counted(&ran))
			register(t, s, kp)
			wantOptimized(t, s, kp)
			prog.Send("go 20000")
			for on := false; how == "switched" && kp.State(0) < threads*15000; on = !on {
				ok(t, s.SetOptimization(on))
				s.WaitForOptimizer(t.Context())
			}
			went := prog.Expect("went")
			wantHits(t, kp, number(t, went, "went"))
			wantDecided(t, kp, ran, n, seed)
			t.Logf("%s, %d chosen", went, ran)
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestChosenHitsAreDivertedUnderSignals: handlers of hits that signals have found in the body return from the function
// at once, have their thread wait, or call a function.
func TestChosenHitsAreDivertedUnderSignals(t *testing.T) {
	const n, seed = 20, 23
	prog := start(t, "ticks", "2")
	s := attach(t, prog.PID(), kprobes.Options{})
	foo := symbol(t, s, "foo")
	var ran, calls uint64
	kp := deciding(t, "foo", slowly(oneOf(n, seed)), func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		v, _ := r.Arg(0)
		switch ran++; ran % 3 {
		case 0:
			ok(t, r.ReturnNow(3*v+1))
			return 1
		case 1:
			r.Delay(50 * time.Microsecond)
		case 2:
			calls++
			wantCall(t, r, 16, foo, 5)
		}
		return 0
	})
	register(t, s, kp)
	wantOptimized(t, s, kp)
	went := prog.Do("go 8000", "went")
	if all := number(t, went, "went") + calls; kp.Hits()+kp.NMissed() != all { // in what is called, signals' handlers hit as well
		t.Errorf("%d hits and %d missed of %d", kp.Hits(), kp.NMissed(), all)
	}
	if want := uint64(len(chosenOf(kp.State(0), n, seed))); kp.State(0) != kp.Hits() || ran != want || kp.NMissed() < calls {
		t.Errorf("%d decisions, %d hits, %d missed; the handler ran %d times, want %d", kp.State(0), kp.Hits(), kp.NMissed(), ran, want)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestSessionsEndUnderDecisionsAndSignals: threads are taken out of bodies and from where they were chosen.
func TestSessionsEndUnderDecisionsAndSignals(t *testing.T) {
	rounds := testsize.Rounds(3, 15, 500)
	const n, seed = 4, 29
	prog := start(t, "ticks", "3")
	prog.Send("go 100000")
	for range rounds {
		s := attach(t, prog.PID(), kprobes.Options{})
		var ran uint64
		kp := deciding(t, "foo", slowly(oneOf(n, seed)), counted(&ran))
		register(t, s, kp)
		s.WaitForOptimizer(t.Context())
		closeSession(t, s)
		wantDecided(t, kp, ran, n, seed)
	}
	prog.Expect("went")
	prog.CheckClean()
	wantRight(t, prog)
}

// TestChosenHitsAnywhere: for every instruction of functions that are entered in every way the chosen hits do
// what the others do, and all results are right.
func TestChosenHitsAnywhere(t *testing.T) {
	prog := start(t, "regions", "2")
	s := attach(t, prog.PID(), kprobes.Options{})
	var all []arch.Addr
	for _, name := range functions(prog) {
		all = append(all, instructions(t, s, prog, name)...)
	}
	optimized := 0
	for _, at := range all {
		var ran uint64
		kp := deciding(t, "", oneOf(2, uint64(at)), counted(&ran))
		kp.Addr = at
		register(t, s, kp)
		if s.WaitForOptimizer(t.Context()); jumps(s, kp) {
			optimized++
		}
		prog.Do("go 3", "went")
		wantDecided(t, kp, ran, 2, uint64(at))
		ok(t, s.UnregisterKprobe(kp))
	}
	if optimized < 100 {
		t.Errorf("%d instructions were optimized", optimized)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestChosenInAProgramThatStepsItself sees what it sees without probes.
func TestChosenInAProgramThatStepsItself(t *testing.T) {
	prog := start(t, "traceflag")
	want := record(prog)
	s := attach(t, prog.PID(), kprobes.Options{})
	optimized := 0
	for _, at := range instructions(t, s, prog, "tf_block") {
		var ran uint64
		kp := deciding(t, "", program.Cond{}, counted(&ran))
		kp.Addr = at
		if s.RegisterKprobe(kp) != nil {
			continue
		}
		if s.WaitForOptimizer(t.Context()); jumps(s, kp) {
			optimized++
			compareSteps(t, record(prog), want)
		}
		if ran != kp.Hits() {
			t.Errorf("%s: %d hits, the handler ran %d times", s.Status(kp).Symbol, kp.Hits(), ran)
		}
		ok(t, s.UnregisterKprobe(kp))
	}
	if optimized < 50 {
		t.Errorf("%d instructions were optimized", optimized)
	}
	closeSession(t, s)
	compareSteps(t, record(prog), want)
	wantRight(t, prog)
}

// TestDecisionsWithoutStack: where the stack has no room for the body, the tracer decides.
func TestDecisionsWithoutStack(t *testing.T) {
	const n, seed, calls = 4, 2, 640
	prog := testprog.Start(t, testprog.Build(t, "optstorm"))
	s := attach(t, prog.PID(), kprobes.Options{})
	var ran uint64
	kp := deciding(t, "s_ret", oneOf(n, seed), counted(&ran))
	register(t, s, kp)
	wantOptimized(t, s, kp)
	prog.Do(fmt.Sprintf("edge %d", calls), "did")
	wantHits(t, kp, calls)
	wantDecided(t, kp, ran, n, seed)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestStateIsReadWhileItIsUsed, and while its probe comes and goes.
func TestStateIsReadWhileItIsUsed(t *testing.T) {
	prog := start(t, "threads", "2")
	s := attach(t, prog.PID(), kprobes.Options{})
	var ran uint64
	kp := deciding(t, "foo", oneOf(1000, 1), counted(&ran))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = kp.State(0), kp.State(5)
			}
		}
	})
	prog.Send("start")
	for range 20 {
		kp.Addr, kp.Flags = 0, 0
		register(t, s, kp)
		s.WaitForOptimizer(t.Context())
		ok(t, s.UnregisterKprobe(kp))
	}
	close(stop)
	wg.Wait()
	prog.Do("stop", "calls")
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestDecidingTracer is not a test but the process that TestDecisionsOfAKilledTracer kills: in a handler that does
// not return if GOKPROBE_DECIDE is "stuck", else while hits are chosen all the time.
func TestDecidingTracer(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("GOKPROBE_TRACE"))
	if err != nil {
		return
	}
	s, err := kprobes.Attach(context.Background(), pid, kprobes.Options{Log: func(m string) { fmt.Fprintln(os.Stderr, "tracer:", m) }})
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	kp := deciding(t, "foo", oneOf(2, 1), func(*kprobes.Kprobe, *kprobes.Regs) int {
		if ran++; ran != 100 {
			return 0
		}
		fmt.Println("chosen")
		if os.Getenv("GOKPROBE_DECIDE") == "stuck" {
			select {}
		}
		return 0
	})
	if err := s.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	s.WaitForOptimizer(t.Context())
	fmt.Println(s.Status(kp).Mechanism)
	<-s.Done()
}

// TestDecisionsOfAKilledTracer: chosen threads go on as if there were no probe, those that are stopped and
// those that are chosen when nobody is there any more, and the code can be put back.
func TestDecisionsOfAKilledTracer(t *testing.T) {
	for i := range 6 {
		mode := []string{"stuck", "going"}[i%2]
		t.Run(fmt.Sprint(i, mode), func(t *testing.T) {
			prog := start(t, "threads", "3")
			kill, said := tracerToKill(t, prog, "TestDecidingTracer", "GOKPROBE_DECIDE="+mode)
			prog.Send("start")
			said("chosen")
			<-time.After(time.Duration(i) * time.Millisecond)
			kill()
			prog.Do("stop", "calls")
			prog.Do("go 200", "went")
			if i > 2 { // threads are found inside
				prog.Send("start")
			}
			if done, err := kprobes.Recover(context.Background(), prog.PID()); err != nil || done.Kept > 0 {
				t.Errorf("recover: %+v, %v", done, err)
			}
			if i > 2 {
				prog.Do("stop", "calls")
			}
			prog.Do("go 1000", "went")
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}
