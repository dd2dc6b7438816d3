package ptrace

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestALookMustPay: a look goes on if hits come at a rate that is higher by half than that of
// hits that trap.
func TestALookMustPay(t *testing.T) {
	const trapped = 4 * time.Microsecond
	for _, c := range []struct {
		hits int
		in   time.Duration
		pays bool
	}{
		{1000, 300 * time.Microsecond, true},
		{1000, 2600 * time.Microsecond, true},
		{1000, 2700 * time.Microsecond, false},
		{1000, 4 * time.Millisecond, false},
		{0, time.Microsecond, false},
		{2, time.Microsecond, false},
	} {
		now := time.Now()
		p := poll{trapped: trapped, since: now.Add(-c.in), hits: c.hits}
		if got := p.pays(now); got != c.pays {
			t.Errorf("%d hits in %v: pays %v, want %v", c.hits, c.in, got, c.pays)
		}
	}
	if now := time.Now(); (&poll{since: now.Add(-time.Second), hits: 1000}).pays(now) {
		t.Error("a look pays though nothing is known of traps")
	}
}

// TestALookIsJudgedAfterATrial, and ended now and then though it pays, to measure again.
func TestALookIsJudgedAfterATrial(t *testing.T) {
	begin := time.Now()
	for _, c := range []struct {
		name            string
		after, measured time.Duration
		hits            int
		vain            bool
	}{
		{"too early", trial / 2, 0, 0, false},
		{"no hits", trial, 0, 0, true},
		{"many hits", trial, 0, 100_000, false},
		{"measured long ago", trial, remeasure, 100_000, true},
	} {
		p := poll{trapped: 4 * time.Microsecond, since: begin, hits: c.hits, measured: begin.Add(-c.measured)}
		if got := p.vain(begin.Add(c.after)); got != c.vain {
			t.Errorf("%s: vain %v, want %v", c.name, got, c.vain)
		}
	}
}

// TestLooksThatFailAreRare: a failed look is a small share of the time.
func TestLooksThatFailAreRare(t *testing.T) {
	p := poll{}
	now := time.Now()
	last := time.Duration(0)
	for range 30 {
		p.fail(now, 3*time.Millisecond)
		if p.pause < waste*3*time.Millisecond || p.pause < last || p.pause > maxPause {
			t.Fatalf("a pause of %v after one of %v", p.pause, last)
		}
		last = p.pause
	}
	if last != maxPause {
		t.Errorf("the longest pause is %v, want %v", last, maxPause)
	}
}

// TestTheCheapestSampleCounts: what else the machine does makes single samples too high.
func TestTheCheapestSampleCounts(t *testing.T) {
	p := poll{}
	now := time.Now()
	for i, cost := range []time.Duration{0, 90, 5, 200, 7} {
		now = now.Add(cost * time.Microsecond * someHits)
		p.skip = (samples - i) * someHits
		p.sample(now)
	}
	if p.trapped != 5*time.Microsecond || !p.measured.Equal(now) {
		t.Errorf("a hit that traps costs %v, want 5µs", p.trapped)
	}
}

// halted runs f while a thread that runs is halted.
func (k *prober) halted(th *Thread, f func(regs arch.Regs)) {
	k.t.Helper()
	k.do(func() error {
		if err := th.Halt(); err != nil {
			return err
		}
		defer th.Proceed()
		if !th.Stopped() || !th.handled {
			k.t.Errorf("it is stopped: %v, handled: %v", th.Stopped(), th.handled)
		}
		regs, err := th.Regs()
		if err == nil {
			f(regs)
		}
		return err
	})
}

// TestAHaltedThreadIsLikeOneOfAHandlers: its registers are there, it makes calls, and it goes on where it was, at work and in a system call that waits.
func TestAHaltedThreadIsLikeOneOfAHandlers(t *testing.T) {
	k := probe(t, "call")
	none, landing := k.symbol("none"), k.symbol("recursed_target")
	k.do(func() error { k.plant(landing); return nil })
	for _, busy := range []bool{false, true} {
		if busy {
			k.prog.Send("shallow 100000")
		}
		for range 20 {
			k.halted(k.p.Leader(), func(regs arch.Regs) {
				th, before := k.p.Leader(), *regs.(*host.Regs)
				result := uint64(0)
				err := th.Call(Call{
					Enter:   func(r arch.Regs) error { return host.Arch.SetCall(r, k.p.Space, none, landing, nil) },
					Landing: landing, Timeout: testprog.Patience,
					Landed: func(r arch.Regs) { result = r.ReturnValue() },
					Left:   func() bool { return false },
				})
				if after := must2(th.hostRegs()); err != nil || result != 4711 || *after != before {
					t.Errorf("the call ends with %v and %d; the registers are as before: %v", err, result, *after == before)
				}
			})
		}
		if busy {
			k.prog.Expect("did 100000")
		}
	}
	k.end()
}

