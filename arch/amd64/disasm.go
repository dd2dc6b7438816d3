package amd64

import (
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"github.com/gokprobe/gokprobe/arch"
)

// Disassemble prints i in the GNU assembler's syntax; bytes that Decode refuses
// print as "(bad)". Instructions that x86asm does not know and that have VEX or
// EVEX print without operands.
func (Arch) Disassemble(i arch.Insn) string {
	f, c, err := decode(i.Bytes)
	if err != nil || f.len != len(i.Bytes) {
		return "(bad)"
	}
	if c != nil {
		return f.printAs(c, i)
	}
	inst, err := x86asm.Decode(f.visible(i.Bytes), 64)
	if err != nil {
		return "(bad)"
	}
	return x86asm.GNUSyntax(inst, uint64(i.End())-uint64(inst.Len), nil)
}

// name is the mnemonic for f, which c matches.
func (c *correction) name(f *form) string {
	names := strings.Fields(c.names)
	n, starred := strings.CutSuffix(names[min(int(f.op-c.lo), len(names)-1)], "*")
	switch {
	case !starred || f.register():
		return n
	case f.rex&rexW != 0:
		return n + "q"
	case f.opsize:
		return n + "w"
	}
	return n + "l"
}

// printAs prints f with c's name and the operands of the instruction that c is
// like.
func (f *form) printAs(c *correction, i arch.Insn) string {
	if c.like == noOperands {
		return c.name(f)
	}
	inst, err := x86asm.Decode(f.rewrite(c, i.Bytes), 64)
	if err != nil {
		return c.name(f)
	}
	// The rewritten bytes may be shorter; rip-relative operands count from the end.
	pc := uint64(i.End()) - uint64(inst.Len)
	text := x86asm.GNUSyntax(inst, pc, nil)
	if c.like.itself {
		return text
	}
	_, operands, _ := strings.Cut(text, " ")
	return c.name(f) + " " + strings.TrimSpace(operands)
}

// rewrite is code, whose form is f, with the opcode that c is like.
func (f *form) rewrite(c *correction, code []byte) []byte {
	l, rex := c.like, f.rex
	if l.address && !f.addrsize {
		rex |= rexW
	}
	b := make([]byte, 0, maxInsnLen+4)
	if f.seg != 0 {
		b = append(b, f.seg)
	}
	if f.addrsize {
		b = append(b, 0x67)
	}
	if f.opsize && c.pp&pp66 == 0 {
		b = append(b, 0x66)
	}
	if rex != 0 {
		b = append(b, 0x40|rex)
	}
	if b = append(b, l.op...); l.itself {
		b = append(b, f.op)
	}
	modrm := len(b)
	b = append(b, code[f.modrmAt:]...)
	if l.digit != anyReg {
		b[modrm] = b[modrm]&^0x38 | byte(l.digit)<<3
	}
	return b
}
