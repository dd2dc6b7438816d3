package ptrace

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// callee is a function that handlers call, which returns to the landing.
type callee struct {
	k           *prober
	fn, landing arch.Addr
	args        []uint64
	timeout     time.Duration
	left        bool // what Left is to answer
	results     []uint64
	errs        []error
}

// calls probes at, where a function of the program's is called at each hit.
func (k *prober) calls(at, function string, timeout time.Duration, args ...uint64) *callee {
	c := &callee{k: k, fn: k.symbol(function), landing: k.symbol("recursed_target"), args: args, timeout: timeout}
	k.onHit = func(th *Thread, _ arch.Regs) { c.errs = append(c.errs, c.call(th)) }
	site := k.symbol(at)
	k.do(func() error { k.plant(site); k.plant(c.landing); return nil })
	return c
}

func (c *callee) call(th *Thread) error {
	return th.Call(Call{
		Enter:   func(r arch.Regs) error { return host.Arch.SetCall(r, c.k.p.Space, c.fn, c.landing, c.args) },
		Landing: c.landing, Timeout: c.timeout,
		Landed: func(r arch.Regs) { c.results = append(c.results, r.ReturnValue()) },
		Left:   func() bool { return c.left },
	})
}

// ended reads how the calls have ended, when there are n.
func (c *callee) ended(n int) (errs []error, results []uint64) {
	testprog.Await(c.k.t, fmt.Sprintf("an end of call %d", n), func() (over bool) {
		c.k.do(func() error { over, errs, results = len(c.errs) == n, c.errs, c.results; return nil })
		return over
	})
	return errs, results
}

// TestACallLeavesAllRegisters as they were, general and extended ones, and the red zone: the program compares.
func TestACallLeavesAllRegisters(t *testing.T) {
	k := probe(t, "call")
	c := k.calls("state_insn", "heavy", testprog.Patience)
	for n := range 3 {
		if got := k.prog.Do("state", "passed"); got != "passed" {
			t.Errorf("the program says %q", got)
		}
		if errs, results := c.ended(n + 1); errs[n] != nil || results[n] != 3024+8 {
			t.Errorf("the call ends with %v and %d", errs[n], results)
		}
	}
	k.end()
}

// TestACallThatDoesNotReturnIsTakenBack from wherever it is: from code, from a function that it calls, from a system call that waits, also with all signals
// blocked. The thread is where it was, with the mask that it had.
func TestACallThatDoesNotReturnIsTakenBack(t *testing.T) {
	for _, function := range []string{"spin_on", "spin_in", "block", "masks"} {
		t.Run(function, func(t *testing.T) {
			k := probe(t, "call")
			c := k.calls("probed", function, 20*time.Millisecond)
			call := k.onHit
			k.onHit = func(th *Thread, regs arch.Regs) {
				before, mask := *regs.(*host.Regs), must2(th.sigmask())
				call(th, regs)
				if after := must2(th.hostRegs()); *after != before {
					t.Errorf("the registers are\n%+v, were\n%+v", *after, before)
				}
				if now := must2(th.sigmask()); now != mask {
					t.Errorf("it blocks %x, before %x", now, mask)
				}
			}
			if got := k.prog.Do("go 27", "ret"); got != "ret 9" {
				t.Errorf("the program says %q", got)
			}
			if errs, results := c.ended(1); !errors.Is(errs[0], ErrCallTimeout) || len(results) != 0 {
				t.Errorf("the call ends with %v, returns %d", errs, results)
			}
			k.end()
		})
	}
}

// must2 is must for a value.
func must2[T any](v T, err error) T {
	must(err)
	return v
}

// TestACallThatTheProgramLeavesGoesOnThere: a handler of a signal jumps out of the function. The thread is not taken back.
func TestACallThatTheProgramLeavesGoesOnThere(t *testing.T) {
	k := probe(t, "call")
	c := k.calls("probed", "jumps", 20*time.Millisecond)
	c.left = true
	if got := k.prog.Do("jump 27", "jumped"); got != "jumped" {
		t.Errorf("the program says %q", got)
	}
	if errs, results := c.ended(1); !errors.Is(errs[0], ErrCallLeft) || len(results) != 0 {
		t.Errorf("the call ends with %v, returns %d", errs, results)
	}
	k.onHit = nil
	if got := k.prog.Do("go 27", "ret"); got != "ret 9" {
		t.Errorf("afterwards the program says %q", got)
	}
	k.end()
}

