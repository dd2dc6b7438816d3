package ptrace

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// goOn is a prober of the same program, which the last one has let go.
func (k *prober) goOn() *prober {
	k.t.Helper()
	k.tr.Close()
	next := newProber(k.t, "call")
	next.bin, next.prog = k.bin, k.prog
	next.attach(k.prog.PID())
	return next
}

// TestADetachLosesNoSignal, and changes none: it comes when signals are held, sent again, being delivered and queued. The program checks each of its own.
func TestADetachLosesNoSignal(t *testing.T) {
	for _, c := range []struct{ fixture, arg, command, did, then string }{
		{"signals", "default", "run 150", "ran 150", ""},
		{"signals", "handled", "run 150", "ran 150", ""},
		{"signals", "blocked", "run 150", "ran 150", ""},
		{"signals", "ignored", "run 150", "ran 150", ""},
		{"rev_jail", "", "queue 300", "did 300", "foo 50"},
	} {
		t.Run(c.fixture+" "+c.arg, func(t *testing.T) {
			k := probe(t, c.fixture, c.arg)
			at := k.symbol("foo")
			for round := range 6 {
				if round > 0 {
					k = k.goOn()
				}
				k.do(func() error {
					return k.p.Space.Freeze(func(*Frozen) error { k.plant(at); return k.p.NoteTrapAction() })
				})
				k.prog.Send(c.command)
				if c.then != "" {
					k.prog.Send(c.then)
				}
				testprog.Await(t, "hits", func() (enough bool) {
					k.do(func() error { enough = k.hits > 3*round; return nil })
					return enough
				})
				k.release()
				k.prog.Expect(c.did)
				if c.then != "" {
					k.prog.Expect("did 50")
				}
			}
			if got := k.prog.Quit(); got != "right" {
				t.Errorf("the program says %q, want right", got)
			}
		})
	}
}

// TestAHandlerMayLetItsProcessGo, whatever it is told of; the program goes on from there.
func TestAHandlerMayLetItsProcessGo(t *testing.T) {
	for _, when := range []string{"hit", "step", "signal", "entry", "return"} {
		t.Run(when, func(t *testing.T) {
			k := &leaver{prober: newProber(t, "call"), when: when}
			k.prog = testprog.Start(t, k.bin)
			k.tr, k.p = attachKeeper(t, k, k.prog.PID())
			t.Cleanup(k.tr.Close)
			at := k.symbol("probed")
			k.do(func() error { k.plant(at); return k.p.Space.TraceSyscalls(map[uint64]bool{unix.SYS_WRITE: true}) })
			if when == "signal" {
				must(unix.Kill(k.prog.PID(), unix.SIGUSR1))
			}
			if got := k.prog.Do("go 27", "ret"); got != "ret 9" {
				t.Errorf("the program says %q", got)
			}
			testprog.Await(t, "a process that was let go", func() (left bool) {
				k.do(func() error { left = k.p.dropped; return nil })
				return left
			})
			k.prog.CheckClean()
			if got := k.prog.Quit(); got != "right" {
				t.Errorf("the program says %q, want right", got)
			}
		})
	}
}

// leaver lets its process go when it is told of something.
type leaver struct {
	*prober
	when string
}

func (k *leaver) leave(when string, th *Thread) bool {
	if k.when != when || k.p.dropped {
		return false
	}
	must(k.p.Space.Freeze(func(*Frozen) error {
		for at := range k.taken {
			k.remove(at)
		}
		clear(k.taken)
		if when == "hit" || when == "step" {
			th.Go(RunOn())
		}
		return k.tr.Detach(k.p)
	}))
	return true
}

func (k *leaver) Breakpoint(th *Thread) Verdict {
	if k.when != "hit" {
		return k.prober.Breakpoint(th)
	}
	regs := must2(th.Regs())
	if regs.SetIP(regs.IP() - 1); !k.leave("hit", th) {
		return NotOurs()
	}
	return AsTold()
}

func (k *leaver) SingleStepped(th *Thread) Verdict {
	if k.leave("step", th) {
		return AsTold()
	}
	return k.prober.SingleStepped(th)
}

func (k *leaver) Signal(th *Thread, info *Siginfo) (Delivery, Verdict) {
	k.leave("signal", th)
	return k.prober.Signal(th, info)
}

func (k *leaver) SyscallEntered(th *Thread) bool { k.leave("entry", th); return true }
func (k *leaver) SyscallReturned(th *Thread)     { k.leave("return", th) }

