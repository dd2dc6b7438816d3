package kprobes_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// caller is a probe whose handlers run f once each.
func (m mode) caller(symbol string, f func(r *kprobes.Regs)) *kprobes.Kprobe {
	kp := &kprobes.Kprobe{SymbolName: symbol}
	if m == stepped {
		kp.PostHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs, _ uint64) { f(r) }
	} else {
		kp.PreHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs) int { f(r); return 0 }
	}
	return kp
}

// wantCall calls a function and compares its result.
func wantCall(t testing.TB, r *kprobes.Regs, want uint64, fn arch.Addr, args ...uint64) {
	t.Helper()
	if got, err := callWithin(r, within, fn, args...); err != nil || got != want {
		t.Errorf("call: %d, %v, want %d", got, err, want)
	}
}

func wantSays(t testing.TB, prog *testprog.Prog, command, want string) {
	t.Helper()
	if got := prog.Do(command, want); got != want {
		t.Errorf("%s: the program says %q, want %q", command, got, want)
	}
}

// within is a deadline that load does not reach, for calls that are to end by themselves: CallTimeout is
// for functions of which nobody knows that.
const within = testprog.Patience

func callWithin(r *kprobes.Regs, timeout time.Duration, fn arch.Addr, args ...uint64) (uint64, error) {
	res, err := r.CallFunc(kprobes.FuncCall{Fn: fn, Args: args, Timeout: timeout})
	return res.Int, err
}

// TestMissed is test_kprobe_missed of lib/tests/test_kprobes.c: a PreHandler and a PostHandler
// call the function that they probe. The two hits are missed, by the disabled probe of the
// site too, and run no handler (B26, B27, B29, B31, B34).
func TestMissed(t *testing.T) {
	for _, opts := range []kprobes.Options{{}, {NoBoost: true}} {
		t.Run(fmt.Sprintf("NoBoost=%v", opts.NoBoost), func(t *testing.T) {
			prog := start(t, "call")
			s := attach(t, prog.PID(), opts)
			target := symbol(t, s, "recursed_target")
			pre, post := 0, 0
			kp := &kprobes.Kprobe{
				SymbolName: "recursed_target",
				PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
					pre++
					wantCall(t, r, 8, target, 40)
					return 0
				},
				PostHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs, _ uint64) {
					post++
					wantCall(t, r, 9, target, 45)
				},
			}
			disabled := &kprobes.Kprobe{SymbolName: "recursed_target", Flags: kprobes.FlagDisabled}
			register(t, s, kp, disabled)
			wantSays(t, prog, "recurse 50", "ret 10")
			if pre != 1 || post != 1 || kp.NMissed() != 2 || disabled.NMissed() != 2 {
				t.Errorf("pre ran %d times, post %d, %d and %d hits were missed; want 1, 1, 2, 2", pre, post, kp.NMissed(), disabled.NMissed())
			}
			wantHits(t, kp, 1)
			wantRight(t, prog)
		})
	}
}

// TestCallsHaveArguments: ten of them; the function checks the stack's alignment.
func TestCallsHaveArguments(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "call")
			s := attach(t, prog.PID(), kprobes.Options{})
			weigh, none, half := symbol(t, s, "weigh"), symbol(t, s, "none"), symbol(t, s, "half")
			args := []uint64{3, 1, 4, 1, 5, 9, 2, 6, 5, 3}
			want := uint64(0)
			for i, a := range args {
				want += uint64(i+1) * a
			}
			calls := 0
			register(t, s, m.caller("probed", func(r *kprobes.Regs) {
				calls++
				before := r.Clone()
				wantCall(t, r, want, weigh, args...)
				wantCall(t, r, want, weigh, append(args[:10:10], 99)...) // one more than it takes
				wantCall(t, r, 4711, none)
				res, err := r.CallFunc(kprobes.FuncCall{Fn: half, Args: []uint64{7}, Timeout: within})
				if err != nil || res.Float64() != 3.5 {
					t.Errorf("half of 7 is %v, %v", res.Float64(), err)
				}
				if !before.Same(r.Regs) {
					t.Error("the handler's registers have changed")
				}
			}))
			prog.Do("many 100", "did")
			if calls != 100 {
				t.Errorf("%d handlers ran, want 100", calls)
			}
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