// TestACallMayEndItsThread, or the process, or execute another program: whoever has called is told, and the end is the program's own.
func TestACallMayEndItsThread(t *testing.T) {
	t.Run("thread", func(t *testing.T) {
		k := probe(t, "call")
		c := k.calls("probed", "ends_thread", testprog.Patience)
		if got := k.prog.Do("thread", "joined"); got != "joined" {
			t.Errorf("the program says %q", got)
		}
		if errs, _ := c.ended(1); !errors.Is(errs[0], ErrExited) {
			t.Errorf("the call ends with %v", errs)
		}
		k.onHit = nil
		k.end()
	})
	t.Run("process", func(t *testing.T) {
		k := probe(t, "call")
		c := k.calls("probed", "quits", testprog.Patience, 7)
		k.prog.Send("go 27")
		if errs, _ := c.ended(1); !errors.Is(errs[0], ErrExited) {
			t.Errorf("the call ends with %v", errs)
		}
		if got := k.prog.Wait(); got != (testprog.Exit{Status: 7}) {
			t.Errorf("the program ends with %+v", got)
		}
		testprog.Await(t, "its end", func() bool { return k.seen("exited 7") == 1 })
	})
	t.Run("program", func(t *testing.T) {
		k := probe(t, "call")
		c := k.calls("probed", "runs", testprog.Patience)
		k.onExec = func(*Process, *Space) { clear(k.taken) }
		if got := k.prog.Do("go 27", "again"); got != "again" {
			t.Errorf("the program says %q", got)
		}
		if errs, _ := c.ended(1); !errors.Is(errs[0], ErrExited) {
			t.Errorf("the call ends with %v", errs)
		}
		if got := k.prog.Do("go 27", "ret"); got != "ret 9" {
			t.Errorf("the new program says %q", got)
		}
		k.end()
	})
}

// TestSignalsOfACallAreTheProgramsOwn: what the function sends itself is delivered in the function, and a SIGTRAP that it leaves, blocked, waits for the
// program.
func TestSignalsOfACallAreTheProgramsOwn(t *testing.T) {
	t.Run("delivered", func(t *testing.T) {
		k := probe(t, "call")
		c := k.calls("probed", "signals", testprog.Patience, uint64(unix.SIGUSR1))
		call := k.onHit
		k.onHit = func(th *Thread, regs arch.Regs) {
			before := must2(th.Siginfo())
			call(th, regs)
			if after := must2(th.Siginfo()); *after != *before || !after.Breakpoint() {
				t.Errorf("the stop is for % x, was for % x", after[:24], before[:24])
			}
		}
		if got := k.prog.Do("many 10", "did"); got != "did 10" {
			t.Errorf("the program says %q", got)
		}
		errs, results := c.ended(10)
		for n := range errs {
			if errs[n] != nil || results[n] != 1 {
				t.Errorf("call %d: %v, signals %d", n, errs[n], results[n])
			}
		}
		k.end()
	})
	t.Run("left", func(t *testing.T) {
		k := probe(t, "call")
		c := k.calls("probed", "keeps_trap", testprog.Patience)
		if got := k.prog.Do("go 27", "ret"); got != "ret 9" {
			t.Errorf("the program says %q", got)
		}
		if got := k.prog.Do("trap", "took"); got != "took 1" {
			t.Errorf("the program says %q", got)
		}
		if errs, results := c.ended(1); errs[0] != nil || results[0] != 1 {
			t.Errorf("the call ends with %v and %d", errs, results)
		}
		k.end()
	})
}

// TestASignalThatWaitsAtAHitIsDeliveredInTheCall, once.
func TestASignalThatWaitsAtAHitIsDeliveredInTheCall(t *testing.T) {
	k := probe(t, "call")
	c := k.calls("probed", "signals", testprog.Patience, uint64(unix.SIGUSR1))
	call := k.onHit
	handled := 0
	k.onSignal = func(th *Thread, info *Siginfo) (Delivery, Verdict) {
		if info.Signo() == unix.SIGUSR1 {
			handled++
		}
		return Deliver, AsTold()
	}
	k.onHit = func(th *Thread, regs arch.Regs) {
		th.hold(siginfoOf(unix.SIGUSR1, siTkill))
		call(th, regs)
		if th.owed.any() {
			t.Error("the signal waits still")
		}
	}
	if got := k.prog.Do("go 27", "ret"); got != "ret 9" {
		t.Errorf("the program says %q", got)
	}
	if errs, results := c.ended(1); errs[0] != nil || results[0] != 1 || handled != 2 {
		t.Errorf("the call ends with %v and %d; %d signals", errs, results, handled)
	}
	k.end()
}

