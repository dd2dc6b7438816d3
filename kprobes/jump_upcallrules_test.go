package kprobes_test

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// upcalled starts fixture threads with a probe of foo that is optimized; handle is called for
// those hits whose thread does not stop.
func upcalled(t *testing.T, threads int, handle func(s *kprobes.Session, kp *kprobes.Kprobe, r *kprobes.Regs) int) (*testprog.Prog, *kprobes.Session, *kprobes.Kprobe) {
	t.Helper()
	prog := start(t, "threads", fmt.Sprint(threads))
	s := attach(t, prog.PID(), kprobes.Options{Log: func(string) {}})
	kp := &kprobes.Kprobe{SymbolName: "foo", PreHandler: func(kp *kprobes.Kprobe, r *kprobes.Regs) int {
		if byUpcall(r) {
			return handle(s, kp, r)
		}
		return 0
	}}
	register(t, s, kp)
	wantOptimized(t, s, kp)
	s.PollAlways()
	return prog, s, kp
}

// untilUpcall has the program call foo until enough hits were upcalls, or on a busy machine until one was.
func untilUpcall(t *testing.T, prog *testprog.Prog, threads int, upcalls *atomic.Uint64, enough uint64) (calls uint64) {
	t.Helper()
	for n := uint64(0); moreUpcalls(n, upcalls.Load(), enough); n++ {
		prog.Do("go 500", "went")
		calls += uint64(500 * threads)
	}
	if upcalls.Load() == 0 {
		t.Error("no hit was an upcall that did it")
	}
	return calls
}

