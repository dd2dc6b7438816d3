package amd64

import (
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"github.com/gokprobe/gokprobe/arch"
)

// Decode decodes the instruction at the start of code, which stands at at. The
// result's Bytes alias code. Errors wrap arch.ErrTruncated if code ends too
// early (never with 15 bytes or more of it), or arch.ErrUndecodable with a
// reason. A near branch with an operand-size prefix and a 32-bit displacement is
// undecodable too, since its length differs between Intel and AMD; that error
// also matches arch.ErrOperandSize.
func (Arch) Decode(code []byte, at arch.Addr) (arch.Insn, error) {
	f, _, err := decode(code)
	if err != nil {
		return arch.Insn{}, err
	}
	return f.insn(code, at), nil
}

// decode parses and checks the first instruction in code.
func decode(code []byte) (form, *correction, error) {
	f, err := parse(code)
	if err != nil {
		return f, nil, err
	}
	code = code[:f.len]
	if err := f.check(code); err != nil {
		return f, nil, err
	}
	c := correctionFor(&f)
	switch {
	case c == nil:
		err = confirm(&f, code)
	case c.refused != "":
		err = undecodable("%s", c.refused)
	}
	return f, c, err
}

// confirm asks x86asm whether f exists and is as long as parse says.
func confirm(f *form, code []byte) error {
	code = code[f.skip():]
	inst, err := x86asm.Decode(code, 64)
	if err != nil || inst.Op == 0 {
		return undecodable("no instruction begins with % x", code)
	}
	if inst.Len != len(code) {
		return undecodable("% x has %d or %d bytes", code, len(code), inst.Len)
	}
	return nil
}

// skip is the number of prefixes that must be hidden from x86asm, which knows
// VEX and EVEX only as the first byte.
func (f *form) skip() int {
	if f.space >= vex0F {
		return f.prefix
	}
	return 0
}

// insn answers arch.Insn's questions about f.
func (f *form) insn(code []byte, at arch.Addr) arch.Insn {
	code = code[:f.len:f.len]
	c := classOf(f, code)
	i := arch.Insn{Addr: at, Bytes: code, Flow: flows[c]}
	switch c {
	case jump, condJump, loopJump, call, transaction:
		i.Target = i.End().Add(signed(code, f.imm, f.immLen))
	case privileged:
		if f.space == oneByte && f.op == 0xf4 {
			i.Flow = arch.FlowTrap
		}
	}
	if f.ripRel {
		i.PCRel = true
		i.MemTarget = i.End().Add(signed(code, f.disp, 4))
		if f.addrsize {
			i.MemTarget &= 0xffffffff
		}
	}
	return i
}

// Disassemble prints i in the GNU assembler's syntax; bytes that Decode refuses
// print as "(bad)".
func (Arch) Disassemble(i arch.Insn) string {
	f, c, err := decode(i.Bytes)
	if err != nil || f.len != len(i.Bytes) {
		return "(bad)"
	}
	if c == nil {
		inst, err := x86asm.Decode(i.Bytes[f.skip():], 64)
		if err != nil {
			return "(bad)"
		}
		return x86asm.GNUSyntax(inst, uint64(i.Addr), nil)
	}
	if c.like == nil {
		return c.name
	}
	return f.printLike(i, c)
}

// printLike prints an instruction that x86asm doesn't know with the operands of
// one that it does.
func (f *form) printLike(i arch.Insn, c *correction) string {
	var b []byte
	if f.seg != 0 {
		b = append(b, f.seg)
	}
	if f.addrsize {
		b = append(b, 0x67)
	}
	b = append(b, 0x40|f.rex)
	b = append(b, c.like...)
	modrm := f.disp - 1
	if f.mod() == 3 {
		modrm = f.imm - 1
	} else if f.rm() == 4 {
		modrm--
	}
	b = append(b, i.Bytes[modrm:]...)
	inst, err := x86asm.Decode(b, 64)
	if err != nil {
		return c.name
	}
	// The shape above may be shorter or longer; the successor must be the same.
	pc := uint64(i.End()) - uint64(inst.Len)
	_, operands, _ := strings.Cut(x86asm.GNUSyntax(inst, pc, nil), " ")
	return c.name + " " + strings.TrimSpace(operands)
}
