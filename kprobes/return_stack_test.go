package kprobes_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestStacksOfFollowedCalls is uretprobe_stack.c of tools/testing/selftests/bpf (C17, C33, C34): a
// chain of four functions that calls itself again, each followed twice; a backtrace at every
// entry and every return has the functions that are there, and the addresses where they go on.
func TestStacksOfFollowedCalls(t *testing.T) {
	const rounds, perCall = 3, 2
	for _, flags := range [][]string{{"-fomit-frame-pointer"}, {"-fno-omit-frame-pointer"}} {
		t.Run(flags[0], func(t *testing.T) {
			prog := testprog.Start(t, testprog.Build(t, "kret", flags...))
			s := attach(t, prog.PID(), kprobes.Options{})
			m := &stackModel{t: t}
			var rps []*kprobes.Kretprobe
			for i := range perCall {
				for _, name := range []string{"chain1", "chain2", "chain3", "chain4"} {
					rps = append(rps, m.follow(name, i == perCall-1))
				}
			}
			registerReturns(t, s, rps...)
			if got := prog.Do(fmt.Sprintf("call chain1 %d", rounds-1), "ret"); got != "ret 66" {
				t.Errorf("got %q", got)
			}
			if len(m.open) != 0 || m.traces != 2*4*rounds*perCall {
				t.Errorf("%d calls are open, %d backtraces were taken", len(m.open), m.traces)
			}
			for _, rp := range rps {
				wantReturns(t, rp, rounds, rounds, 0)
			}
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// stackModel is the calls that are open, the outermost first, by what the entries have told.
type stackModel struct {
	t      *testing.T
	open   []openCall
	traces int
}

type openCall struct {
	name string
	back arch.Addr // where it returns to
}

// follow makes a probe of a function; outer is the last one of it, whose handlers run first at
// the entry and last at the return.
func (m *stackModel) follow(name string, outer bool) *kprobes.Kretprobe {
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: name}, MaxActive: 50}
	rp.EntryHandler = func(_ *kprobes.KretprobeInstance, r *kprobes.Regs) int {
		back, err := r.ReadUint64(r.SP())
		if err != nil {
			m.t.Error(err)
		}
		if outer {
			m.open = append(m.open, openCall{name, arch.Addr(back)})
		}
		m.compare(r, rp.KP.Addr, m.open)
		return 0
	}
	rp.Handler = func(ri *kprobes.KretprobeInstance, r *kprobes.Regs) int {
		n := len(m.open) - 1
		if n < 0 || m.open[n] != (openCall{name, ri.RetAddr}) {
			m.t.Errorf("%s returns to %s, open are %v", name, ri.RetAddr, m.open)
			return 0
		}
		m.compare(r, ri.RetAddr, m.open[:n])
		if outer {
			m.open = m.open[:n]
		}
		return 0
	}
	return rp
}

// compare takes a backtrace of a thread that is at at in the innermost of the calls in open, or,
// if there is none, in the function that makes the first.
func (m *stackModel) compare(r *kprobes.Regs, at arch.Addr, open []openCall) {
	m.traces++
	var want, got []string
	for _, c := range slices.Backward(open) {
		want = append(want, fmt.Sprint(c.name, " at ", at))
		at = c.back
	}
	want = append(want, fmt.Sprint("call at ", at))
	for _, f := range r.Backtrace(len(want)) {
		got = append(got, fmt.Sprint(f.Symbol.Name, " at ", f.Addr))
	}
	if !slices.Equal(got, want) {
		m.t.Errorf("the stack is %v, want %v", got, want)
	}
}
