package kprobes_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestIgnoredSignalDoesNotInterruptASystemCall: a signal that is ignored, by default or by the
// program, ends epoll_wait(2) with EINTR neither in a traced process nor in an untraced one.
func TestIgnoredSignalDoesNotInterruptASystemCall(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGWINCH, unix.SIGTSTP} {
		for _, traced := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s traced=%v", unix.SignalName(sig), traced), func(t *testing.T) {
				prog := start(t, "edge")
				if sig == unix.SIGTSTP {
					prog.Do(fmt.Sprintf("ignore %d", sig), "did")
				}
				if traced {
					attach(t, prog.PID(), kprobes.Options{})
				}
				prog.Do("epoll", "going")
				waitSyscall(t, prog.PID(), unix.SYS_EPOLL_WAIT)
				if err := prog.Signal(sig); err != nil {
					t.Fatal(err)
				}
				waitState(t, prog.PID(), "S") // kill(2) woke it
				if got := prog.Do("input", "did"); got != "did 1 errno 0" {
					t.Errorf("epoll_wait: %q", got)
				}
			})
		}
	}
}

// TestJobControlInterruptsWhatItInterrupts: a stop by SIGSTOP ends epoll_wait(2) with EINTR
// when SIGCONT comes (signal(7)), in a traced process as in an untraced one. A stop of ours
// does not.
func TestJobControlInterruptsWhatItInterrupts(t *testing.T) {
	for _, traced := range []bool{false, true} {
		t.Run(fmt.Sprintf("traced=%v", traced), func(t *testing.T) {
			prog := start(t, "edge")
			var s *kprobes.Session
			if traced {
				s = attach(t, prog.PID(), kprobes.Options{})
			}
			prog.Do("epoll", "going")
			waitSyscall(t, prog.PID(), unix.SYS_EPOLL_WAIT)
			if traced {
				register(t, s, boosted.probe("foo")) // needs a system call of the target's
				waitSyscall(t, prog.PID(), unix.SYS_EPOLL_WAIT)
			}
			waitState(t, prog.PID(), "S") // in the call, and no longer stopped for us
			for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGCONT} {
				if err := prog.Signal(sig); err != nil {
					t.Fatal(err)
				}
				waitStopped(t, prog.PID(), sig == unix.SIGSTOP)
			}
			if got := prog.Expect("did"); got != "did -1 errno 4" {
				t.Errorf("epoll_wait: %q, want EINTR", got)
			}
		})
	}
}

// waitSyscall reads /proc until the process's main thread is blocked in system call nr.
func waitSyscall(t *testing.T, pid, nr int) {
	t.Helper()
	testprog.Await(t, fmt.Sprintf("process %d in system call %d", pid, nr), func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.HasPrefix(string(b), fmt.Sprintf("%d ", nr))
	})
}

// TestProcessThatSharesTheMemoryIsProbed: a process made by clone with CLONE_VM before the
// session meets the breakpoints too; it must be traced, or they would kill it.
func TestProcessThatSharesTheMemoryIsProbed(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "edge", "relative")
			s := attach(t, prog.PID(), kprobes.Options{})
			kp := m.probe("foo")
			register(t, s, kp)
			if got := prog.Do("relative", "did"); got != "did status 7 signal 0" {
				t.Errorf("the child: %q", got)
			}
			if n := kp.Hits(); n < 1000 {
				t.Errorf("%d hits, want 1000 at least", n)
			}
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