// TestCallsOfSeveralThreadsAreNested: the first one returns only when another thread, which makes calls meanwhile, has answered.
func TestCallsOfSeveralThreadsAreNested(t *testing.T) {
	const others = 20
	k := probe(t, "call")
	c := k.calls("probed", "wait_for_other", testprog.Patience, 30)
	counted, none := k.symbol("counted"), k.symbol("none")
	first, inner := k.onHit, callee{k: k, fn: none, landing: c.landing, timeout: testprog.Patience}
	k.onHit = func(th *Thread, regs arch.Regs) {
		if regs.IP() == counted {
			inner.errs = append(inner.errs, inner.call(th))
			return
		}
		first(th, regs)
	}
	k.do(func() error { k.plant(counted); return nil })
	k.prog.Send(fmt.Sprintf("pair %d", others))
	if got := k.prog.Expect("ret"); got != "ret 10" {
		t.Errorf("the program says %q", got)
	}
	if got, want := k.prog.Expect("others"), fmt.Sprintf("others %d", others); got != want {
		t.Errorf("the program says %q, want %q", got, want)
	}
	if errs, results := c.ended(1); errs[0] != nil || results[0] != 40 {
		t.Errorf("the call ends with %v and %d", errs, results)
	}
	errs, results := inner.ended(others)
	for n := range errs {
		if errs[n] != nil || results[n] != 4711 {
			t.Errorf("inner call %d: %v and %d", n, errs[n], results[n])
		}
	}
	k.end()
}

// TestRecallAllLeavesNoThreadInACall: calls that go on for ever end with ErrLetGo; so does one that waits for a child by vfork, when that has ended.
func TestRecallAllLeavesNoThreadInACall(t *testing.T) {
	for _, function := range []string{"spin_on", "block", "long_vfork"} {
		t.Run(function, func(t *testing.T) {
			k := probe(t, "call")
			c := k.calls("probed", function, testprog.Patience)
			k.prog.Send("go 27")
			k.prog.Expect("in it")
			k.do(func() error {
				if !k.tr.anyAway() {
					t.Error("no thread is in a call")
				}
				if k.tr.RecallAll(time.Millisecond); k.tr.anyAway() {
					t.Error("a thread is in a call still")
				}
				return nil
			})
			if errs, results := c.ended(1); !errors.Is(errs[0], ErrLetGo) || len(results) != 0 {
				t.Errorf("the call ends with %v and %d", errs, results)
			}
			if got := k.prog.Expect("ret"); got != "ret 9" {
				t.Errorf("the program says %q", got)
			}
			k.onHit = nil
			k.end()
		})
	}
}

// TestACallIsMadeOnceAtATime, by the thread that the handler is about, and ends with the tracer.
func TestACallIsMadeOnceAtATime(t *testing.T) {
	k := probe(t, "call")
	c := k.calls("probed", "none", testprog.Patience)
	var again error
	other := make(chan error, 1)
	k.onHit = func(th *Thread, _ arch.Regs) {
		err := th.Call(Call{
			Enter:   func(r arch.Regs) error { return host.Arch.SetCall(r, k.p.Space, c.fn, c.landing, nil) },
			Landing: c.landing, Timeout: testprog.Patience, Left: func() bool { return false },
			Landed: func(arch.Regs) { again = th.Call(Call{}) },
		})
		c.errs = append(c.errs, err)
		go func() { other <- th.Call(Call{}) }()
		<-other // refused at once, on another thread
	}
	if got := k.prog.Do("go 27", "ret"); got != "ret 9" {
		t.Errorf("the program says %q", got)
	}
	if errs, _ := c.ended(1); errs[0] != nil || !errors.Is(again, ErrNotHandled) {
		t.Errorf("the call ends with %v, the one within with %v", errs, again)
	}
	k.end()
}
