package kprobes_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// forever is a delay that only the end of something else ends.
const forever = 100 * time.Hour

// delaying is a probe whose handlers delay their threads; hit gets the ID of each.
func (m mode) delaying(symbol string, d time.Duration) (kp *kprobes.Kprobe, hit chan int) {
	hit = make(chan int, 10_000)
	return m.caller(symbol, func(r *kprobes.Regs) { r.Delay(d); hit <- r.TID() }), hit
}

// TestDelayedThreadsGoOn: two delays of a hit add up.
func TestDelayedThreadsGoOn(t *testing.T) {
	const d = 20 * time.Millisecond
	for _, m := range modes {
		prog := start(t, "effects")
		s := attach(t, prog.PID(), kprobes.Options{})
		hits := make(chan time.Time, 10)
		kp := m.caller("probed", func(r *kprobes.Regs) {
			hits <- time.Now()
			r.Delay(d)
			r.Delay(-d) // none
			r.Delay(d)
		})
		register(t, s, kp)
		for range 10 {
			wantSays(t, prog, "go 30", "ret 10")
			if took := time.Since(<-hits); took < 2*d {
				t.Errorf("%s: it took %v, want %v at least", m, took, 2*d)
			}
		}
		wantHits(t, kp, 10)
		closeSession(t, s)
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// TestDelaysInEveryWayOfAHit: at instructions of all methods, in a program that blocks, faults and traces itself, the
// thread goes on as if it had not been delayed: when the delay is over, and when the session is closed in it.
func TestDelaysInEveryWayOfAHit(t *testing.T) {
	sites := []struct{ symbol, command string }{
		{"raw_getpid", "calls"}, {"raw_getpid_insn", "calls"}, {"raw_getpid_insn+2", "calls"}, // mov, syscall, ret
		{"step_jump", "step"}, {"jump_insn", "step"}, // pushf; jmp in a program that traces itself
		{"divide", "divide"}, {"divide_insn", "divide"}, {"own_int3+1", "own"},
	}
	for _, at := range sites {
		for _, m := range []string{"pre", "pre that skips", "post", "fault"} {
			for _, d := range []time.Duration{time.Millisecond, forever} {
				if (m == "fault") != (at.symbol == "divide_insn") {
					continue
				}
				t.Run(fmt.Sprint(at.symbol, " ", m, " ", d), func(t *testing.T) { delayAt(t, at.symbol, at.command, m, d) })
			}
		}
	}
}

func delayAt(t *testing.T, symbol, command, how string, d time.Duration) {
	prog := start(t, "interrupts")
	prog.Do("handler", "did")
	before := testprog.TakeSnapshot(t, prog.PID())
	s := attach(t, prog.PID(), kprobes.Options{})
	hit := make(chan bool, 100)
	delay := func(r *kprobes.Regs) {
		r.Delay(d)
		select {
		case hit <- true:
		default:
		}
	}
	kp := &kprobes.Kprobe{SymbolName: symbol}
	switch how {
	case "pre":
		kp.PreHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs) int { delay(r); return 0 }
	case "pre that skips": // to where it would be anyway
		kp.PreHandler = func(kp *kprobes.Kprobe, r *kprobes.Regs) int { r.SetIP(kp.Addr); delay(r); return 1 }
		hit = make(chan bool, 1)
	case "post":
		kp.PostHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs, _ uint64) { delay(r) }
	default:
		kp.FaultHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs, _ int) int { delay(r); return 0 }
	}
	register(t, s, kp)
	prog.Send(command)
	<-hit
	if d == forever || how == "pre that skips" { // this one never gets further
		other := boosted.probe("raw_pause")
		toggle(t, s, other, 3)
		closeSession(t, s)
	}
	prog.Send("hello")
	prog.Expect("did") // the command's
	prog.Expect("did")
	closeSession(t, s)
	before.Compare(t, prog.PID())
	wantRight(t, prog)
}