// TestAStoppedProcessIsLetGoStopped: SIGCONT has it go on, for whoever stopped it.
func TestAStoppedProcessIsLetGoStopped(t *testing.T) {
	k := probe(t, "threads", "3")
	pid := k.prog.PID()
	k.prog.Send("start")
	must(unix.Kill(pid, unix.SIGSTOP))
	testprog.Await(t, "a group-stop of all threads", func() (all bool) {
		k.do(func() error {
			all = true
			for _, th := range k.p.Threads() {
				all = all && th.job.grouped
			}
			return nil
		})
		return all
	})
	k.release()
	for _, tid := range tids(t, pid) {
		testprog.Await(t, fmt.Sprintf("a stop of thread %d", tid), func() bool {
			return must2(procfs.ReadStatus(pid, tid)).State == 'T'
		})
	}
	must(unix.Kill(pid, unix.SIGCONT))
	k.prog.Do("stop", "calls")
	if got := k.prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// TestAPartingLeavesThreadsAsTheirOwn: the tracer dies without another word, after it has stepped a thread and held a signal. The thread has no step to make,
// its own mask, and gets the signal once.
func TestAPartingLeavesThreadsAsTheirOwn(t *testing.T) {
	for n, steps := range []int{0, 0, 1, 7} {
		k := probe(t, "fails")
		k.noMasks = n == 0 // then the signal is kept here
		mask := k.blocks(k.prog.PID())
		at := k.symbol("work")
		k.onHit = func(th *Thread, _ arch.Regs) {
			must(k.p.Space.Freeze(func(frozen *Frozen) error {
				k.remove(at)
				th.Go(RunOn())
				th.hold(siginfoOf(unix.SIGUSR1, siTkill))
				for range steps {
					must(k.p.Space.Step(th))
				}
				if k.p.Space.Part(frozen); th.stepping || th.owed.any() {
					t.Errorf("after %d steps one is in force: %v; a signal is held: %v", steps, th.stepping, th.owed.any())
				}
				if now := k.blocks(th.TID); now != mask {
					t.Errorf("it blocks %x, before %x", now, mask)
				}
				runtime.Goexit() // the tracer's thread ends, as if it were killed
				return nil
			}))
		}
		k.do(func() error { k.plant(at); return nil })
		if got := k.prog.Do("run 5", "failed"); got != "failed 0:" {
			t.Errorf("after %d steps the program says %q", steps, got)
		}
		if got := k.prog.Do("usr1", "usr1"); got != "usr1 1" {
			t.Errorf("after %d steps the program says %q", steps, got)
		}
		k.prog.CheckClean()
		if got := k.prog.Quit(); got != "right" {
			t.Errorf("the program says %q, want right", got)
		}
	}
}

// TestAnIgnoredSignalEndsNoCall: without a tracer the kernel would not have queued it. The program says if a call of its ends with EINTR.
func TestAnIgnoredSignalEndsNoCall(t *testing.T) {
	k := probe(t, "waits", "3")
	all := tids(t, k.prog.PID())
	for _, tid := range all {
		testprog.Await(t, "a thread that waits", func() bool { return must2(procfs.ReadStatus(k.prog.PID(), tid)).State == 'S' })
	}
	told := map[unix.Signal]int{}
	k.onSignal = func(_ *Thread, info *Siginfo) (Delivery, Verdict) { told[info.Signo()]++; return Deliver, AsTold() }
	signals := []unix.Signal{unix.SIGURG, unix.SIGWINCH, unix.SIGCHLD}
	for n := range 5 {
		for _, tid := range all {
			for _, sig := range signals {
				must(unix.Tgkill(k.prog.PID(), tid, sig))
				testprog.Await(t, "the signal", func() (came bool) {
					k.do(func() error { came = told[sig] >= n*len(all)+1; return nil })
					return came
				})
			}
		}
	}
	k.do(func() error {
		for _, th := range k.p.Threads() {
			if th.job.stopped {
				t.Errorf("thread %d is taken for stopped", th.TID)
			}
		}
		return nil
	})
	k.prog.Do("call 4", "ret 117")
	k.end()
}

// TestAChildThatSharesTheMemoryBelongsToIt, from its birth to its end: its parent waits for it, and can't be asked for anything meanwhile.
func TestAChildThatSharesTheMemoryBelongsToIt(t *testing.T) {
	k := probe(t, "family")
	at := k.symbol("foo")
	k.do(func() error { k.plant(at); return nil })
	k.prog.Do("vfork", "child")
	k.do(func() error {
		if !k.p.InsideVfork() || !k.p.Space.Shared() || len(k.p.Space.Processes()) != 2 || k.p.Space.Ending() {
			t.Errorf("inside vfork: %v, the memory is shared: %v", k.p.InsideVfork(), k.p.Space.Shared())
		}
		if err := k.p.Remote(func(*Remote) error { return nil }); err == nil {
			t.Error("the parent can be asked")
		}
		return k.p.Space.Freeze(func(*Frozen) error {
			for _, th := range k.p.Space.Threads() {
				if th.Stopped() == (th.Proc == k.p) || th.RunsUserCode() != th.Stopped() {
					t.Errorf("thread %d of process %d is stopped: %v", th.TID, th.Proc.PID, th.Stopped())
				}
			}
			return k.p.Space.Remote(func(r *Remote) error { // by the child
				if pid, err := r.Syscall(unix.SYS_GETPPID); err != nil || int(pid) != k.p.PID {
					t.Errorf("the child's parent is %d, %v", pid, err)
				}
				return nil
			})
		})
	})
	if got := k.prog.Do("end", "back"); got != "back 56" || k.hits != 2 {
		t.Errorf("the program says %q, %d hits", got, k.hits)
	}
	k.do(func() error {
		if k.p.InsideVfork() || k.p.Space.Shared() {
			t.Error("the child is there still")
		}
		return nil
	})
	for _, event := range []string{"shared", "vfork ended", "exited 45"} {
		if k.seen(event) != 1 {
			t.Errorf("events: %v", k.events)
		}
	}
	if got := k.prog.Do("spawn 20", "spawned"); got != "spawned 20" || k.hits != 22 {
		t.Errorf("the program says %q, %d hits", got, k.hits)
	}
	k.end()
}
