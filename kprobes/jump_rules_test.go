package kprobes_test

import (
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

// wantBreakpoint checks that kp is not optimized, for a reason that contains why.
func wantBreakpoint(t testing.TB, s *kprobes.Session, kp *kprobes.Kprobe, why string) {
	t.Helper()
	s.WaitForOptimizer(t.Context())
	st := s.Status(kp)
	if st.Mechanism == kprobes.Optimized || st.Flags&kprobes.FlagOptimized != 0 || !strings.Contains(st.Reason, why) {
		t.Errorf("%s is %s (%s), flags %#x, want a breakpoint since %s", kp.SymbolName, st.Mechanism, st.Reason, st.Flags, why)
	}
}

// TestWhatKeepsASiteFromBeingOptimized (E19, E22, B43, A34): each of these gets a breakpoint, also
// where a jump stands already, and is registered all the same; without it the jump comes back.
func TestWhatKeepsASiteFromBeingOptimized(t *testing.T) {
	pre := func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }
	others := []struct {
		name, why string
		add       func(s *kprobes.Session) (remove func() error, err error)
	}{
		{"a post_handler", "post_handler", func(s *kprobes.Session) (func() error, error) {
			kp := &kprobes.Kprobe{SymbolName: "foo", PreHandler: pre, PostHandler: func(*kprobes.Kprobe, *kprobes.Regs, uint64) {}}
			return func() error { return s.UnregisterKprobe(kp) }, s.RegisterKprobe(kp)
		}},
		{"a fault_handler", "fault_handler", func(s *kprobes.Session) (func() error, error) {
			kp := &kprobes.Kprobe{SymbolName: "foo", FaultHandler: func(*kprobes.Kprobe, *kprobes.Regs, int) int { return 0 }}
			return func() error { return s.UnregisterKprobe(kp) }, s.RegisterKprobe(kp)
		}},
		{"a jprobe", "jprobe", func(s *kprobes.Session) (func() error, error) {
			jp := &kprobes.Jprobe{KP: kprobes.Kprobe{SymbolName: "foo"}, Entry: func(int64) {}}
			return func() error { return s.UnregisterJprobe(jp) }, s.RegisterJprobe(jp)
		}},
	}
	for _, o := range others {
		t.Run(o.name, func(t *testing.T) {
			prog := start(t, "threads", "2")
			s := attach(t, prog.PID(), kprobes.Options{})
			kp := counting("foo")
			register(t, s, kp)
			wantOptimized(t, s, kp)
			remove, err := o.add(s)
			ok(t, err)
			wantBreakpoint(t, s, kp, o.why)
			prog.Do("go 10", "went")
			ok(t, remove())
			wantOptimized(t, s, kp)
			prog.Do("go 10", "went")
			wantHits(t, kp, 40)
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// text reads n bytes of the program's memory.
func text(t testing.TB, pid int, kp *kprobes.Kprobe, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if err := (ptrace.PeekMemory{PID: pid}).ReadMemory(kp.Addr, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTheOptimizerIsLazy (E24, E25, E28, E29, E31): the flag is set when a probe is queued and its
// breakpoint stands; one that is disabled before its turn is dequeued; a jump outlives its probe
// for a while, switched off, and serves the next one.
func TestTheOptimizerIsLazy(t *testing.T) {
	prog := start(t, "threads", "2")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := counting("foo")
	register(t, s, kp)
	st := s.Status(kp)
	if st.Flags&kprobes.FlagOptimized == 0 {
		t.Errorf("queued, the flags are %#x", st.Flags)
	}
	ok(t, s.DisableKprobe(kp))
	if st := s.Status(kp); st.Flags&kprobes.FlagOptimized != 0 {
		t.Errorf("disabled in the queue, the flags are %#x", st.Flags)
	}
	s.WaitForOptimizer(t.Context())
	if now := text(t, prog.PID(), kp, 8); now[0] == 0xcc || now[0] == 0xe9 {
		t.Errorf("disabled, the code is % x", now)
	}
	ok(t, s.EnableKprobe(kp))
	wantOptimized(t, s, kp)
	if now := text(t, prog.PID(), kp, 8); now[0] != 0xe9 {
		t.Errorf("optimized, the code is % x", now)
	}
	prog.Do("go 50", "went")
	ok(t, s.DisableKprobe(kp))
	prog.Do("go 50", "went")
	ok(t, s.EnableKprobe(kp)) // with luck before its turn
	prog.Do("go 50", "went")
	wantHits(t, kp, 200)
	ok(t, s.UnregisterKprobe(kp))
	next := counting("foo")
	register(t, s, next)
	prog.Do("go 50", "went")
	wantHits(t, next, 100)
	wantHits(t, kp, 200)
	wantOptimized(t, s, next)
	ok(t, s.UnregisterKprobe(next))
	s.WaitForOptimizer(t.Context())
	if now := text(t, prog.PID(), kp, 8); now[0] == 0xe9 || now[0] == 0xcc {
		t.Errorf("without probes the code is % x", now)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestProbesInsideAnOptimizedRegion (E19, E20, E21): one that is armed has the jump taken back first,
// and is hit; while it is disabled the jump is there again.
func TestProbesInsideAnOptimizedRegion(t *testing.T) {
	prog := start(t, "regions", "2")
	s := attach(t, prog.PID(), kprobes.Options{})
	outer, inside := counting("g_push"), instructions(t, s, prog, "g_push")[1:3]
	register(t, s, outer)
	wantOptimized(t, s, outer)
	for _, at := range inside {
		inner := &kprobes.Kprobe{Addr: at}
		register(t, s, inner)
		wantBreakpoint(t, s, outer, "another probe lies in the optimized region")
		before := outer.Hits()
		prog.Do("go 10", "went")
		wantHits(t, inner, 20)
		wantHits(t, outer, before+20)
		ok(t, s.DisableKprobe(inner))
		wantOptimized(t, s, outer)
		prog.Do("go 10", "went")
		ok(t, s.EnableKprobe(inner))
		wantBreakpoint(t, s, outer, "another probe lies in the optimized region")
		ok(t, s.UnregisterKprobe(inner))
		wantOptimized(t, s, outer)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestOptimizationIsTurnedOnAndOff (E1, E32, F-sysctl): it is on by default; turning it off returns when
// no jump is left.
func TestOptimizationIsTurnedOnAndOff(t *testing.T) {
	prog := start(t, "threads", "2")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := counting("foo")
	register(t, s, kp)
	wantOptimized(t, s, kp)
	ok(t, s.SetOptimization(false))
	if now := text(t, prog.PID(), kp, 1); now[0] != 0xcc {
		t.Errorf("turned off, the code is % x", now)
	}
	wantBreakpoint(t, s, kp, "turned off")
	prog.Do("go 10", "went")
	ok(t, s.SetOptimization(true))
	wantOptimized(t, s, kp)
	prog.Do("go 10", "went")
	ok(t, s.DisarmAll()) // E30: at once
	if now := text(t, prog.PID(), kp, 1); now[0] == 0xe9 || now[0] == 0xcc {
		t.Errorf("disarmed, the code is % x", now)
	}
	prog.Do("go 10", "went")
	ok(t, s.ArmAll())
	wantOptimized(t, s, kp)
	prog.Do("go 10", "went")
	wantHits(t, kp, 60)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestAllProbesOfAnOptimizedSiteCount (B20).
func TestAllProbesOfAnOptimizedSiteCount(t *testing.T) {
	prog := start(t, "threads", "4")
	s := attach(t, prog.PID(), kprobes.Options{})
	first, second, third := counting("foo"), counting("foo"), counting("foo")
	register(t, s, first, second)
	wantOptimized(t, s, first)
	prog.Do("go 100", "went")
	register(t, s, third)
	ok(t, s.DisableKprobe(second))
	wantOptimized(t, s, third)
	prog.Do("go 100", "went")
	ok(t, s.EnableKprobe(second))
	ok(t, s.UnregisterKprobe(first))
	prog.Do("go 100", "went")
	wantHits(t, first, 800)
	wantHits(t, second, 800)
	wantHits(t, third, 800)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}