// TestDelaysOfManyThreads: all are delayed at once, and the session can be used meanwhile. Close lets them go.
func TestDelaysOfManyThreads(t *testing.T) {
	const threads = 1000
	for _, m := range modes {
		prog := start(t, "threads", fmt.Sprint(threads))
		s := attach(t, prog.PID(), kprobes.Options{})
		kp, hit := m.delaying("foo", forever)
		register(t, s, kp)
		prog.Send("go 3")
		for range threads {
			<-hit
		}
		toggle(t, s, m.probe("main"), 5)
		at, err := s.Alloc(4096)
		ok(t, err)
		ok(t, s.Free(at, 4096))
		wantHits(t, kp, threads)
		closeSession(t, s)
		prog.Expect(fmt.Sprintf("went %d", 3*threads))
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// TestOthersDuringADelay: they are served, fork, and share the memory with children that are delayed themselves.
func TestOthersDuringADelay(t *testing.T) {
	for _, follow := range []bool{false, true} {
		prog := start(t, "effects")
		s := attach(t, prog.PID(), kprobes.Options{Follow: follow})
		d := forever
		hit := make(chan int, 10)
		kp := boosted.caller("probed", func(r *kprobes.Regs) { r.Delay(d); hit <- r.PID() })
		register(t, s, kp)
		prog.Send("worker 30")
		<-hit
		d = 5 * time.Millisecond
		wantSays(t, prog, "go 60", "ret 20")
		wantSays(t, prog, "vfork 90", "ret 30")
		prog.Expect("waited")
		wantSays(t, prog, "fork", "child 5")
		closeSession(t, s)
		prog.Expect("ret 10")
		if want := 3; follow && len(hit) != want || !follow && len(hit) != want-1 {
			t.Errorf("follow %v: %d hits behind the first", follow, len(hit))
		}
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// TestTheEndOfADelayedThread: SIGKILL, exit and exec of another thread do not wait for it.
func TestTheEndOfADelayedThread(t *testing.T) {
	for _, m := range modes {
		for _, end := range []string{"kill", "exit", "exec"} {
			t.Run(string(m)+" "+end, func(t *testing.T) {
				prog := start(t, "effects")
				s := attach(t, prog.PID(), kprobes.Options{Follow: end == "exec"})
				kp, hit := m.delaying("probed", forever)
				register(t, s, kp)
				prog.Send("worker 30")
				<-hit
				if end == "exec" {
					wantSays(t, prog, "exec", "again")
					wantHits(t, kp, 1)
					prog.Send("worker 30")
					<-hit
					wantSays(t, prog, "hello", "hello")
					closeSession(t, s)
					prog.Expect("ret 10")
					prog.CheckClean()
					wantRight(t, prog)
					return
				}
				want := kprobes.ExitStatus{Code: 7}
				if end == "kill" {
					want = kprobes.ExitStatus{Code: 128 + int(unix.SIGKILL), Signal: unix.SIGKILL}
					ok(t, prog.Signal(unix.SIGKILL))
				} else {
					prog.Send("exit")
				}
				<-s.Done()
				if got := s.Exit(); got == nil || *got != want {
					t.Errorf("the process has ended with %+v, want %+v", got, want)
				}
				closeSession(t, s)
				prog.Wait()
			})
		}
	}
}

// TestJobControlDuringADelay: the other threads stop at once, the delayed one when it would go on; all go on
// with SIGCONT, before the delay is over or later.
func TestJobControlDuringADelay(t *testing.T) {
	for _, m := range modes {
		for _, later := range []bool{false, true} {
			d := 100 * time.Millisecond
			for !stoppedInADelay(t, m, d, later) {
				d *= 4 // on a busy machine it was over before all had stopped
			}
		}
	}
}

// stoppedInADelay reports whether the delay d was so long that the process was stopped in it.
func stoppedInADelay(t *testing.T, m mode, d time.Duration, later bool) bool {
	prog := start(t, "effects")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp, hit := m.delaying("probed", d)
	behind := boosted.probe("say_ret")
	register(t, s, kp, behind)
	prog.Send("worker 30")
	<-hit
	ok(t, prog.Signal(unix.SIGSTOP))
	waitStopped(t, prog.PID(), true)
	toggle(t, s, m.probe("deep"), 3)
	inTime := behind.Hits() == 0
	if d > testprog.Patience {
		t.Fatal("the delayed thread goes on at once, though the process is stopped")
	}
	if later && inTime {
		<-time.After(3 * d)
		wantHits(t, behind, 0)
	}
	ok(t, prog.Signal(unix.SIGCONT))
	prog.Expect("ret 10")
	wantSays(t, prog, "hello", "hello")
	wantHits(t, behind, 1)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
	return inTime
}

// TestUnregisteringADelayingProbe: the thread goes on when its delay is over, through code that has no probe any more.
func TestUnregisteringADelayingProbe(t *testing.T) {
	for _, m := range modes {
		prog := start(t, "effects")
		s := attach(t, prog.PID(), kprobes.Options{})
		kp, hit := m.delaying("probed", 100*time.Millisecond)
		for range 5 {
			kp.Addr, kp.Flags = 0, 0
			register(t, s, kp)
			prog.Send("worker 30")
			<-hit
			ok(t, s.UnregisterKprobe(kp))
			toggle(t, s, m.probe("deep"), 70) // as many slots as there are
			prog.Expect("ret 10")
		}
		closeSession(t, s)
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// TestCallsOfADelayedThread: a handler that has asked for a delay calls a function, which is not delayed.
func TestCallsOfADelayedThread(t *testing.T) {
	for _, m := range modes {
		prog := start(t, "effects")
		s := attach(t, prog.PID(), kprobes.Options{})
		fn := symbol(t, s, "entered")
		hit := make(chan bool, 1)
		register(t, s, m.caller("probed", func(r *kprobes.Regs) {
			r.Delay(forever)
			wantCall(t, r, 14, fn, 13)
			hit <- true
		}))
		prog.Send("worker 30")
		<-hit
		wantSays(t, prog, "enter 30", "ret 31")
		closeSession(t, s)
		prog.Expect("ret 10")
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// TestAStormOfDelays: threads are delayed for random times in the middle of probes that come and go, signals,
// and sessions that end at any time. Each call is one hit, and its result is right.
func TestAStormOfDelays(t *testing.T) {
	rounds := testsize.Rounds(2, 6, 100)
	prog := start(t, "threads", "8")
	for i := range rounds {
		m := modes[i%2]
		s := attach(t, prog.PID(), kprobes.Options{NoOptimize: i%3 == 0})
		kp := m.caller("foo", func(r *kprobes.Regs) {
			if n := rand.IntN(8); n < 3 {
				r.Delay(time.Duration(rand.IntN(1+n*100)) * time.Microsecond)
			}
		})
		register(t, s, kp)
		prog.Send("start")
		for j := range 30 {
			toggle(t, s, modes[j%2].probe("main"), 1)
			at, err := s.Alloc(4096)
			ok(t, err)
			ok(t, s.Free(at, 4096))
			ok(t, prog.Signal(unix.SIGWINCH))
		}
		if i/2%2 == 0 {
			prog.Send("stop")
			calls := number(t, prog.Expect("calls"), "calls")
			wantHits(t, kp, calls)
			closeSession(t, s)
		} else {
			closeSession(t, s)
			prog.Do("stop", "calls")
		}
		prog.CheckClean()
	}
	wantRight(t, prog)
}
