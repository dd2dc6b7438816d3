package amd64

import (
	"bytes"

	"golang.org/x/arch/x86/x86asm"
)

// field is a field of VEX or EVEX that names an operand. Where an instruction has no
// such operand the field must have its neutral value, or the instruction raises #UD
// (SDM vol. 2A §2.3.8, §2.7.11).
type field struct {
	name    string
	at      int  // the byte of the prefix
	mask    byte // the field's bits in that byte
	neutral byte
}

var (
	vex2Fields = []field{{"vvvv", 1, 0x78, 0x78}}
	vex3Fields = []field{{"vvvv", 2, 0x78, 0x78}}
	evexFields = []field{{"vvvv", 2, 0x78, 0x78}, {"V'", 3, 0x08, 0x08}, {"aaa", 3, 0x07, 0x00}}
)

// confirmUnused refuses code with a field that is not neutral though its instruction
// has no operand for it: a neutral value gives the same operands. x86asm, which decoded
// inst from code, does not check that.
func (f *form) confirmUnused(code []byte, inst *x86asm.Inst) error {
	if f.space < vex0F {
		return nil
	}
	fields := evexFields
	switch code[0] {
	case 0xc4:
		fields = vex3Fields
	case 0xc5:
		fields = vex2Fields
	}
	for _, u := range fields {
		if code[u.at]&u.mask == u.neutral {
			continue
		}
		neutral := bytes.Clone(code)
		neutral[u.at] = neutral[u.at]&^u.mask | u.neutral
		same, err := x86asm.Decode(neutral, 64)
		if err == nil && same.Args == inst.Args {
			return undecodable("% x has no operand for %s", code, u.name)
		}
	}
	return nil
}
