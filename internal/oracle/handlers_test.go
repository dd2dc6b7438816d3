//go:build linux && amd64

package oracle_test

import (
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/kprobes"
)

// mode is how a probed instruction is run.
type mode string

const (
	attached mode = "attached" // traced, but not probed
	boosted  mode = "boosted"
	stepped  mode = "stepped"
)

// handled is a probe, and the registers that its handlers were given at its first hit.
type handled struct {
	kprobes.Kprobe
	pre, post arch.Regs
}

// probe makes a probe; a PostHandler forces stepping.
func (m mode) probe(at arch.Addr) *handled {
	p := &handled{Kprobe: kprobes.Kprobe{Addr: at}}
	p.PreHandler = func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
		if p.pre == nil {
			p.pre = regs.Clone()
		}
		return 0
	}
	if m == stepped {
		p.PostHandler = func(_ *kprobes.Kprobe, regs *kprobes.Regs, _ uint64) {
			if p.post == nil {
				p.post = regs.Clone()
			}
		}
	}
	return p
}

// check compares what the handlers of a case's first instruction saw with the state
// that it starts from and, if it can be told from the end state, the one that it leaves.
func (p *handled) check(m mode, c *testCase, want *output) (d []string) {
	if p.pre == nil {
		return []string{"no hit"}
	}
	d = registers("PreHandler", p.pre, &c.in.Reg, uint64(c.at)+1, c.in.RFlags)
	if m != stepped || !c.endsAtBreakpoint(want) {
		return d
	}
	if p.post == nil {
		return append(d, "no PostHandler")
	}
	left := p.post.Clone()
	if v, ok := left.Get("eflags"); ok {
		left.Set("eflags", v&^flagRF) // iret may have set it, for the next instruction only
	}
	return append(d, registers("PostHandler", left, &want.Reg, want.RIP-1, want.RFlags)...)
}

// endsAtBreakpoint tells that nothing but the first instruction was executed, and then
// an int3 of the program.
func (c *testCase) endsAtBreakpoint(want *output) bool {
	return len(c.insns) == 1 && len(c.tail) == 0 && c.in.Signals == 1 && want.Signo == sigTRAP && want.TrapNo == trapBreak &&
		c.insns[0].Flow != arch.FlowTrap && !unsteady(c.insns[0])
}

func registers(who string, regs arch.Regs, want *[nRegs]uint64, rip, rflags uint64) (d []string) {
	note := func(name string, want uint64) {
		if got, _ := regs.Get(name); got != want {
			d = append(d, fmt.Sprintf("%s: %s %#x want %#x", who, name, got, want))
		}
	}
	for i, name := range regNames {
		note(name, want[i])
	}
	note("rip", rip)
	note("eflags", rflags)
	return d
}
