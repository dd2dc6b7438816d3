package amd64

import (
	"bytes"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Plan decides how i is run elsewhere. Near branches are emulated, everything
// else is copied, with its displacement adjusted if an operand is relative to
// rip. The error wraps arch.ErrUndecodable (also when i.Bytes is longer than its
// instruction), ErrException, ErrSystemCall, ErrFarTransfer, ErrPrivileged,
// ErrSSBlock, ErrTransaction, ErrOperandSize or ErrNotRelocatable. The plan
// keeps its own copy of i.Bytes.
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
	c := classOf(&f, i.Bytes)
	if err := refusal(&f, c); err != nil {
		return arch.Plan{}, fmt.Errorf("instruction at %s: %s: %w", i.Addr, a.Disassemble(i), err)
	}
	p := arch.Plan{Insn: i}
	switch {
	case c.nearBranch():
		p.Method = arch.Emulated
		p.Emulate = newBranch(&f, c, i).emulate
	case f.ripRel:
		p.Method = arch.Relocated
	}
	if c == setsFlags {
		p.MustStep = "popf may set the trap flag, and its debug trap would come after the jump back instead of after the successor"
	}
	return p, nil
}

// refusal is why f can't run elsewhere, or nil.
func refusal(f *form, c class) error {
	if int(c) < len(refusals) && refusals[c] != nil {
		return refusals[c]
	}
	if !c.nearBranch() {
		if f.ripRel && f.addrsize {
			return fmt.Errorf("%w: its operand is relative to eip", arch.ErrNotRelocatable)
		}
		return nil
	}
	if f.opsize && f.rex&rexW == 0 {
		return arch.ErrOperandSize
	}
	return nil
}