// TestSignalNeverReachesANewOwnerOfThePID: the process is gone and another has its PID.
func TestSignalNeverReachesANewOwnerOfThePID(t *testing.T) {
	other := start(t, "edge")
	prog := start(t, "edge")
	s := attach(t, prog.PID(), kprobes.Options{})
	prog.Kill()
	<-s.Done()
	// Without CAP_CHECKPOINT_RESTORE the PID stays free, and only the error is tested.
	taken := other.Do(fmt.Sprintf("take %d", prog.PID()), "did") == fmt.Sprintf("did %d", prog.PID())
	if !taken && os.Geteuid() == 0 {
		t.Errorf("PID %d can't be given to another process", prog.PID())
	}
	if err := s.Signal(unix.SIGTERM); !errors.Is(err, unix.ESRCH) {
		t.Errorf("signal: %v, want ESRCH", err)
	}
	if !taken {
		return
	}
	st, err := procfs.ReadStatus(prog.PID(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if st.ShdPnd.Has(int(unix.SIGTERM)) || st.SigPnd.Has(int(unix.SIGTERM)) {
		t.Errorf("SIGTERM is pending in an unrelated process")
	}
}

// TestFatalFaultKillsUnderAProbe: a SIGSEGV that the program ignores or blocks kills it
// all the same (force_sig_fault in kernel/signal.c), also when a probe's copy or emulation
// of the instruction faults.
func TestFatalFaultKillsUnderAProbe(t *testing.T) {
	for _, how := range []string{"ignored", "blocked"} {
		for _, probed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/probed=%v", how, probed), func(t *testing.T) {
				prog := start(t, "edge")
				if probed {
					s := attach(t, prog.PID(), kprobes.Options{})
					kp := boosted.probe("bad_return")
					kp.Offset = 1
					register(t, s, kp)
				}
				prog.Do(how, "going")
				if e := prog.Wait(); e.Signal != syscall.SIGSEGV {
					t.Errorf("the program ended with %+v, want SIGSEGV", e)
				}
			})
		}
	}
}

// TestQueuedSignalsSurviveSessions: a child queues numbered signals while sessions come
// and go and foo is hit. They arrive in order, with their values and their si_code.
func TestQueuedSignalsSurviveSessions(t *testing.T) {
	prog := start(t, "edge")
	const signals = 3000
	prog.Send(fmt.Sprintf("receive %d", signals))
	for range 20 {
		s := attach(t, prog.PID(), kprobes.Options{})
		register(t, s, boosted.probe("foo"))
		closeSession(t, s)
	}
	if got := prog.Expect("did"); got != fmt.Sprintf("did %d", signals) {
		t.Errorf("the program says %q", got)
	}
	wantRight(t, prog)
}

// TestPIDNamespaceOfTheTarget: the target numbers processes differently, and ignores
// SIGTRAP, so that its siginfo and its action have to be looked at.
func TestPIDNamespaceOfTheTarget(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "edge", "namespace", testprog.Build(t, "signals"), "ignored")
			children, err := procfs.Children(prog.PID(), prog.PID())
			if err != nil || len(children) != 1 {
				t.Fatalf("children of %d: %v, %v", prog.PID(), children, err)
			}
			s := attach(t, children[0], kprobes.Options{})
			kp := m.probe("foo")
			register(t, s, kp)
			const calls = 10_000
			ran := prog.Do(fmt.Sprintf("run %d", calls), "ran")
			wantHits(t, kp, calls)
			if got := number(t, ran, "queued"); got != calls/10 {
				t.Errorf("%d queued signals arrived, want %d", got, calls/10)
			}
			closeSession(t, s)
			testprog.CheckClean(t, children[0])
			wantRight(t, prog)
		})
	}
}

// TestSlotIsNotRecycledUnderAHandler: a handler removes the probe it runs for and then has
// slots given out until the freed one must come up. The thread still goes on rightly.
func TestSlotIsNotRecycledUnderAHandler(t *testing.T) {
	prog := start(t, "edge")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := boosted.probe("foo")
	kp.PreHandler = func(*kprobes.Kprobe, *kprobes.Regs) int {
		if err := s.UnregisterKprobe(kp); err != nil {
			t.Error(err)
		}
		toggle(t, s, boosted.probe("main"), 2000)
		return 0
	}
	register(t, s, kp)
	prog.Do("foo 100", "did")
	wantHits(t, kp, 1)
	closeSession(t, s)
	wantRight(t, prog)
}
