package kprobes_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
)

// oneOf is the condition that about one of n evaluations meets, by chance, and rare which of the first
// evaluations those are.
func oneOf(n, seed uint64) program.Cond {
	return program.Compare(program.Sequence(0).Mixed(seed), program.Below, program.Const(int64(math.MaxUint64/n)))
}

func chosenOf(evaluated, n, seed uint64) (list []uint64) {
	for i := range evaluated {
		if mix(seed, i) < math.MaxUint64/n {
			list = append(list, i)
		}
	}
	return list
}

// mix is splitmix64's output function.
func mix(seed, n uint64) uint64 {
	z := seed + (n+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// deciding is a probe whose handler runs for hits that meet c.
func deciding(t testing.TB, symbol string, c program.Cond, handler kprobes.PreHandler) *kprobes.Kprobe {
	t.Helper()
	p, err := program.Decision(symbol, []string{"rdi", "rsp"}, c)
	ok(t, err)
	return &kprobes.Kprobe{SymbolName: symbol, Program: p, PreHandler: handler}
}

// counted counts the runs of a handler.
func counted(n *uint64) kprobes.PreHandler {
	return func(*kprobes.Kprobe, *kprobes.Regs) int { *n++; return 0 }
}

// wantDecided checks that a probe of one in n hits has had as many as decisions, and that its handler has run as
// often as these say; not being run since the session ended counts as missed.
func wantDecided(t testing.TB, kp *kprobes.Kprobe, ran, n, seed uint64) {
	t.Helper()
	decisions := kp.State(0)
	if got := kp.Hits() + kp.NMissed(); got != decisions {
		t.Errorf("%s: %d hits and %d missed, %d decisions", kp.SymbolName, kp.Hits(), kp.NMissed(), decisions)
	}
	if want := uint64(len(chosenOf(decisions, n, seed))); ran+kp.NMissed() != want {
		t.Errorf("%s: the handler ran %d times, missed %d, of %d decisions: want %d", kp.SymbolName, ran, kp.NMissed(), decisions, want)
	}
}

// TestDecisionsAreExact: one in 1000 of all threads' hits is chosen, and those stop that are.
func TestDecisionsAreExact(t *testing.T) {
	const threads, n, seed = 8, 1000, 7
	for _, mechanism := range []string{"optimized", "boosted"} {
		t.Run(mechanism, func(t *testing.T) {
			calls := uint64(200_000)
			opts := kprobes.Options{}
			if mechanism == "boosted" {
				opts.NoOptimize, calls = true, 5000
			}
			prog := start(t, "threads", fmt.Sprint(threads))
			s := attach(t, prog.PID(), opts)
			var ran uint64
			kp := deciding(t, "foo", oneOf(n, seed), counted(&ran))
			register(t, s, kp)
			if mechanism == "optimized" {
				wantOptimized(t, s, kp)
			}
			before := s.Handled()
			prog.Do(fmt.Sprintf("go %d", calls), "went")
			wantHits(t, kp, threads*calls)
			wantDecided(t, kp, ran, n, seed)
			stops := s.Handled() - before
			if mechanism == "optimized" && stops != ran && keepsJump(s, kp) || stops < ran || ran == 0 {
				t.Errorf("%d stops for %d chosen hits", stops, ran)
			}
			if got := kp.State(0); got != threads*calls {
				t.Errorf("%d decisions", got)
			}
			closeSession(t, s)
			wantHits(t, kp, threads*calls)
			wantDecided(t, kp, ran, n, seed)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestDecisionsAreTheSameEitherWay: the same hits are chosen by target and tracer, and while the site
// changes between them.
func TestDecisionsAreTheSameEitherWay(t *testing.T) {
	const calls, n, seed = 3000, 20, 3
	want := chosenOf(calls, n, seed)
	for _, how := range []string{"optimized", "boosted", "stepped", "upcall", "switched", "disabled"} {
		t.Run(how, func(t *testing.T) {
			prog := start(t, "threads", "1")
			s := attach(t, prog.PID(), kprobes.Options{NoOptimize: how == "boosted"})
			var got, args []uint64
			kp := deciding(t, "foo", oneOf(n, seed), func(kp *kprobes.Kprobe, r *kprobes.Regs) int {
				arg, _ := r.Arg(0)
				got, args = append(got, kp.State(0)-1), append(args, arg)
				return 0
			})
			switch how {
			case "stepped":
				kp.PostHandler = func(*kprobes.Kprobe, *kprobes.Regs, uint64) {}
			case "upcall":
				register(t, s, boosted.probe("foo"))
			}
			register(t, s, kp)
			if how == "optimized" || how == "upcall" {
				wantOptimized(t, s, kp)
			}
			step := calls
			if how == "switched" || how == "disabled" {
				step = 100
			}
			for i := 0; i < calls; i += step {
				prog.Do(fmt.Sprintf("go %d", step), "went")
				switch how {
				case "switched":
					ok(t, s.SetOptimization(i/step%2 == 0))
					s.WaitForOptimizer(t.Context())
				case "disabled":
					ok(t, s.DisableKprobe(kp))
					prog.Do("go 10", "went")
					ok(t, s.EnableKprobe(kp))
					s.WaitForOptimizer(t.Context())
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("chosen %v\nwant %v", got, want)
			}
			for i := range args {
				if args[i] != got[i]%uint64(step) {
					t.Fatalf("hit %d is call %d", got[i], args[i])
				}
			}
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestDecisionsInGo: bodies have the stack that goroutines have.
func TestDecisionsInGo(t *testing.T) {
	const n, seed, calls = 100, 31, 20_000
	prog := start(t, "gosrv")
	command := fmt.Sprintf("threads 8 %d", calls)
	unprobed := prog.Do(command, "sum")
	s := attach(t, prog.PID(), kprobes.Options{})
	var ran uint64
	kp := deciding(t, "main.target", oneOf(n, seed), counted(&ran))
	register(t, s, kp)
	wantOptimized(t, s, kp)
	if probed := prog.Do(command, "sum"); probed != unprobed {
		t.Errorf("probed: %q, unprobed: %q", probed, unprobed)
	}
	wantHits(t, kp, 8*calls)
	wantDecided(t, kp, ran, n, seed)
	closeSession(t, s)
	wantRight(t, prog)
}

// TestDecisionsWhileTheSiteChanges: jumps come and go under threads that run.
func TestDecisionsWhileTheSiteChanges(t *testing.T) {
	rounds := testsize.Rounds(8, 40, 1000)
	const n, seed = 50, 11
	prog := start(t, "threads", "4")
	s := attach(t, prog.PID(), kprobes.Options{})
	var ran uint64
	kp := deciding(t, "foo", oneOf(n, seed), counted(&ran))
	other := boosted.probe("foo")
	prog.Send("start")
	register(t, s, kp)
	for i := range rounds {
		switch i % 3 {
		case 0:
			s.WaitForOptimizer(t.Context())
		case 1:
			ok(t, s.SetOptimization(false))
			ok(t, s.SetOptimization(true))
		case 2:
			register(t, s, other)
			ok(t, s.UnregisterKprobe(other))
			other.Addr = 0
		}
	}
	prog.Do("stop", "calls")
	wantDecided(t, kp, ran, n, seed)
	ok(t, s.UnregisterKprobe(kp))
	wantDecided(t, kp, ran, n, seed)
	kp.Addr, kp.Flags = 0, 0
	ran = 0
	register(t, s, kp)
	wantOptimized(t, s, kp)
	prog.Do("go 1000", "went")
	if got := kp.State(0); got != 4000 {
		t.Errorf("%d decisions after 4000 hits of a probe that was registered again", got)
	}
	wantDecided(t, kp, ran, n, seed)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestDecisionsThatNobodyWaitsFor: sessions end while threads are chosen all the time.
func TestDecisionsThatNobodyWaitsFor(t *testing.T) {
	rounds := testsize.Rounds(10, 60, 2000)
	const n, seed = 3, 5
	prog := start(t, "threads", "4")
	prog.Send("start")
	missed := uint64(0)
	for range rounds {
		s := attach(t, prog.PID(), kprobes.Options{})
		var ran uint64
		kp := deciding(t, "foo", oneOf(n, seed), counted(&ran))
		register(t, s, kp)
		s.WaitForOptimizer(t.Context())
		for kp.State(0) < 20 {
		}
		closeSession(t, s)
		wantDecided(t, kp, ran, n, seed)
		missed += kp.NMissed()
	}
	t.Logf("%d chosen hits were missed", missed)
	prog.Do("stop", "calls")
	prog.CheckClean()
	wantRight(t, prog)
}

// TestAChosenHitIsDiverted: the handler has the function return a value of its own.
func TestAChosenHitIsDiverted(t *testing.T) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	third := program.Compare(program.Sequence(0).Mod(3), program.Equal, program.Const(2))
	kp := deciding(t, "target", third, func(kp *kprobes.Kprobe, r *kprobes.Regs) int {
		if r.IP() != kp.Addr+1 {
			t.Errorf("IP is %s at a probe of %s, want one more", r.IP(), kp.Addr)
		}
		ret, err := r.ReadUint64(r.SP())
		ok(t, err)
		r.SetReturnValue(4711)
		r.SetSP(r.SP() + 8)
		r.SetIP(addr(ret))
		return 1
	})
	register(t, s, kp)
	wantOptimized(t, s, kp)
	for i := range 12 {
		want := "ret 10"
		if i%3 == 2 {
			want = "ret 4711"
		}
		if got := prog.Do("call target 30", "ret"); got != want {
			t.Errorf("call %d: got %q, want %q", i, got, want)
		}
	}
	wantHits(t, kp, 12)
}

// TestDecisionsOfFollowedChildren: each address space begins with a state of zeros.
func TestDecisionsOfFollowedChildren(t *testing.T) {
	prog := start(t, "forker")
	s := attach(t, prog.PID(), kprobes.Options{Follow: true})
	first := map[int]int{}
	kp := deciding(t, "foo", program.Compare(program.Sequence(0), program.Equal, program.Const(0)), func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		first[r.PID()]++
		return 0
	})
	register(t, s, kp)
	wantOptimized(t, s, kp)
	prog.Do("run 20", "ran")
	for pid, n := range first {
		if n != 1 {
			t.Errorf("process %d has had %d first hits", pid, n)
		}
	}
	if len(first) < 20 || kp.State(0) != kp.Hits() {
		t.Errorf("%d processes, %d decisions, %d hits", len(first), kp.State(0), kp.Hits())
	}
	closeSession(t, s)
	if kp.State(0) != kp.Hits() || kp.State(1) != 0 || kp.State(-1) != 0 {
		t.Errorf("%d, %d decisions, %d hits", kp.State(0), kp.State(1), kp.Hits())
	}
	wantRight(t, prog)
}

// TestDecisionsInCalledFunctions: hits of functions that a handler calls are missed, and decide nothing (B26).
func TestDecisionsInCalledFunctions(t *testing.T) {
	const n, seed = 4, 21
	prog := start(t, "threads", "3")
	s := attach(t, prog.PID(), kprobes.Options{})
	var ran uint64
	foo := symbol(t, s, "foo")
	kp := deciding(t, "foo", oneOf(n, seed), func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		ran++
		wantCall(t, r, 16, foo, 5)
		wantCall(t, r, 19, foo, 6)
		return 0
	})
	register(t, s, kp)
	wantOptimized(t, s, kp)
	prog.Do("go 300", "went")
	if want := uint64(len(chosenOf(kp.State(0), n, seed))); kp.State(0) != 900 || ran != want || kp.NMissed() != 2*ran || kp.Hits() != 900 {
		t.Errorf("%d decisions, %d hits, %d missed; handled %d, want %d", kp.State(0), kp.Hits(), kp.NMissed(), ran, want)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestDecisionsInSeveralProbes: where one detour can't do what all probes of a site want, the tracer
// decides for each.
func TestDecisionsInSeveralProbes(t *testing.T) {
	const calls = 600
	prog := start(t, "threads", "1")
	s := attach(t, prog.PID(), kprobes.Options{})
	each := func(n uint64) program.Cond {
		return program.Compare(program.Sequence(0).Mod(n), program.Equal, program.Const(int64(n-1)))
	}
	var ran [2]uint64
	kps := []*kprobes.Kprobe{deciding(t, "foo", each(5), counted(&ran[0])), deciding(t, "foo", each(7), counted(&ran[1])), counting("foo")}
	register(t, s, kps...)
	wantOptimized(t, s, kps[0])
	prog.Do(fmt.Sprintf("go %d", calls), "went")
	if ran != [2]uint64{calls / 5, calls / 7} {
		t.Errorf("handlers ran %v times", ran)
	}
	ok(t, s.UnregisterKprobe(kps[1]))
	wantOptimized(t, s, kps[0])
	before := s.Handled()
	prog.Do(fmt.Sprintf("go %d", calls), "went")
	if stops := s.Handled() - before; stops != calls/5 && keepsJump(s, kps[0]) || ran[0] != 2*calls/5 {
		t.Errorf("%d stops, the handler ran %d times", stops, ran[0])
	}
	wantHits(t, kps[0], 2*calls)
	wantHits(t, kps[2], 2*calls)
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "foo"}}
	registerReturns(t, s, rp)
	s.WaitForOptimizer(t.Context())
	prog.Do(fmt.Sprintf("go %d", calls), "went")
	wantReturns(t, rp, calls, calls, 0)
	if ran[0] != 3*calls/5 || kps[0].State(0) != 3*calls {
		t.Errorf("beside a kretprobe the handler ran %d times of %d", ran[0], kps[0].State(0))
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestOnlyKprobesDecide: other probes have no PreHandler of the user's.
func TestOnlyKprobesDecide(t *testing.T) {
	prog := start(t, "threads", "1")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := deciding(t, "foo", program.Cond{}, nil)
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "foo", Program: kp.Program}}
	if err := s.RegisterKretprobe(rp); err == nil || errors.Is(err, unix.ENOENT) {
		t.Errorf("a kretprobe with a program that decides: %v", err)
	}
	register(t, s, kp) // no handler: nothing to decide
	wantOptimized(t, s, kp)
	before := s.Handled()
	prog.Do("go 50", "went")
	wantHits(t, kp, 50)
	if n := s.Handled() - before; n != 0 && keepsJump(s, kp) {
		t.Errorf("%d hits of a probe without a handler were the tracer's", n)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}
