package amd64

import (
	"bytes"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Plan decides how i is run elsewhere. Near branches are emulated. System calls enter
// the kernel from their copy. Everything else is copied, with its displacement adjusted
// if an operand is relative to rip. The error wraps arch.ErrUndecodable (also when
// i.Bytes is longer than its instruction), ErrBreakpoint, ErrEnclave or ErrOperandSize.
// The plan keeps its own copy of i.Bytes.
func (a Arch) Plan(i arch.Insn) (arch.Plan, error) {
	i.Bytes = bytes.Clone(i.Bytes)
	f, _, err := decode(i.Bytes)
	if err == nil && f.len != len(i.Bytes) {
		err = undecodable("% x is %d bytes and then something else", i.Bytes, f.len)
	}
	if err != nil {
		return arch.Plan{}, fmt.Errorf("instruction at %s: %w", i.Addr, err)
	}
	i = f.insn(i.Bytes, i.Addr)
	c := f.class(i.Bytes)
	if err := refusal(&f, c); err != nil {
		return arch.Plan{}, fmt.Errorf("instruction at %s: %s: %w", i.Addr, a.Disassemble(i), err)
	}
	return plan(&f, c, i), nil
}

func plan(f *form, c class, i arch.Insn) arch.Plan {
	p := arch.Plan{Insn: i, Recorded: c == x87, Leaves: c.leaves(), Near: near(f, c, i), Resume: newResume(f, c, i)}
	if int(c) < len(mustStep) {
		p.MustStep = mustStep[c]
	}
	switch {
	case c == systemCall:
		p.Method = arch.SystemCall
	case c == loopJump && f.rep != 0:
		p.MustStep = "what a repeat prefix does to loop depends on the processor"
	case c.nearBranch():
		p.Method = arch.Emulated
		p.Emulate = newBranch(f, c, i).emulate
	case f.ripRel, c == transaction:
		p.Method = arch.Relocated
	}
	return p
}

// class is what f counts as. The near branches that go to an absolute address may
// have an operand-size prefix, whose meaning only the processor at hand knows; then
// they run as far ones do.
func (f *form) class(code []byte) class {
	c := classOf(f, code)
	if f.narrow() {
		switch c {
		case indirectJump:
			return farJump
		case ret:
			return farReturn
		}
	}
	return c
}

// narrow tells that the operand size is 16 bits.
func (f *form) narrow() bool { return f.opsize && f.rex&rexW == 0 }

// leaves reports whether the copy of c never goes on to the instruction behind it.
func (c class) leaves() bool {
	return c.nearBranch() || c == farJump || c == farCall || c == farReturn
}

// near lists the addresses that the copies of f must reach: the way back, and the
// memory that f names relative to itself.
func near(f *form, c class, i arch.Insn) arch.Range {
	n := i.Range()
	reach := func(a arch.Addr) { n.Start, n.End = min(n.Start, a), max(n.End, a+1) }
	if f.ripRel && !f.addrsize {
		reach(i.MemTarget)
	}
	if c == transaction {
		reach(i.Target)
	}
	return n
}

// refusal is why f can't run elsewhere, or nil.
func refusal(f *form, c class) error {
	switch {
	case c == breakpoint:
		return arch.ErrBreakpoint
	case c == enclave:
		return arch.ErrEnclave
	case f.narrow() && (c.nearBranch() || c == transaction):
		return arch.ErrOperandSize
	}
	return nil
}
