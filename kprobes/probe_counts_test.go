package kprobes_test

import (
	"fmt"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestCountsAreExact: 8 threads call a function 100,000 times each; every call is a
// hit, and the results are those of the unprobed run.
func TestCountsAreExact(t *testing.T) {
	programs := []struct {
		name, fixture, command, symbol string
		flags                          []string
	}{
		{"C", "prey", "threads 8 %d target", "target", nil},
		{"static PIE", "prey", "threads 8 %d target", "target", []string{"-static-pie"}},
		{"C++", "cxx", "threads 8 %d", "shop::Counter::add(long) const", nil},
		{"Go", "gosrv", "threads 8 %d", "main.target", nil},
	}
	calls := uint64(testsize.Rounds(2000, 100_000, 100_000))
	for _, p := range programs {
		for _, m := range modes {
			t.Run(p.name+"/"+string(m), func(t *testing.T) {
				prog := testprog.Start(t, testprog.Build(t, p.fixture, p.flags...))
				command := fmt.Sprintf(p.command, calls)
				unprobed := prog.Do(command, "sum")
				s := attach(t, prog.PID(), kprobes.Options{})
				kp := m.probe(p.symbol)
				register(t, s, kp)
				if probed := prog.Do(command, "sum"); probed != unprobed {
					t.Errorf("probed: %q, unprobed: %q", probed, unprobed)
				}
				wantHits(t, kp, 8*calls)
				closeSession(t, s)
				if after := prog.Do(command, "sum"); after != unprobed {
					t.Errorf("after: %q, unprobed: %q", after, unprobed)
				}
				wantHits(t, kp, 8*calls)
				wantRight(t, prog)
			})
		}
	}
}

// TestProbesOfOneSite: handlers run latest first, a disabled one is silent, and a
// non-zero answer ends the walk and skips the instruction (B2, B16, B18, B19, A50).
func TestProbesOfOneSite(t *testing.T) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	var order string
	probe := func(name string) *kprobes.Kprobe {
		return &kprobes.Kprobe{
			SymbolName:  "target",
			PreHandler:  func(*kprobes.Kprobe, *kprobes.Regs) int { order += name; return 0 },
			PostHandler: func(*kprobes.Kprobe, *kprobes.Regs, uint64) { order += name + "'" },
		}
	}
	a, b, c := probe("a"), probe("b"), probe("c")
	register(t, s, a, b, c)
	call := func(want string) {
		t.Helper()
		order = ""
		if got := prog.Do("call target 30", "ret"); got != "ret 10" {
			t.Errorf("got %q", got)
		}
		if order != want {
			t.Errorf("handlers ran %q, want %q", order, want)
		}
	}
	call("cbac'b'a'")
	if err := s.DisableKprobe(b); err != nil {
		t.Fatal(err)
	}
	call("cac'a'")
	if err := s.UnregisterKprobe(c); err != nil {
		t.Fatal(err)
	}
	call("aa'")
	if err := s.EnableKprobe(b); err != nil {
		t.Fatal(err)
	}
	call("bab'a'")
	if err := s.UnregisterKprobes([]*kprobes.Kprobe{a, b}); err != nil {
		t.Fatal(err)
	}
	call("")
}

// TestHandlerDivertsTheThread: the kernel's "changing execution path": the handler
// makes the function return at once with a value of its own.
func TestHandlerDivertsTheThread(t *testing.T) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	register(t, s, &kprobes.Kprobe{SymbolName: "target", PreHandler: func(kp *kprobes.Kprobe, r *kprobes.Regs) int {
		if r.IP() != kp.Addr+1 {
			t.Errorf("IP is %s at a probe of %s, want one more", r.IP(), kp.Addr)
		}
		ret, err := r.ReadUint64(r.SP())
		if err != nil {
			t.Error(err)
		}
		r.SetReturnValue(4711)
		r.SetSP(r.SP() + 8)
		r.SetIP(addr(ret))
		return 1
	}})
	if got := prog.Do("call target 30", "ret"); got != "ret 4711" {
		t.Errorf("got %q, want the handler's value", got)
	}
}

// TestHandlerChangesAnArgument: register changes stay, a change of IP with answer 0
// does not (B3, B4).
func TestHandlerChangesAnArgument(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "prey")
			s := attach(t, prog.PID(), kprobes.Options{})
			kp := m.probe("target")
			kp.PreHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
				r.SetArg(0, 300)
				r.SetIP(0)
				return 0
			}
			register(t, s, kp)
			if got := prog.Do("call target 30", "ret"); got != "ret 100" {
				t.Errorf("got %q, want ret 100", got)
			}
		})
	}
}

// TestHandlerPanicIsContained: the target goes on, the probe is disabled.
func TestHandlerPanicIsContained(t *testing.T) {
	prog := start(t, "prey")
	var warned []string
	s := attach(t, prog.PID(), kprobes.Options{Log: testprog.ButUprobes(func(m string) { warned = append(warned, m) })})
	kp := &kprobes.Kprobe{SymbolName: "target", PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int { panic("oops") }}
	register(t, s, kp)
	for range 2 {
		if got := prog.Do("call target 30", "ret"); got != "ret 10" {
			t.Errorf("got %q", got)
		}
	}
	wantHits(t, kp, 1)
	if len(warned) != 1 {
		t.Errorf("warnings: %q, want one", warned)
	}
}

// TestCloseInsideAHandler: the session ends while a hit is in progress.
func TestCloseInsideAHandler(t *testing.T) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := &kprobes.Kprobe{SymbolName: "target"}
	kp.PreHandler = func(*kprobes.Kprobe, *kprobes.Regs) int {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		return 0
	}
	register(t, s, kp)
	for range 3 {
		if got := prog.Do("call target 30", "ret"); got != "ret 10" {
			t.Errorf("got %q", got)
		}
	}
	wantHits(t, kp, 1)
	prog.CheckClean()
}
