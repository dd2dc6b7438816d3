package ptrace

import (
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// delayed waits for a thread of the program's that is delayed.
func (k *prober) delayed() (th *Thread) {
	k.t.Helper()
	testprog.Await(k.t, "a delayed thread", func() bool {
		k.do(func() error {
			for _, other := range k.p.Threads() {
				if other.Delayed() {
					th = other
				}
			}
			return nil
		})
		return th != nil
	})
	return th
}

// TestADelayedThreadGoesOnByItself, from a hit and at the return from a call; many times, without a stop more than without.
func TestADelayedThreadGoesOnByItself(t *testing.T) {
	k := probe(t, "call")
	at := k.symbol("probed")
	k.onHit = func(th *Thread, regs arch.Regs) { th.Delay(time.Millisecond) }
	k.onEntry = func(th *Thread) bool { th.Delay(time.Millisecond); return true }
	k.do(func() error { k.plant(at); return k.p.Space.TraceSyscalls(map[uint64]bool{unix.SYS_WRITE: true}) })
	for n := range 10 {
		if got := k.prog.Do("go 27", "ret"); got != "ret 9" {
			t.Errorf("the program says %q", got)
		}
		testprog.Await(t, "a return from the call", func() bool { return k.seen("returned") > n })
	}
	k.do(func() error { return k.p.Space.TraceSyscalls(nil) })
	if k.hits != 10 || k.seen("returned") != 10 {
		t.Errorf("%d hits, %d calls", k.hits, k.seen("returned"))
	}
	k.end()
}

// TestDelaysAddUp, to no more than there is; outside of a Handler method there is none.
func TestDelaysAddUp(t *testing.T) {
	th := &Thread{state: stopped, handled: true, at: &standing{}}
	for _, c := range []struct{ more, want time.Duration }{{1, 1}, {2, 3}, {0, 3}, {-5, 3}, {math.MaxInt64, math.MaxInt64}, {1, math.MaxInt64}} {
		if th.Delay(c.more); th.at.wait != c.want {
			t.Errorf("after %d more it is %d, want %d", c.more, th.at.wait, c.want)
		}
	}
	for _, th := range []*Thread{{state: stopped, at: &standing{}}, {handled: true, at: &standing{}}} {
		if th.Delay(1); th.at.wait != 0 {
			t.Error("a thread that no method is about is delayed")
		}
	}
}

// TestSignalsWaitForADelayedThread in the kernel, and come when it is over, in the order that they would come in.
func TestSignalsWaitForADelayedThread(t *testing.T) {
	k := probe(t, "signals", "alarms")
	at := k.symbol("foo")
	k.onHit = func(th *Thread, _ arch.Regs) { th.Delay(math.MaxInt64) }
	told := []unix.Signal{}
	k.onSignal = func(_ *Thread, info *Siginfo) (Delivery, Verdict) {
		if sig := info.Signo(); sig != unix.SIGALRM {
			told = append(told, sig)
			return Drop, AsTold()
		}
		return Deliver, AsTold()
	}
	k.do(func() error { k.plant(at); return nil })
	k.prog.Send("run 1")
	th := k.delayed()
	sent := []unix.Signal{unix.SIGUSR2, unix.SIGHUP, unix.SIGUSR1}
	for _, sig := range sent {
		must(unix.Tgkill(k.p.PID, th.TID, sig))
	}
	k.do(func() error {
		st := must2(procfs.ReadStatus(k.p.PID, th.TID))
		for _, sig := range sent {
			if !st.SigPnd.Has(int(sig)) {
				t.Errorf("%s does not wait", unix.SignalName(sig))
			}
		}
		if len(told) > 0 || !th.Stopped() || th.Stop().Reason != Interrupt {
			t.Errorf("told of %v, it has stopped for %s", told, th.Stop())
		}
		k.onHit = nil
		k.tr.unpark(th)
		return nil
	})
	k.prog.Expect("ran 1 ")
	k.do(func() error { return nil })
	if len(told) != 3 || told[0] != unix.SIGHUP || told[1] != unix.SIGUSR1 || told[2] != unix.SIGUSR2 {
		t.Errorf("told of %v", told)
	}
	k.end()
}

// TestASignalThatIsDelayedIsDeliveredBehindThat, once, with its own siginfo, in its order: one that the kernel keeps, and those that queue.
func TestASignalThatIsDelayedIsDeliveredBehindThat(t *testing.T) {
	for _, c := range []struct{ fixture, command, did string }{{"fails", "usr1", "usr1 1"}, {"rev_jail", "queue 20", "did 20"}} {
		k := probe(t, c.fixture)
		delays := 0
		k.onSignal = func(th *Thread, info *Siginfo) (Delivery, Verdict) {
			if info.Signo() != unix.SIGCHLD && (info.Signo() != unix.SIGUSR1 || delays == 0) { // that one is told of once more
				delays++
				th.Delay(time.Millisecond)
			}
			return Deliver, AsTold()
		}
		if c.fixture == "fails" {
			must(unix.Kill(k.p.PID, unix.SIGUSR1))
			testprog.Await(t, "a delay that is over", func() (over bool) {
				k.do(func() error { over = delays > 0 && !k.p.Leader().Delayed(); return nil })
				return over
			})
		}
		if got := k.prog.Do(c.command, ""); got != c.did {
			t.Errorf("the program says %q, want %q", got, c.did)
		}
		k.end()
	}
}

// TestAFreezeDoesNotShortenADelay, and finds the thread where it goes on.
func TestAFreezeDoesNotShortenADelay(t *testing.T) {
	k := probe(t, "call")
	at := k.symbol("probed")
	none := k.symbol("none")
	k.onHit = func(th *Thread, regs arch.Regs) { regs.SetIP(none); th.Delay(math.MaxInt64) }
	k.do(func() error { k.plant(at); return nil })
	k.prog.Send("go 27")
	th := k.delayed()
	for range 5 {
		k.do(func() error {
			return k.p.Space.Freeze(func(*Frozen) error {
				if regs := must2(th.Regs()); regs.IP() != none || !th.Stopped() || !th.Delayed() {
					t.Errorf("it stands at %s, delayed: %v", regs.IP(), th.Delayed())
				}
				return nil
			})
		})
	}
	k.do(func() error { k.tr.unpark(th); return nil })
	if got := k.prog.Expect("ret"); got != "ret 4711" {
		t.Errorf("the program says %q", got)
	}
	k.end()
}

// TestADelayedThreadCanBeKilled: its end is told of at once.
func TestADelayedThreadCanBeKilled(t *testing.T) {
	k := probe(t, "call")
	at := k.symbol("probed")
	k.onHit = func(th *Thread, regs arch.Regs) { th.Delay(math.MaxInt64) }
	k.do(func() error { k.plant(at); return nil })
	k.prog.Send("go 27")
	k.delayed()
	must(unix.Kill(k.p.PID, unix.SIGKILL))
	testprog.Await(t, "its end", func() bool { return k.seen("exited 137") == 1 })
	if k.seen("exit") != 1 {
		t.Errorf("events: %v", k.events)
	}
}

// TestAStoppedProcessStaysStoppedBehindADelay: the stop signal comes while one of its threads is delayed.
func TestAStoppedProcessStaysStoppedBehindADelay(t *testing.T) {
	k := probe(t, "call")
	at := k.symbol("probed")
	k.onHit = func(th *Thread, regs arch.Regs) { th.Delay(math.MaxInt64) }
	k.do(func() error { k.plant(at); return nil })
	k.prog.Send("go 27")
	th := k.delayed()
	must(unix.Kill(k.p.PID, unix.SIGSTOP))
	k.do(func() error { k.onHit = nil; k.tr.unpark(th); return nil })
	testprog.Await(t, "a group-stop", func() (grouped bool) {
		k.do(func() error { grouped = th.job.grouped; return nil })
		return grouped
	})
	must(unix.Kill(k.p.PID, unix.SIGCONT))
	if got := k.prog.Expect("ret"); got != "ret 9" {
		t.Errorf("the program says %q", got)
	}
	k.end()
}
