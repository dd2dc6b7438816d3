package kprobes_test

import (
	"fmt"
	"testing"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

func follow(symbol string, max int) *kprobes.Kretprobe {
	return &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: symbol}, MaxActive: max}
}

func startAgain(t *testing.T) *testprog.Prog {
	t.Helper()
	return testprog.Start(t, testprog.Build(t, "again", "-O2"))
}

func endReturns(t *testing.T, s *kprobes.Session, prog *testprog.Prog) {
	t.Helper()
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestACallThatWasThrownOutOfEndsWhenItsPlaceIsUsedAgain, though the function has a part that
// the compiler has split off, or checks its stack again after it has grown: no Handler runs for
// it with the next call's.
func TestACallThatWasThrownOutOfEndsWhenItsPlaceIsUsedAgain(t *testing.T) {
	for _, c := range []struct {
		symbol, command string
		start           func() *testprog.Prog
	}{
		{"odd", "throws 21", func() *testprog.Prog { return startAgain(t) }},
		{"main.odd", "panics 21", func() *testprog.Prog { return start(t, "goagain") }},
	} {
		prog := c.start()
		s := attach(t, prog.PID(), kprobes.Options{})
		rp := follow(c.symbol, 50)
		rp.DataSize = 1
		rp.EntryHandler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
			v, _ := regs.Get("rax") // Go
			if c.symbol == "odd" {
				v, _ = regs.Arg(0)
			}
			ri.Data[0] = byte(v)
			return 0
		}
		rp.Handler = func(ri *kprobes.KretprobeInstance, _ *kprobes.Regs) int {
			if ri.Data[0]%2 != 0 {
				t.Errorf("%s(%d) has returned", c.symbol, ri.Data[0])
			}
			return 0
		}
		registerReturns(t, s, rp)
		if got, want := prog.Do(c.command, "sum"), prog.Do(c.command, "sum"); got != want {
			t.Errorf("%q, then %q", got, want)
		}
		wantReturns(t, rp, 42, 22, 20)
		endReturns(t, s, prog)
	}
}

// TestInstancesOfDeadCallsAreFoundWhenThereIsWant of them, whoever they belong to: threads
// that wait elsewhere, goroutines that have ended, the second probe of a function.
func TestInstancesOfDeadCallsAreFoundWhenThereIsWant(t *testing.T) {
	t.Run("threads", func(t *testing.T) {
		prog := startAgain(t)
		s := attach(t, prog.PID(), kprobes.Options{})
		few, many := follow("leap", 5), follow("leap", 1000)
		registerReturns(t, s, few, many)
		prog.Do("park 10", "parked")
		for range 20 {
			s.WaitForOptimizer(t.Context())                                                         // it stops threads
			testprog.Await(t, "threads that wait", func() bool { return asleep(prog.PID()) == 10 }) // of one that runs nobody can tell where its stack ends
			prog.Do("leap", "ret")
		}
		wantReturns(t, many, 30, 20, 0)
		if n, st := few.Hits(), s.Status(&few.KP); n < 15 || n+st.ReturnsMissed+uint64(st.Active) != 30 || st.Active >= few.MaxActive {
			t.Errorf("%d returns, %d missed; of %d calls nobody has asked since whether they are dead", n, st.ReturnsMissed, st.Active)
		}
		endReturns(t, s, prog)
	})
	t.Run("goroutines", func(t *testing.T) {
		prog := start(t, "goagain")
		s := attach(t, prog.PID(), kprobes.Options{})
		rp := follow("main.hold", 10)
		registerReturns(t, s, rp)
		prog.Do("goexit 100", "gone")
		prog.Do("hold 100", "ret")
		if n := rp.Hits(); n < 80 || n+rp.NMissed() != 200 {
			t.Errorf("%d returns, %d missed", n, rp.NMissed())
		}
		endReturns(t, s, prog)
	})
}

// asleep is how many threads of a process, besides the first, wait for something.
func asleep(pid int) (n int) {
	tids, _ := procfs.Tasks(pid)
	for _, tid := range tids {
		if st, err := procfs.ReadStatus(pid, tid); err == nil && tid != pid && st.State == 'S' {
			n++
		}
	}
	return n
}

