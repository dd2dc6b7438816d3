package kprobes_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

func addr(v uint64) arch.Addr { return arch.Addr(v) }

// TestSignalsUnderProbes: a kilohertz timer and queued signals, in a program that
// leaves SIGTRAP alone, blocks, ignores or handles it. Nothing is lost, no handler
// sees a slot's address, the mask and the disposition stay.
func TestSignalsUnderProbes(t *testing.T) {
	for _, trap := range []string{"default", "blocked", "ignored", "handled"} {
		for _, m := range modes {
			t.Run(trap+"/"+string(m), func(t *testing.T) {
				prog := start(t, "signals", trap)
				before := testprog.TakeSnapshot(t, prog.PID())
				s := attach(t, prog.PID(), kprobes.Options{})
				kp := m.probe("foo")
				register(t, s, kp)
				calls := uint64(testsize.Rounds(2000, 20_000, 20_000))
				ran := prog.Do(fmt.Sprintf("run %d", calls), "ran")
				wantHits(t, kp, calls)
				if got := number(t, ran, "queued"); got != calls/10 {
					t.Errorf("%d queued signals arrived, want %d", got, calls/10)
				}
				closeSession(t, s)
				before.Compare(t, prog.PID())
				wantRight(t, prog)
			})
		}
	}
}

// TestThreadsComeAndGo: threads are created and exit all the time, also while the
// tracer attaches, registers and detaches.
func TestThreadsComeAndGo(t *testing.T) {
	prog := start(t, "churn", "4")
	for range 20 {
		s := attach(t, prog.PID(), kprobes.Options{})
		for range 5 {
			kp := boosted.probe("foo")
			register(t, s, kp)
			prog.Do("count", "count")
			if err := s.UnregisterKprobe(kp); err != nil {
				t.Error(err)
			}
		}
		closeSession(t, s)
		prog.CheckClean()
	}
	wantRight(t, prog)
}

// TestChildrenGetTheOriginalCode: fork, vfork, posix_spawn, CLONE_VM. Forked children
// run unprobed and unharmed; those that share the memory are probed like threads.
func TestChildrenGetTheOriginalCode(t *testing.T) {
	for _, follow := range []bool{false, true} {
		t.Run(fmt.Sprintf("follow=%v", follow), func(t *testing.T) {
			prog := start(t, "forker")
			s := attach(t, prog.PID(), kprobes.Options{Follow: follow})
			var mu sync.Mutex
			pids := map[int]int{}
			kp := boosted.probe("foo")
			kp.PreHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
				mu.Lock()
				defer mu.Unlock()
				pids[r.PID()]++
				return 0
			}
			register(t, s, kp)
			prog.Do("run 50", "ran")
			mu.Lock()
			children := len(pids)
			mu.Unlock()
			if children < 50 {
				t.Errorf("hits in %d processes, want those of the 50 children at least that share the memory", children)
			}
			if follow && children < 100 {
				t.Errorf("hits in %d processes, want those of the forked children too", children)
			}
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

// TestExec: the probes are gone, or follow into the new program.
func TestExec(t *testing.T) {
	for _, how := range []string{"exec", "execthread"} {
		for _, follow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/follow=%v", how, follow), func(t *testing.T) {
				prog := start(t, "execer")
				s := attach(t, prog.PID(), kprobes.Options{Follow: follow})
				kp := boosted.probe("foo")
				var calls atomic.Int64 // with our argument; other threads call foo too
				kp.PreHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
					if v, _ := r.Arg(0); v == 987654321 {
						calls.Add(1)
					}
					return 0
				}
				register(t, s, kp)
				first := prog.Do("call 987654321", "ret")
				if n := calls.Load(); n != 1 {
					t.Errorf("%d hits, want 1", n)
				}
				prog.Do(how, "ready")
				if second := prog.Do("call 987654321", "ret"); second != first {
					t.Errorf("after exec %q, before %q", second, first)
				}
				gone := s.Status(kp).Flags&kprobes.FlagGone != 0
				if gone == follow {
					t.Errorf("the probe is gone: %v, with follow %v", gone, follow)
				}
				want := int64(1)
				if follow {
					want = 2
				}
				if n := calls.Load(); n != want {
					t.Errorf("%d hits, want %d", n, want)
				}
				closeSession(t, s)
				wantRight(t, prog)
			})
		}
	}
}

