package kprobes_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

func mappings(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

// TestJumpsLeaveNothingBehind: jumps that come and go thousands of times use the memory of a few.
func TestJumpsLeaveNothingBehind(t *testing.T) {
	prog, s, kps := stormy(t, kprobes.Options{})
	found, err := s.Symbols().Resolve(t.Context(), "libc.so.6:str*")
	ok(t, err)
	for _, loc := range found {
		kp := &kprobes.Kprobe{Addr: loc.Addr}
		if s.RegisterKprobe(kp) == nil {
			kps = append(kps, kp)
		}
	}
	s.WaitForOptimizer(t.Context())
	before := 0
	for i := range 60 {
		ok(t, s.SetOptimization(false))
		ok(t, s.SetOptimization(true))
		s.WaitForOptimizer(t.Context())
		wantOptimized(t, s, kps[0])
		if i == 10 {
			before = mappings(t, prog.PID())
		}
	}
	if now := mappings(t, prog.PID()); now > before {
		t.Errorf("%d mappings after 10 times, %d after 60", before, now)
	}
	t.Logf("%d probes, %d mappings", len(kps), before)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestOptimizedLibraryComesAndGoes: its probes are optimized when it is there.
func TestOptimizedLibraryComesAndGoes(t *testing.T) {
	prog, s, _ := glibc.loading(t, kprobes.Options{})
	lib := glibc.lib(t, "libplug.so")
	kp := counting("libplug.so:plugged")
	register(t, s, kp)
	for i := range 6 {
		prog.Do(fmt.Sprintf("open %d %s", i, lib), "did")
		wantOptimized(t, s, kp)
		prog.Do(fmt.Sprintf("call %d plugged 10", i), "did")
		wantHits(t, kp, uint64(10*(i+1)))
		prog.Do(fmt.Sprintf("close %d", i), "did")
		if st := s.Status(kp); st.Flags != kprobes.FlagGone {
			t.Errorf("gone, the flags are %#x, mechanism %s", st.Flags, st.Mechanism)
		}
		if i%2 == 0 {
			prog.Do("occupy "+fmt.Sprint(i), "did")
			s.WaitForOptimizer(t.Context())
			ok(t, s.SetOptimization(false))
			ok(t, s.SetOptimization(true))
			prog.Do("vacate", "did")
		}
	}
	ok(t, s.UnregisterKprobe(kp))
	wantHits(t, kp, 60)
	kp.Addr, kp.Flags = 0, 0
	prog.Do("open 7 "+lib, "did")
	register(t, s, kp)
	wantHits(t, kp, 0)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestSessionsEndAtAnyMoment: threads are in detours, at heads, and take signals.
func TestSessionsEndAtAnyMoment(t *testing.T) {
	for _, flags := range [][]string{nil, {"-no-pie", "-fno-pie"}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			prog := testprog.Start(t, testprog.Build(t, "optstorm", flags...))
			prog.Send("storm 2000000")
			for range 25 {
				s := attach(t, prog.PID(), kprobes.Options{})
				for _, f := range storming {
					register(t, s, counting(f))
				}
				s.WaitForOptimizer(t.Context())
				closeSession(t, s)
			}
			prog.Expect("did")
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestCountsOutliveTheProgram, whatever its end.
func TestCountsOutliveTheProgram(t *testing.T) {
	for _, how := range []string{"exits", "killed"} {
		t.Run(how, func(t *testing.T) {
			prog := start(t, "threads", "2")
			s := attach(t, prog.PID(), kprobes.Options{})
			kp := counting("foo")
			register(t, s, kp)
			wantOptimized(t, s, kp)
			prog.Do("go 5000", "went")
			if how == "killed" {
				ok(t, prog.Signal(syscall.SIGKILL))
			} else {
				wantRight(t, prog)
			}
			<-s.Done()
			wantHits(t, kp, 10000)
			closeSession(t, s)
			wantHits(t, kp, 10000)
		})
	}
}

// TestStoppedProgramGetsJumps, and gives them back, without running.
func TestStoppedProgramGetsJumps(t *testing.T) {
	prog := start(t, "threads", "3")
	prog.Send("start")
	s := attach(t, prog.PID(), kprobes.Options{})
	for range 4 {
		ok(t, prog.Signal(syscall.SIGSTOP))
		kp := counting("foo")
		register(t, s, kp)
		wantOptimized(t, s, kp)
		ok(t, prog.Signal(syscall.SIGCONT))
		for kp.Hits() == 0 {
		}
		ok(t, prog.Signal(syscall.SIGSTOP))
		ok(t, s.UnregisterKprobe(kp))
		s.WaitForOptimizer(t.Context())
		closeSession(t, s)
		ok(t, prog.Signal(syscall.SIGCONT))
		s = attach(t, prog.PID(), kprobes.Options{})
	}
	prog.Do("stop", "calls")
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestASlotIsRetiredHoweverItsSiteEnds: threads have been led to it, so one may be inside, also when the site has
// neither a breakpoint nor a jump any more by the time it ends.
func TestASlotIsRetiredHoweverItsSiteEnds(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "optstorm"))
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := counting("s_push")
	register(t, s, kp)
	wantOptimized(t, s, kp)
	ok(t, s.DisableKprobe(kp))
	ok(t, s.SetOptimization(false)) // takes the jump away, and a disabled probe needs no breakpoint
	before := s.RetiredSlots()      // of places that were taken for its sake
	ok(t, s.UnregisterKprobe(kp))
	if n := s.RetiredSlots() - before; n != 1 {
		t.Errorf("%d slots wait to be recycled, want 1", n)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}
