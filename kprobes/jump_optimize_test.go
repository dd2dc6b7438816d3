package kprobes_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// counting is a probe without handlers, which the target counts itself.
func counting(symbol string) *kprobes.Kprobe { return &kprobes.Kprobe{SymbolName: symbol} }

// wantOptimized waits for the optimizer and checks that kp has a jump. A test of jumps has nothing to look at where, beside uprobes, one stands in the
// fixture: it is skipped. Where the processor is the reason, the rest of the test is about the same hits by stops.
func wantOptimized(t testing.TB, s *kprobes.Session, kp *kprobes.Kprobe) {
	t.Helper()
	s.WaitForOptimizer(t.Context())
	if st := s.Status(kp); testprog.NoJumpHere(st.Reason) && !testprog.CallsTracer() {
		t.Logf("%s has no jump: %s", kp.SymbolName, st.Reason)
	} else if testprog.NoJumpHere(st.Reason) {
		t.Skipf("%s has no jump: %s", kp.SymbolName, st.Reason)
	} else if st.Mechanism != kprobes.Optimized || st.Flags&kprobes.FlagOptimized == 0 {
		t.Errorf("%s is %s (%s), flags %#x, want optimized", kp.SymbolName, st.Mechanism, st.Reason, st.Flags)
	}
}

func TestOptimizedCountIsExact(t *testing.T) {
	const threads, calls = 8, 200_000
	prog := start(t, "threads", fmt.Sprint(threads))
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := counting("foo")
	register(t, s, kp)
	wantOptimized(t, s, kp)
	prog.Do(fmt.Sprintf("go %d", calls), "went")
	wantHits(t, kp, threads*calls)
	ok(t, s.DisableKprobe(kp))
	prog.Do("go 100", "went")
	ok(t, s.EnableKprobe(kp))
	s.WaitForOptimizer(t.Context())
	prog.Do("go 1000", "went")
	wantHits(t, kp, threads*(calls+1000))
	closeSession(t, s)
	wantHits(t, kp, threads*(calls+1000))
	prog.CheckClean()
	wantRight(t, prog)
}

// jumps tells whether kp has a jump, or would have one without the uprobes that it is beside.
func jumps(s *kprobes.Session, kp *kprobes.Kprobe) bool {
	st := s.Status(kp)
	return st.Mechanism == kprobes.Optimized || testprog.NoJumpHere(st.Reason)
}

// keepsJump tells whether kp, which had a jump, has it still, as it does but beside uprobes. What is counted of stops does not hold else.
func keepsJump(s *kprobes.Session, kp *kprobes.Kprobe) bool {
	return !testprog.NoJumpHere(s.Status(kp).Reason)
}

// functions lists the fixture's.
func functions(prog *testprog.Prog) (names []string) {
	prog.Send("list")
	for line := prog.Line(); line != "listed"; line = prog.Line() {
		names = append(names, strings.TrimPrefix(line, "fn "))
	}
	return names
}