// TestASignalWaitsForAHaltedThread, and is delivered once when that proceeds.
func TestASignalWaitsForAHaltedThread(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "call"))
	l := listener{keeper{copied: map[int]*Space{}}, map[unix.Signal]int{}}
	tr, p := attachKeeper(t, l, prog.PID())
	defer tr.Close()
	whileHeld(t, tr, func() {
		must(unix.Kill(prog.PID(), unix.SIGUSR1))
		testprog.Await(t, "a stop for the signal", func() bool { return must2(procfs.ReadStatus(prog.PID(), 0)).State == 't' })
	}, func() error {
		th := p.Leader()
		if err := th.Halt(); err != nil {
			return err
		}
		if st := th.Stop(); l.told[unix.SIGUSR1] != 0 || !th.owed.any() {
			t.Errorf("stopped for %s; told of %d signals, something is held: %v", st, l.told[unix.SIGUSR1], th.owed.any())
		}
		th.Proceed()
		if th.owed.mask != nil {
			t.Error("it blocks signals still")
		}
		return nil
	})
	prog.Do("go 3", "ret 1")
	whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
	if got := l.told[unix.SIGUSR1]; got != 1 {
		t.Errorf("told of %d signals", got)
	}
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// TestAHaltedThreadOfAStoppedProcessStaysStopped: it goes back to its group-stop, and SIGCONT ends that.
func TestAHaltedThreadOfAStoppedProcessStaysStopped(t *testing.T) {
	k := probe(t, "call")
	must(unix.Kill(k.prog.PID(), unix.SIGSTOP))
	th := k.p.Leader()
	testprog.Await(t, "a group-stop", func() (stopped bool) {
		k.do(func() error { stopped = th.job.grouped; return nil })
		return stopped
	})
	for range 3 {
		k.halted(th, func(arch.Regs) {})
		k.do(func() error {
			if err := k.p.Space.Freeze(func(*Frozen) error { return nil }); err != nil || !th.job.grouped {
				t.Errorf("it is in a group-stop: %v, %v", th.job.grouped, err)
			}
			return nil
		})
	}
	must(unix.Kill(k.prog.PID(), unix.SIGCONT))
	k.prog.Do("go 3", "ret 1")
	k.end()
}

// TestAThreadThatEndsIsNotHalted.
func TestAThreadThatEndsIsNotHalted(t *testing.T) {
	k := probe(t, "call")
	th := k.p.Leader()
	k.do(func() error {
		must(unix.Kill(k.p.PID, unix.SIGKILL))
		if err := th.Halt(); !errors.Is(err, ErrExited) || th.handled {
			t.Errorf("%v; it is handled: %v", err, th.handled)
		}
		th.Proceed()
		return nil
	})
	testprog.Await(t, "its end", func() bool { return k.seen("exited 137") == 1 })
}

// looker notes what a tracer asks of a Poller.
type looker struct {
	looks []bool
	polls int // since the last look began
	empty int // looks that ended without a poll
}

func (l *looker) Look(on bool) {
	if !on && l.polls == 0 {
		l.empty++
	}
	l.looks, l.polls = append(l.looks, on), 0
}

func (l *looker) Poll() bool { l.polls++; return false }

// TestALookBeginsWithAHitAndEnds when nothing comes; the program's hits go on, and are each seen. A tracer with one processor does not look.
func TestALookBeginsWithAHitAndEnds(t *testing.T) {
	k := probe(t, "call")
	at := k.symbol("probed")
	k.onHit = func(th *Thread, _ arch.Regs) { k.tr.WouldPoll(th) }
	k.do(func() error { k.plant(at); return nil })
	check := func(poller Poller, always bool) {
		k.do(func() error {
			if k.tr.SetPoller(poller); always {
				k.tr.PollAlways()
			}
			k.hits = 0
			return nil
		})
		if got := k.prog.Do("many 40", "did"); got != "did 40" || k.hits != 40 {
			t.Errorf("the program says %q, %d hits", got, k.hits)
		}
		k.do(func() error { k.tr.SetPoller(nil); return nil })
	}
	l := &looker{}
	check(l, true)
	k.do(func() error {
		if alone := k.tr.cpu.all.Count() < 2 || runtime.GOMAXPROCS(0) < 2; alone != (len(l.looks) == 0) || l.empty > 0 {
			t.Errorf("looks: %v, of which %d polled nothing", l.looks, l.empty)
		}
		for i, on := range l.looks {
			if on != (i%2 == 0) {
				t.Errorf("looks: %v", l.looks)
			}
		}
		if len(l.looks)%2 != 0 || k.tr.poll.looking || k.tr.poll.active() {
			t.Errorf("it looks still, after %d", len(l.looks))
		}
		return nil
	})
	early := &looker{}
	check(early, false) // so few hits are measured first
	check(nil, true)
	if len(early.looks) > 0 {
		t.Errorf("nothing is known of hits that trap, and it looks: %v", early.looks)
	}
	k.end()
}
