package ptrace

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestFewThreadsAreAwayAtOnceDuringAnAttach: of hundreds, no more have stopped, or were asked to, than are dealt with in a moment. All are stopped once.
func TestFewThreadsAreAwayAtOnceDuringAnAttach(t *testing.T) {
	const threads = 300
	prog := testprog.Start(t, testprog.Build(t, "threads"), "299")
	tr, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	most := 0
	tr.OnEvent(func() {
		away := 0
		for _, th := range tr.threads {
			if th.state == stopped || th.asked {
				away++
			}
		}
		most = max(most, away)
	})
	var p *Process
	whileHeld(t, tr, func() {}, func() error {
		p, err = tr.Attach(prog.PID())
		return err
	})
	tr.OnEvent(nil)
	whileHeld(t, tr, func() {}, func() error {
		for _, th := range p.Threads() {
			if !th.seen {
				t.Errorf("thread %d has not stopped", th.TID)
			}
		}
		if len(p.threads) != threads || most == 0 || most > passTogether {
			t.Errorf("of %d threads %d were away at once, want 1 to %d of %d", len(p.threads), most, passTogether, threads)
		}
		return tr.Detach(p)
	})
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// TestFewThreadsAreWokenAtOnceForAFreeze: of hundreds that wait in system calls, no more are asked to stop than have the processors to themselves for a moment. All
// stand while the function runs.
func TestFewThreadsAreWokenAtOnceForAFreeze(t *testing.T) {
	const threads = 3 * askedTogether
	k := probe(t, "threads", "383")
	most := 0
	k.do(func() error {
		k.tr.OnEvent(func() {
			woken := 0
			for th := range k.p.Space.all() {
				if th.asked && th.state == running {
					woken++
				}
			}
			most = max(most, woken)
		})
		return k.p.Space.Freeze(func(*Frozen) error {
			for th := range k.p.Space.all() {
				if th.state != stopped {
					t.Errorf("thread %d does not stand in a Freeze", th.TID)
				}
			}
			return nil
		})
	})
	k.do(func() error { k.tr.OnEvent(nil); return nil })
	if n := len(k.p.threads); n != threads || most == 0 || most > 2*askedTogether {
		t.Errorf("of %d threads %d were asked at once, want 1 to %d of %d", n, most, 2*askedTogether, threads)
	}
	k.end()
}

// TestThreadsAreHeldAroundAFreeze: some at a time, they stand from StopIdle to LetIdle, and a Freeze in between gives back only others. Where there are few threads none is held.
func TestThreadsAreHeldAroundAFreeze(t *testing.T) {
	k := probe(t, "threads", "599")
	standing := func() (n int) {
		k.do(func() error {
			for th := range k.p.Space.all() {
				if th.state == stopped {
					n++
				}
			}
			return nil
		})
		return n
	}
	calls := func(f func() bool) (n int) {
		for more := true; more; n++ {
			k.do(func() error { more = f(); return nil })
		}
		return n
	}
	freeze := func() {
		k.do(func() error {
			return k.p.Space.Freeze(func(*Frozen) error {
				for th := range k.p.Space.all() {
					if th.state != stopped {
						t.Errorf("thread %d does not stand in a Freeze", th.TID)
					}
				}
				return nil
			})
		})
	}
	// waiting: a thread that was let go is back in its call only a moment later.
	waiting := func() {
		for _, tid := range must2(procfs.Tasks(k.prog.PID())) {
			testprog.Await(t, "a thread that waits", func() bool { b, err := procfs.ReadBlocked(k.prog.PID(), tid); return err == nil && b.Number >= 0 })
		}
	}
	waiting()
	freeze() // from here on it is known who waits
	for range 3 {
		waiting()
		if n := calls(k.p.Space.StopIdle); n != 3 || standing() != 600 {
			t.Errorf("in %d calls %d threads were stopped, want 600 in 3", n, standing())
		}
		freeze()
		if n := standing(); n != 600 {
			t.Errorf("after a Freeze %d threads are held, want 600", n)
		}
		if n := calls(k.tr.LetIdle); n != 3 || standing() != 0 {
			t.Errorf("after %d calls %d threads are held, want 0 after 3", n, standing())
		}
		freeze()
		if n := standing(); n != 0 {
			t.Errorf("after a Freeze %d threads stand", n)
		}
		k.prog.Do("go 1", "went 599")
	}
	waiting()
	calls(k.p.Space.StopIdle)
	k.do(func() error { k.tr.LetIdle(); return nil })
	freeze()
	if n := standing(); n != 0 {
		t.Errorf("after a Freeze between two steps in which they are given back %d threads are held", n)
	}
	calls(k.tr.LetIdle)
	waiting()
	calls(k.p.Space.StopIdle)
	k.do(func() error {
		return k.p.Space.Freeze(func(*Frozen) error { k.tr.LetAllIdle(); return nil })
	})
	if n := standing(); n != 600 {
		t.Errorf("after a Freeze in which they were to be given back %d threads are held, want 600", n)
	}
	k.do(func() error { k.tr.LetAllIdle(); return nil })
	if n := standing(); n != 0 {
		t.Errorf("%d threads are held, and were given back at once", n)
	}
	calls(k.p.Space.StopIdle)
	k.end() // lets all go that are held

	few := probe(t, "threads", "3")
	few.do(func() error { return few.p.Space.Freeze(func(*Frozen) error { return nil }) })
	few.do(func() error {
		if few.p.Space.StopIdle() || few.p.Space.held {
			t.Error("of few threads some are held")
		}
		return nil
	})
	few.end()
}

// TestAMaskIsReadOnceInAStop: what we change it to is seen at once, and in the next stop it is read again.
func TestAMaskIsReadOnceInAStop(t *testing.T) {
	k := probe(t, "threads", "3")
	frozen := func(f func(th *Thread)) {
		k.do(func() error { return k.p.Space.Freeze(func(*Frozen) error { f(k.p.Leader()); return nil }) })
	}
	var own Sigset
	usr := sigbit(unix.SIGUSR1)
	frozen(func(th *Thread) {
		own = must2(th.sigmask())
		th.at.mask ^= usr
		if m := must2(th.sigmask()); m != own^usr {
			t.Errorf("the mask is read again: %x, want %x", m, own^usr)
		}
	})
	frozen(func(th *Thread) {
		if m := must2(th.sigmask()); m != own {
			t.Errorf("in the next stop the mask is %x, want %x", m, own)
		}
		for _, set := range []Sigset{own | usr, own} {
			if err := th.setSigmask(set); err != nil {
				t.Error(err)
			}
			if m := must2(th.sigmask()); m != set {
				t.Errorf("the mask is %x, was made %x", m, set)
			}
		}
		insideRemote := Sigset(0)
		if err := th.remote(func(r *Remote) error {
			insideRemote = must2(th.sigmask())
			_, err := r.Syscall(unix.SYS_GETPID)
			return err
		}); err != nil {
			t.Error(err)
		}
		if m := must2(th.sigmask()); m != own || insideRemote == own {
			t.Errorf("behind a call for us the mask is %x and was %x in it, want %x and another one", m, insideRemote, own)
		}
	})
	k.end()
}

// TestChildrenAreTheSameFromWhateverSide: of a process with many threads the processes are asked for their parent, of others the threads for their children.
func TestChildrenAreTheSameFromWhateverSide(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "siblings"))
	parent := must2(procfs.ReadStat(prog.PID(), 0)).PPid
	if _, ok := fewerProcesses(parent, manyThreads-1); ok {
		t.Error("processes are asked in place of few threads")
	}
	got, ok := fewerProcesses(parent, 1<<22)
	if !ok || !slices.Contains(got, prog.PID()) {
		t.Errorf("the children are %v, %v: %d is missing", got, ok, prog.PID())
	}
	for _, pid := range got {
		if st, err := procfs.ReadStat(pid, 0); err == nil && st.PPid != parent {
			t.Errorf("%d is no child", pid)
		}
	}
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// TestAmongTellsWhoseThreadItIs: of a thread of another process, and of none, it says no; of one that can't be signalled, yes.
func TestAmongTellsWhoseThreadItIs(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "threads"), "3")
	tids := must2(procfs.Tasks(prog.PID()))
	for _, tid := range tids {
		if !among(prog.PID(), tid) || among(os.Getpid(), tid) {
			t.Errorf("thread %d is not taken for one of %d alone", tid, prog.PID())
		}
	}
	if among(prog.PID(), os.Getpid()) || among(prog.PID(), 1<<30) {
		t.Error("a thread of others, or none, is taken for the program's")
	}
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// TestWhoRunsIsAwayForTheLeastOfAFreeze: it is asked to stop when those stand that wait in system calls, and is let go before them.
func TestWhoRunsIsAwayForTheLeastOfAFreeze(t *testing.T) {
	k := probe(t, "threads", "3") // three that call, and the main thread, which reads
	k.prog.Send("start")
	freeze := func() { k.do(func() error { return k.p.Space.Freeze(func(*Frozen) error { return nil }) }) }
	testprog.Await(t, "three threads that run", func() bool {
		freeze()
		idle := 0
		k.do(func() error {
			for th := range k.p.Space.all() {
				if th.idle {
					idle++
				}
			}
			return nil
		})
		return idle == 1
	})
	check := func() {
		main := k.p.Leader()
		for th := range k.p.Space.all() {
			if th != main && (th.asked || th.state == stopped) && main.state == running {
				t.Error("a thread that runs is asked to stop, or stands, and one that waits in the kernel is not")
			}
		}
	}
	for range 20 {
		k.do(func() error { k.tr.OnEvent(check); return nil })
		freeze()
		k.do(func() error { k.tr.OnEvent(nil); return nil })
	}
	k.prog.Do("stop", "calls")
	k.end()
}