// TestOptimizedAnywhere: for every instruction of functions that are entered at inner heads in
// every way, one at a time, the target counts as many hits as a breakpoint does, and all
// results are right.
func TestOptimizedAnywhere(t *testing.T) {
	const rounds, threads = 50, 2
	prog := start(t, "regions", fmt.Sprint(threads))
	s := attach(t, prog.PID(), kprobes.Options{})
	optimized, refused := 0, map[string]int{}
	var all []arch.Addr
	for _, name := range functions(prog) {
		all = append(all, instructions(t, s, prog, name)...)
	}
	for _, at := range all {
		kp := &kprobes.Kprobe{Addr: at}
		ok(t, s.SetOptimization(false))
		register(t, s, kp)
		prog.Do("go 1", "went")
		want := kp.Hits()
		ok(t, s.SetOptimization(true))
		s.WaitForOptimizer(t.Context())
		st := s.Status(kp)
		if jumps(s, kp) {
			optimized++
		} else {
			refused[st.Reason]++
		}
		before := kp.Hits()
		prog.Do("go 1", "went")
		if got := kp.Hits() - before; got != want {
			t.Errorf("%s %q (%s): %d hits, want %d", st.Symbol, st.Instruction, st.Mechanism, got, want)
		}
		prog.Do(fmt.Sprintf("go %d", rounds), "went")
		ok(t, s.UnregisterKprobe(kp))
	}
	s.WaitForOptimizer(t.Context())
	t.Logf("%d optimized, refused: %v", optimized, refused)
	if optimized < 100 {
		t.Errorf("%d instructions were optimized", optimized)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestToggleOptimized: jumps come and go, by every way that there is, while threads run
// through the region and signals arrive; all results stay right.
func TestToggleOptimized(t *testing.T) {
	rounds := testsize.Rounds(30, 300, 10_000)
	prog := start(t, "regions", "8")
	s := attach(t, prog.PID(), kprobes.Options{})
	var kps []*kprobes.Kprobe
	for _, name := range functions(prog) {
		kps = append(kps, counting(name))
	}
	inner := &kprobes.Kprobe{SymbolName: "g_push", Offset: 1}
	prog.Send("start")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			select {
			case <-stop:
				return
			default:
				_ = prog.Signal(syscall.SIGUSR1)
				s.Status(kps[0])
			}
		}
	}()
	register(t, s, kps...)
	for i := range rounds {
		switch i % 6 {
		case 0:
			s.WaitForOptimizer(t.Context())
		case 1:
			for _, kp := range kps {
				ok(t, s.DisableKprobe(kp))
			}
		case 2:
			ok(t, s.EnableKprobes(t.Context(), kps))
		case 3:
			register(t, s, inner)
			ok(t, s.UnregisterKprobe(inner))
			inner.Addr = 0
		case 4:
			ok(t, s.SetOptimization(i%12 == 4))
			ok(t, s.SetOptimization(true))
		case 5:
			ok(t, s.UnregisterKprobes(kps))
			for _, kp := range kps {
				kp.Addr, kp.Flags = 0, 0
			}
			register(t, s, kps...)
		}
	}
	close(stop)
	wg.Wait()
	prog.Do("stop", "calls")
	s.WaitForOptimizer(t.Context())
	for _, kp := range kps {
		wantOptimized(t, s, kp)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestPassesAmongManyThreads: with hundreds of threads that wait, these are held around each pass, some at a time. None stays held, whatever ends the passes, and
// the target counts right all the while.
func TestPassesAmongManyThreads(t *testing.T) {
	const threads = 600
	prog := start(t, "threads", fmt.Sprint(threads))
	for i := range 3 {
		s := attach(t, prog.PID(), kprobes.Options{})
		kp := counting("foo")
		register(t, s, kp)
		prog.Do("go 10", "went")
		wantOptimized(t, s, kp)
		prog.Do("go 10", "went")
		for range 3 {
			ok(t, s.DisableKprobe(kp))
			ok(t, s.EnableKprobe(kp))
			prog.Do("go 1", "went")
		}
		wantHits(t, kp, threads*23)
		if i == 1 {
			ok(t, s.DisableKprobe(kp)) // and closed while a pass is about to begin, or holds threads
		}
		closeSession(t, s)
		prog.CheckClean()
		prog.Do("go 1", "went")
	}
	wantRight(t, prog)
}

// TestPassesAmongManyThreadsAndHandlers: while a handler's hits come without end, each of which gives back who is held for a pass, there are passes all the same.
func TestPassesAmongManyThreadsAndHandlers(t *testing.T) {
	prog := start(t, "threads", "600")
	s := attach(t, prog.PID(), kprobes.Options{})
	var handled atomic.Int64
	register(t, s, &kprobes.Kprobe{SymbolName: "foo", PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int { handled.Add(1); return 0 }})
	prog.Send("alone")
	for i := range 3 {
		began := handled.Load()
		testprog.Await(t, "a hundred hits more", func() bool { return handled.Load() > began+100 })
		kp := counting("libc.so.6:getpid")
		register(t, s, kp)
		wantOptimized(t, s, kp)
		if err := s.UnregisterKprobe(kp); err != nil {
			t.Errorf("round %d: %v", i, err)
		}
	}
	prog.Do("stop", "calls")
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}
