package kprobes_test

import (
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
)

// A function that eight threads call all the time is probed by one of two probes at any moment: together they see
// each call once, be it at a breakpoint or at a jump.
func TestExchangedProbesSeeEachHitOnce(t *testing.T) {
	for name, o := range map[string]kprobes.Options{"breakpoints": {NoOptimize: true}, "jumps": {}} {
		t.Run(name, func(t *testing.T) {
			p := start(t, "prey")
			s := attach(t, p.PID(), o)
			count := func(flags kprobes.Flags) *kprobes.Kprobe {
				prog, err := program.Build("count", 0, nil, program.Cond{}, program.CountHit{})
				if err != nil {
					t.Fatal(err)
				}
				return &kprobes.Kprobe{SymbolName: "target", Program: prog, Flags: flags}
			}
			now, next := count(0), count(kprobes.FlagDisabled)
			register(t, s, now, next)
			const calls = 8 * 5000
			p.Send("threads 8 5000 target")
			for range 10 {
				if err := s.ExchangeKprobes(now, next); err != nil {
					t.Fatal(err)
				}
				now, next = next, now
				s.WaitForOptimizer(t.Context())
			}
			p.Expect("sum")
			if got := now.Hits() + next.Hits(); got != calls {
				t.Errorf("%d hits, want %d", got, calls)
			}
			if got := now.Values(0)[0] + next.Values(0)[0]; got != calls {
				t.Errorf("%d counted, want %d", got, calls)
			}
			wantRight(t, p)
		})
	}
}

func TestExchangeOfWhatIsNotRegistered(t *testing.T) {
	p := start(t, "prey")
	s := attach(t, p.PID(), kprobes.Options{})
	here, elsewhere := boosted.probe("foo"), boosted.probe("foo")
	register(t, s, here)
	for _, err := range []error{s.ExchangeKprobes(here, elsewhere), s.ExchangeKprobes(elsewhere, here)} {
		if !errors.Is(err, kprobes.ErrNotRegistered) {
			t.Errorf("error %v, want %v", err, kprobes.ErrNotRegistered)
		}
	}
	p.Do("call foo 1", "ret 3")
	wantHits(t, here, 1)
}