// TestUpcallHandlersReturnFromTheFunction: where a handler sends the thread counts if it
// returns non-zero, and only then (B2, B19).
func TestUpcallHandlersReturnFromTheFunction(t *testing.T) {
	for _, answer := range []int{1, 0} {
		var n atomic.Uint64
		prog, s, kp := upcalled(t, 2, func(_ *kprobes.Session, _ *kprobes.Kprobe, r *kprobes.Regs) int {
			n.Add(1)
			back, err := r.ReadUint64(r.SP())
			if err != nil {
				t.Error(err)
			}
			r.SetIP(arch.Addr(back))
			if answer != 0 {
				v, _ := r.Arg(0)
				r.SetReturnValue(3*v + 1)
				r.SetSP(r.SP() + 8)
			}
			return answer
		})
		calls := untilUpcall(t, prog, 2, &n, 100)
		wantHits(t, kp, calls)
		closeSession(t, s)
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// TestUpcallHandlersChangeRegisters: all of them, as far as the mailbox or a stop can do it.
func TestUpcallHandlersChangeRegisters(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *kprobes.Regs)
	}{
		{"what the function does not read", func(r *kprobes.Regs) {
			for _, name := range []string{"rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11"} {
				r.Set(name, 4711)
			}
			flags, _ := r.Get("eflags")
			r.Set("eflags", flags^0x8d5)
		}},
		{"identification flag", func(r *kprobes.Regs) { // popf's, which the thread can't load
			flags, _ := r.Get("eflags")
			r.Set("eflags", flags^1<<21)
		}},
	} {
		var n atomic.Uint64
		prog, s, kp := upcalled(t, 1, func(_ *kprobes.Session, _ *kprobes.Kprobe, r *kprobes.Regs) int {
			c.change(r)
			n.Add(1)
			return 0
		})
		calls := untilUpcall(t, prog, 1, &n, 100)
		wantHits(t, kp, calls)
		closeSession(t, s)
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// TestUpcallHandlersChangeArguments: the program counts the calls whose result is that of
// another argument than it has given.
func TestUpcallHandlersChangeArguments(t *testing.T) {
	const calls = 5000
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	var changed uint64
	kp := &kprobes.Kprobe{SymbolName: "counted", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		if byUpcall(r) {
			changed++
			v, _ := r.Arg(0)
			r.SetArg(0, v+1)
		}
		return 0
	}}
	register(t, s, kp)
	wantOptimized(t, s, kp)
	s.PollAlways()
	for range 1000 {
		changed = 0
		right := number(t, prog.Do(fmt.Sprintf("bump %d", calls), "did"), "did")
		if want := 4*calls - changed; right != want {
			t.Errorf("%d calls were right, want %d", right, want)
		}
		if changed > 0 {
			break
		}
	}
	if changed == 0 {
		t.Error("no hit was an upcall")
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestUpcallHandlersThatNeedAStop: their threads stop for real, and the site soon has a
// breakpoint.
func TestUpcallHandlersThatNeedAStop(t *testing.T) {
	for _, c := range []struct {
		name string
		need func(r *kprobes.Regs) error
	}{
		{"vector registers", func(r *kprobes.Regs) error { _, _, err := r.XMM(3); return err }},
		{"x87 registers", func(r *kprobes.Regs) error { _, err := r.ST(0); return err }},
		{"memory", func(r *kprobes.Regs) error {
			at, err := r.Alloc(4096)
			if err == nil {
				err = r.Free(at, 4096)
			}
			return err
		}},
		{"a call", func(r *kprobes.Regs) error {
			got, err := callWithin(r, within, r.IP()-1, 5)
			if err == nil && got != 16 {
				err = fmt.Errorf("foo returns %d", got)
			}
			return err
		}},
	} {
		var n atomic.Uint64
		prog, s, kp := upcalled(t, 2, func(_ *kprobes.Session, _ *kprobes.Kprobe, r *kprobes.Regs) int {
			before := r.Regs.Clone()
			if err := c.need(r); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if !before.Same(r.Regs) {
				t.Errorf("%s: registers\n%v became\n%v", c.name, before, r.Regs)
			}
			n.Add(1)
			return 0
		})
		calls := untilUpcall(t, prog, 2, &n, 20)
		if got := kp.Hits(); got != calls {
			t.Errorf("%s: %d hits, want %d", c.name, got, calls)
		}
		if c.name == "a call" && kp.NMissed() == 0 {
			t.Error("the hits in calls were not missed")
		}
		closeSession(t, s)
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// TestAJumpStaysWhereFewUpcallsNeedAStop, however long that goes on.
func TestAJumpStaysWhereFewUpcallsNeedAStop(t *testing.T) {
	const every, enough = 20, 40
	var n, stopped atomic.Uint64
	prog, s, kp := upcalled(t, 2, func(_ *kprobes.Session, _ *kprobes.Kprobe, r *kprobes.Regs) int {
		if n.Add(1)%every != 0 {
			return 0
		}
		if _, _, err := r.XMM(3); err != nil {
			t.Error(err)
		}
		stopped.Add(1)
		return 0
	})
	calls := untilUpcall(t, prog, 2, &stopped, enough)
	wantOptimized(t, s, kp)
	wantHits(t, kp, calls)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestUpcallHandlersEndThings, from within: the probe, all probes, the session; and a panic.
func TestUpcallHandlersEndThings(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(s *kprobes.Session, kp *kprobes.Kprobe) error
	}{
		{"unregister", func(s *kprobes.Session, kp *kprobes.Kprobe) error { return s.UnregisterKprobe(kp) }},
		{"disable", func(s *kprobes.Session, kp *kprobes.Kprobe) error { return s.DisableKprobe(kp) }},
		{"disarm", func(s *kprobes.Session, _ *kprobes.Kprobe) error { return s.DisarmAll() }},
		{"no optimization", func(s *kprobes.Session, _ *kprobes.Kprobe) error { return s.SetOptimization(false) }},
		{"close", func(s *kprobes.Session, _ *kprobes.Kprobe) error { return s.Close() }},
		{"panic", func(*kprobes.Session, *kprobes.Kprobe) error { panic("on purpose") }},
	} {
		var n, ended atomic.Uint64
		var now atomic.Bool
		prog, s, _ := upcalled(t, 4, func(s *kprobes.Session, kp *kprobes.Kprobe, _ *kprobes.Regs) int {
			if n.Add(1) != 50 && !now.Load() {
				return 0
			}
			if ended.Add(1) > 1 {
				return 0
			}
			if err := c.end(s, kp); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			return 0
		})
		untilUpcall(t, prog, 4, &n, 50)
		now.Store(true) // on a busy machine, where there were few
		untilUpcall(t, prog, 4, &ended, 1)
		at := n.Load()
		prog.Do("go 1000", "went")
		if c.name != "no optimization" && n.Load() > at {
			t.Errorf("%s: the handler runs on", c.name)
		}
		closeSession(t, s)
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// TestUpcallsAmongSignals: handlers of signals see no address of ours, all hits are counted, and
// registers stay right.
func TestUpcallsAmongSignals(t *testing.T) {
	prog := start(t, "signals", "default")
	s := attach(t, prog.PID(), kprobes.Options{})
	var runs atomic.Uint64
	kp := calling("foo", &runs)
	register(t, s, kp)
	wantOptimized(t, s, kp)
	s.PollAlways()
	const calls = 30_000
	prog.Do(fmt.Sprintf("run %d", calls), "ran")
	wantHits(t, kp, calls)
	if runs.Load() != calls {
		t.Errorf("the handler ran %d times, want %d", runs.Load(), calls)
	}
	t.Logf("%d upcalls", s.Upcalls())
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestUpcallsOnOneCPU: everything shares one processor, and no hit is lost.
func TestUpcallsOnOneCPU(t *testing.T) {
	var all, one unix.CPUSet
	ok(t, unix.SchedGetaffinity(0, &all))
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	pinAll(t, &one)
	defer pinAll(t, &all)
	prog := start(t, "threads", "3")
	s := attach(t, prog.PID(), kprobes.Options{})
	var runs atomic.Uint64
	kp := calling("foo", &runs)
	register(t, s, kp)
	wantOptimized(t, s, kp)
	prog.Do("go 2000", "went")
	wantHits(t, kp, 6000)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// pinAll sets where all threads of the test may run; new ones inherit it.
func pinAll(t *testing.T, cpus *unix.CPUSet) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	ok(t, err)
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil {
			_ = unix.SchedSetaffinity(tid, cpus)
		}
	}
}

// TestUpcallsOfAKilledProcess end with it.
func TestUpcallsOfAKilledProcess(t *testing.T) {
	for range 5 {
		var n atomic.Uint64
		dead := make(chan struct{})
		prog, s, _ := upcalled(t, 4, func(s *kprobes.Session, _ *kprobes.Kprobe, _ *kprobes.Regs) int {
			if n.Add(1) == 100 {
				if err := unix.Kill(s.PID(), unix.SIGKILL); err != nil {
					t.Error(err)
				}
				close(dead)
			}
			return 0
		})
		prog.Send("start")
		<-dead
		<-s.Done()
		if exit := s.Exit(); exit == nil || exit.Signal != unix.SIGKILL {
			t.Errorf("the program ended with %v", exit)
		}
		closeSession(t, s)
	}
}