// TestAVforkChildHasItsOwnCalls in the frames of its parent; vfork returns in both (C28).
func TestAVforkChildHasItsOwnCalls(t *testing.T) {
	prog := startAgain(t)
	want := prog.Do("vfork 10", "sum")
	s := attach(t, prog.PID(), kprobes.Options{})
	forks, twice, forked := follow("vfork", 0), follow("twice", 0), follow("vforked", 0)
	registerReturns(t, s, forks, twice, forked)
	if got := prog.Do("vfork 10", "sum"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	wantReturns(t, forks, 10, 20, 0)
	wantReturns(t, twice, 20, 20, 0)
	wantReturns(t, forked, 10, 10, 0)
	endReturns(t, s, prog)
}

// TestAVforkChildOfGo runs on its parent's goroutine: what it does not return from ends with it.
func TestAVforkChildOfGo(t *testing.T) {
	prog := start(t, "goagain")
	s := attach(t, prog.PID(), kprobes.Options{})
	forks, calls := follow("syscall.rawVforkSyscall.abi0", 0), follow("syscall.RawSyscall", 0)
	registerReturns(t, s, forks, calls)
	prog.Do("exec 20", "done")
	made := forks.KP.Hits() // one to see what the kernel can do
	wantReturns(t, forks, made, 2*made, 0)
	wantReturns(t, calls, calls.KP.Hits(), calls.KP.Hits()-made, made) // execve, exit
	endReturns(t, s, prog)
}

// TestAFaultIsNoReturn, nor a second one: the first instruction of a function and the one that
// it returns to fault and are tried again.
func TestAFaultIsNoReturn(t *testing.T) {
	prog := startAgain(t)
	want := prog.Do("fault 10", "sum")
	for _, noBoost := range []bool{false, true} {
		s := attach(t, prog.PID(), kprobes.Options{NoBoost: noBoost})
		entry, back, around := follow("load_entry", 0), follow("load_back", 0), follow("load_return", 0)
		registerReturns(t, s, entry, back, around)
		if got := prog.Do("fault 10", "sum"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		wantReturns(t, entry, 20, 10, 10) // the fault is a hit that has no return
		wantReturns(t, back, 10, 10, 0)
		wantReturns(t, around, 10, 10, 0)
		closeSession(t, s)
	}
	prog.CheckClean()
	wantRight(t, prog)
}

// TestAnEntryHandlerMayRegisterItsProbeAgain: what it was called for belongs to the past.
func TestAnEntryHandlerMayRegisterItsProbeAgain(t *testing.T) {
	for ret := range 2 {
		prog := startAgain(t)
		s := attach(t, prog.PID(), kprobes.Options{})
		rp := follow("leap", 2)
		again := 5
		rp.EntryHandler = func(*kprobes.KretprobeInstance, *kprobes.Regs) int {
			if again--; again < 0 {
				return 0
			}
			if err := s.UnregisterKretprobe(rp); err != nil {
				t.Error(err)
			}
			rp.KP.Addr, rp.KP.Flags = 0, 0
			if err := s.RegisterKretprobe(rp); err != nil {
				t.Error(err)
			}
			return ret
		}
		registerReturns(t, s, rp)
		for range 10 {
			prog.Do("leap", "ret")
		}
		wantReturns(t, rp, 5, 5, 0)
		prog.Do("park 4", "parked") // more than there are instances for
		wantReturns(t, rp, 9, 5, 2)
		endReturns(t, s, prog)
	}
}

// TestAReturnHandlerDoesNotChooseWhereToGo, for the next one or at the end of the session (C8).
func TestAReturnHandlerDoesNotChooseWhereToGo(t *testing.T) {
	prog := startAgain(t)
	s := attach(t, prog.PID(), kprobes.Options{})
	first, last := follow("leap", 0), follow("leap", 0)
	first.Handler = func(_ *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
		regs.SetIP(4711)
		return 0
	}
	last.Handler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
		if regs.IP() != ri.RetAddr {
			t.Errorf("IP is %s, want %s", regs.IP(), ri.RetAddr)
		}
		regs.SetIP(4711)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return 0
	}
	registerReturns(t, s, first, last)
	if got := prog.Do("leap", "ret"); got != "ret 7" {
		t.Errorf("got %q", got)
	}
	endReturns(t, s, prog)
}

// TestManyCallsInFlightAreForgotten at once, and their probe may be registered again.
func TestManyCallsInFlightAreForgotten(t *testing.T) {
	const depth = 10_000
	prog := startAgain(t)
	s := attach(t, prog.PID(), kprobes.Options{})
	rp := follow("dive", 2*depth)
	for again := range 2 {
		registerReturns(t, s, rp)
		prog.Do(fmt.Sprint("dive ", depth), "deep")
		if got := s.Status(&rp.KP).Active; got != depth+1 {
			t.Errorf("%d calls in flight, want %d", got, depth+1)
		}
		if again > 0 {
			break
		}
		if err := s.UnregisterKretprobe(rp); err != nil {
			t.Error(err)
		}
		prog.Do("up", "ret")
		wantReturns(t, rp, depth+1, 0, 0)
		rp.KP.Addr, rp.KP.Flags = 0, 0
	}
	prog.Do("up", "ret")
	wantReturns(t, rp, depth+1, depth+1, 0)
	endReturns(t, s, prog)
}
