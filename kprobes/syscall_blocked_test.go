package kprobes_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestHitsAtARawCall: one hit for each call, whatever it does; also when calls block there while
// other probes come and go, which stops all threads. The kernel may restart a call without any
// stop when job control changes its mind, so then there may be more.
func TestHitsAtARawCall(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "callsites")
			s := attach(t, prog.PID(), kprobes.Options{})
			kp := m.probe("raw_site")
			posts := uint64(0)
			if m == stepped {
				kp.PostHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs, _ uint64) {
					posts++
					if v := int64(r.ReturnValue()); v <= -512 && v >= -516 { // ERESTARTSYS and its like
						t.Errorf("a PostHandler sees the result %d, which no program does", v)
					}
				}
			}
			register(t, s, kp)
			prog.Do("raw 1000", "did")
			wantHits(t, kp, 1000)
			prog.Do("same 500", "did")
			wantHits(t, kp, 1000+8+4*500)
			prog.Do("block", "did")
			toggle(t, s, m.probe("main"), 2000) // long enough that slots are collected
			answer(prog, "wake")
			before := kp.Hits()
			if want := uint64(1000 + 8 + 4*500 + 4); before != want { // three reads, and one of the vfork child
				t.Errorf("%d hits, want %d", before, want)
			}
			if m == stepped && posts != before {
				t.Errorf("%d PostHandlers ran of %d hits", posts, before)
			}
			prog.Do("block", "did")
			const stops = 5
			for range stops {
				jobControl(t, prog)
			}
			answer(prog, "wake")
			if n := kp.Hits() - before; n < 4 || n > 4+3*stops {
				t.Errorf("%d hits of 4 calls under job control", n)
			}
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

// jobControl stops a process and lets it go on.
func jobControl(t testing.TB, prog *testprog.Prog) {
	t.Helper()
	for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGCONT} {
		if err := prog.Signal(sig); err != nil {
			t.Fatal(err)
		}
		waitStopped(t, prog.PID(), sig == unix.SIGSTOP)
	}
}

// TestIgnoredSignalAtABlockedCall: a signal without a handler, which the tracer is told of all the
// same, neither ends the call that it finds a thread in nor makes a second hit of it.
func TestIgnoredSignalAtABlockedCall(t *testing.T) {
	for _, m := range modes {
		for _, sig := range []unix.Signal{unix.SIGWINCH, unix.SIGCONT} {
			t.Run(fmt.Sprintf("%s/%s", m, unix.SignalName(sig)), func(t *testing.T) {
				prog := start(t, "callsites")
				answer(prog, "block")
				want := answer(prog, "wake")
				s := attach(t, prog.PID(), kprobes.Options{})
				kp := m.probe("raw_site")
				register(t, s, kp)
				answer(prog, "block")
				nudge(t, prog.PID(), sig)
				compareAnswers(t, "wake", answer(prog, "wake"), want)
				if kp.Hits() < 4 || sig != unix.SIGCONT && kp.Hits() > 4 { // SIGCONT may restart a call without a stop
					t.Errorf("%d hits, want 4", kp.Hits())
				}
				closeSession(t, s)
				wantRight(t, prog)
			})
		}
	}
}

// nudge sends a signal to all threads but the first, a few times.
func nudge(t testing.TB, pid int, sig unix.Signal) {
	t.Helper()
	tids, err := procfs.Tasks(pid)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		for _, tid := range tids[1:] {
			if err := unix.Tgkill(pid, tid, sig); err != nil {
				t.Errorf("thread %d is gone: %v", tid, err)
				return
			}
			waitTaken(t, pid, tid, sig)
		}
	}
}

// waitTaken waits until a signal that was sent to a thread is not pending any more.
func waitTaken(t testing.TB, pid, tid int, sig unix.Signal) {
	t.Helper()
	testprog.Await(t, fmt.Sprintf("a thread %d that took %v", tid, sig), func() bool {
		st, err := procfs.ReadStatus(pid, tid)
		return err != nil || !st.SigPnd.Has(int(sig)) || st.State == 'D' // a vfork's parent takes none
	})
}

// waitStopped waits until job control has stopped all threads of a process, but those that wait
// for a vfork child, or none.
func waitStopped(t testing.TB, pid int, want bool) {
	t.Helper()
	testprog.Await(t, fmt.Sprintf("process %d with all threads stopped: %v", pid, want), func() bool {
		tids, err := procfs.Tasks(pid)
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(tids, func(tid int) bool {
			st, err := procfs.ReadStat(pid, tid)
			return err == nil && strings.ContainsRune("tT", rune(st.State)) != want && (!want || st.State != 'D')
		})
	})
}

// TestDetachFromBlockedCalls: the session ends while threads block in calls that were hits. The
// calls go on and return what they must.
func TestDetachFromBlockedCalls(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "callsites")
			answer(prog, "block")
			want := answer(prog, "wake")
			sites := syscallSites(t, prog.PID())
			for range 3 {
				s := attach(t, prog.PID(), kprobes.Options{})
				probeAll(t, s, m, sites)
				answer(prog, "block")
				closeSession(t, s)
				prog.CheckClean()
				compareAnswers(t, "wake", answer(prog, "wake"), want)
			}
			answer(prog, "block") // and the other way: they block before there is a session
			s := attach(t, prog.PID(), kprobes.Options{})
			probeAll(t, s, m, sites)
			compareAnswers(t, "wake", answer(prog, "wake"), want)
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

// TestTimeoutsUnderProbesAndJobControl: calls with timeouts, stopped and continued in the
// middle. The kernel takes some up again by restart_syscall(2), which then end by their timeouts;
// epoll_wait and sigtimedwait fail with EINTR (signal(7)). One that a stop of ours has found is made again, and meanwhile
// the program's stop does not find the thread in it: another one does.
func TestTimeoutsUnderProbesAndJobControl(t *testing.T) {
	stopped := func(prog *testprog.Prog) []string {
		prog.Do("expiring 1000", "did")
		jobControl(t, prog)
		for cut := ""; cut != "cut 2"; prog.Expect("did") {
			jobControl(t, prog)
			cut = prog.Do("cut", "cut")
		}
		return answer(prog, "expired")
	}
	prog := start(t, "callsites")
	expire, want := answer(prog, "expire 10"), stopped(prog)
	for _, m := range modes {
		s := attach(t, prog.PID(), kprobes.Options{})
		probeAll(t, s, m, syscallSites(t, prog.PID()))
		compareAnswers(t, "expire "+string(m), answer(prog, "expire 10"), expire)
		compareAnswers(t, "stopped "+string(m), stopped(prog), want)
		closeSession(t, s)
	}
	wantRight(t, prog)
}