// TestCallsKeepAllRegisters: a probe between instructions that have all registers in use, vector
// and x87 state and the red zone too; the program compares them.
func TestCallsKeepAllRegisters(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "call")
			s := attach(t, prog.PID(), kprobes.Options{})
			heavy := symbol(t, s, "heavy")
			register(t, s, m.caller("state_insn", func(r *kprobes.Regs) { wantCall(t, r, 3032, heavy) }))
			for range 20 {
				wantSays(t, prog, "state", "passed")
			}
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

// TestCallsDoWhatFunctionsDo: processes and threads are made, memory is allocated, text is
// printed, signals are handled, and all that hits on the way is missed, also in a signal's handler
// that interrupts a missed function (B28).
func TestCallsDoWhatFunctionsDo(t *testing.T) {
	calls := []struct {
		fn     string
		arg    uint64
		want   uint64
		says   string
		missed uint64 // hits of counted
	}{
		{fn: "forks", want: 7},
		{fn: "vforks", want: 8},
		{fn: "shell", want: 9},
		{fn: "threads", want: 6},
		{fn: "prints", arg: 42, want: 16, says: "printed 42 5.250"},
		{fn: "signals", arg: uint64(unix.SIGUSR1), want: 1, missed: 1},
	}
	for _, c := range calls {
		for _, m := range modes {
			t.Run(c.fn+"/"+string(m), func(t *testing.T) {
				prog := start(t, "call")
				s := attach(t, prog.PID(), kprobes.Options{})
				fn := symbol(t, s, c.fn)
				counted, itself := m.probe("counted"), m.probe(c.fn)
				register(t, s, counted, itself, m.caller("probed", func(r *kprobes.Regs) {
					if got, err := callWithin(r, within, fn, c.arg); err != nil || got != c.want {
						t.Errorf("%s: %d, %v, want %d", c.fn, got, err, c.want)
					}
				}))
				for range 5 {
					wantSays(t, prog, "go 30", "ret 10")
					if c.says != "" {
						prog.Expect(c.says)
					}
				}
				if got := counted.NMissed(); got != 5*c.missed {
					t.Errorf("%d hits were missed, want %d", got, 5*c.missed)
				}
				wantHits(t, itself, 0)
				if got := itself.NMissed(); got != 5 {
					t.Errorf("%d calls of the function were missed, want 5", got)
				}
				closeSession(t, s)
				wantRight(t, prog)
			})
		}
	}
}

// TestOthersAreHandledDuringACall: the function waits for another thread, whose hits are handled
// meanwhile. One of its handlers makes a call itself.
func TestOthersAreHandledDuringACall(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "call")
			s := attach(t, prog.PID(), kprobes.Options{})
			wait, none := symbol(t, s, "wait_for_other"), symbol(t, s, "none")
			counted := m.probe("counted")
			nested := false
			register(t, s, counted,
				m.caller("probed", func(r *kprobes.Regs) {
					if got, err := callWithin(r, within, wait, 5); err != nil || got != 15 {
						t.Errorf("got %d, %v, want 15", got, err)
					}
				}),
				m.caller("other", func(r *kprobes.Regs) {
					nested = true
					wantCall(t, r, 4711, none)
				}))
			wantSays(t, prog, "pair 1000", "ret 10")
			prog.Expect("others 1000")
			if !nested {
				t.Error("the other thread's handler did not run")
			}
			wantHits(t, counted, 1000)
			closeSession(t, s)
		})
	}
}

// TestCallsThatBlockSIGTRAP and have one pending: the breakpoint that the function returns to is
// lost in it, and it stays pending and blocked.
func TestCallsThatBlockSIGTRAP(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "call")
			s := attach(t, prog.PID(), kprobes.Options{})
			keeps := symbol(t, s, "keeps_trap")
			register(t, s, m.probe("counted"), m.caller("probed", func(r *kprobes.Regs) { wantCall(t, r, 1, keeps) }))
			for range 10 {
				wantSays(t, prog, "go 30", "ret 10")
				wantSays(t, prog, "trap", "took 1")
			}
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}
