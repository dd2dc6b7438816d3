package amd64

import (
	"bytes"

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

// confirm finds out whether f exists and is as long as parse says.
func confirm(f *form, code []byte) error {
	o := f.outline(code)
	if o != 0 && placeOf(o).Load() == o {
		return nil
	}
	err := ask(f, code)
	if err == nil && o != 0 {
		placeOf(o).Store(o)
	}
	return err
}

// ask is confirm by x86asm.
func ask(f *form, code []byte) error {
	code = f.visible(code)
	inst, err := x86asm.Decode(code, 64)
	if err != nil || inst.Op == 0 {
		return undecodable("no instruction begins with % x", code)
	}
	if inst.Len != len(code) {
		return undecodable("% x has %d or %d bytes", code, len(code), inst.Len)
	}
	return f.confirmUnused(code, &inst)
}

// visible is code without parts that x86asm can't decode: prefixes before VEX and EVEX,
// which it knows only as the first byte; bits of these that do not matter; REX prefixes
// that another prefix makes void.
func (f *form) visible(code []byte) []byte {
	if f.space >= vex0F {
		if code = code[f.prefix:]; f.idleBits() != 0 {
			code = bytes.Clone(code)
			f.clearIdle(code)
		}
		return code
	}
	if !f.voidREX {
		return code
	}
	seen := make([]byte, 0, maxInsnLen)
	for i, b := range code {
		if i >= f.prefix || b&0xf0 != 0x40 {
			seen = append(seen, b)
		}
	}
	return seen
}

// insn answers arch.Insn's questions about f.
func (f *form) insn(code []byte, at arch.Addr) arch.Insn {
	code = code[:f.len:f.len]
	c := classOf(f, code)
	i := arch.Insn{Addr: at, Bytes: code, Flow: flows[c]}
	switch c {
	case jump, condJump, loopJump, call, transaction:
		i.Target = i.End().Add(signed(code, f.imm, f.immLen))
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