// TestExecInFreezes: an exec that a Freeze of the old address space finds under way. The new
// program does not run before it has its probes, whatever freezes it again while they are placed.
func TestExecInFreezes(t *testing.T) {
	const execs = 20
	prog := start(t, "execer")
	s := attach(t, prog.PID(), kprobes.Options{Follow: true, Log: func(string) {}})
	var calls atomic.Int64
	kp := boosted.probe("foo")
	kp.PreHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		if v, _ := r.Arg(0); v == 987654321 {
			calls.Add(1)
		}
		return 0
	}
	register(t, s, kp)
	var over atomic.Bool
	var freezer sync.WaitGroup
	freezer.Go(func() {
		for !over.Load() {
			other := stepped.probe("again")
			if s.RegisterKprobe(other) == nil { // it may be refused in the middle of an exec
				_ = s.UnregisterKprobe(other)
			}
		}
	})
	for range execs {
		prog.Do("execthread", "ready")
		prog.Do("call 987654321", "ret")
	}
	over.Store(true)
	freezer.Wait()
	if n := calls.Load(); n != execs {
		t.Errorf("%d hits, want one after each of %d execs", n, execs)
	}
	closeSession(t, s)
	wantRight(t, prog)
}

// TestLeaderHasExited: the main thread is a zombie, the others go on.
func TestLeaderHasExited(t *testing.T) {
	prog := start(t, "leader")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := stepped.probe("foo")
	register(t, s, kp)
	if got := prog.Do("call 2", "ret"); got != "ret 35" {
		t.Errorf("got %q", got)
	}
	wantHits(t, kp, 1)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestBlockedSystemCallsRestart: threads in every kind of blocking call are stopped,
// and one of them runs system calls for us, again and again. All calls end as if
// nothing had happened.
func TestBlockedSystemCallsRestart(t *testing.T) {
	prog := start(t, "syscalls", "3000")
	for range 5 {
		s := attach(t, prog.PID(), kprobes.Options{})
		register(t, s, boosted.probe("main"))
		closeSession(t, s)
	}
	prog.Send("wake")
	wantRight(t, prog)
}

// TestStoppedJob: a job stopped by SIGSTOP stays stopped while it is attached to,
// probed and detached from, and SIGCONT continues it.
func TestStoppedJob(t *testing.T) {
	prog := start(t, "prey")
	stop := func(sig unix.Signal) {
		if err := unix.Kill(prog.PID(), sig); err != nil {
			t.Fatal(err)
		}
	}
	waitState(t, prog.PID(), "S")
	stop(unix.SIGSTOP)
	waitState(t, prog.PID(), "T")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := boosted.probe("target")
	register(t, s, kp)
	waitState(t, prog.PID(), "t")
	prog.Send("call target 30")
	stop(unix.SIGCONT)
	if got := prog.Expect("ret"); got != "ret 10" {
		t.Errorf("got %q", got)
	}
	wantHits(t, kp, 1)
	stop(unix.SIGSTOP)
	waitState(t, prog.PID(), "t")
	closeSession(t, s)
	waitState(t, prog.PID(), "T")
	prog.CheckClean()
	stop(unix.SIGCONT)
	if got := prog.Do("call target 60", "ret"); got != "ret 20" {
		t.Errorf("got %q", got)
	}
}

// waitState reads /proc until the process is in one of the states.
func waitState(t *testing.T, pid int, states string) {
	t.Helper()
	testprog.Await(t, fmt.Sprintf("process %d in state %s", pid, states), func() bool {
		st, err := procfs.ReadStat(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		return strings.IndexByte(states, st.State) >= 0
	})
}

// TestAttachDetachCycles: a busy program with many threads that also forks and gets
// signals is attached to and let go again and again.
func TestAttachDetachCycles(t *testing.T) {
	cycles := testsize.Rounds(5, 50, 1000)
	alarms := 1000                                               // µs
	if stop := testprog.StopTime(); stop > 20*time.Microsecond { // the leader takes them, and is to come to its work as well
		t.Logf("a stop takes %s: an alarm comes each tenth of a second only", stop)
		alarms = 100_000
	}
	prog := start(t, "busy64", "64", strconv.Itoa(alarms))
	before := testprog.TakeSnapshot(t, prog.PID())
	for i := range cycles {
		s := attach(t, prog.PID(), kprobes.Options{})
		kp := modes[i%2].probe("foo")
		register(t, s, kp, boosted.probe("fib"))
		prog.Do("count", "count")
		closeSession(t, s)
		if t.Failed() {
			t.Fatalf("in cycle %d", i)
		}
	}
	before.Compare(t, prog.PID())
	wantRight(t, prog)
}

// TestTwoThousandThreads attaches to as many, once.
func TestTwoThousandThreads(t *testing.T) {
	prog := start(t, "threads", "2000")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := boosted.probe("foo")
	register(t, s, kp)
	prog.Do("go 10", "went")
	wantHits(t, kp, 20_000)
	closeSession(t, s)
	wantRight(t, prog)
}
