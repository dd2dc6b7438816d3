package amd64

import (
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// check refuses what x86asm is lenient about.
func (f *form) check(code []byte) error {
	if f.lock && !f.lockable() {
		return undecodable("lock prefix on an instruction that does not take it")
	}
	if f.space > oneByte && (f.space != map0F || f.op&0xf0 != 0x80) {
		return nil
	}
	switch {
	case f.opsize && f.rex&rexW == 0 && shapeOf(f.space, f.op) == shRel32:
		return fmt.Errorf("%w: length of % x: %w", arch.ErrUndecodable, code, arch.ErrOperandSize)
	case f.op == 0x8d && f.register() && f.space == oneByte:
		return undecodable("lea of a register")
	case f.space == oneByte && f.op == 0x8e && (f.reg() == 1 || f.reg() > 5), f.space == oneByte && f.op == 0x8c && f.reg() > 5:
		return undecodable("mov with segment register %d", f.reg())
	case f.space == oneByte && f.op&0xfe == 0xc6 && f.reg() != 0 && !(f.register() && f.reg() == 7 && f.rm() == 0):
		return undecodable("opcode %#x /%d", f.op, f.reg())
	case f.space == oneByte && f.op == 0xfe && f.reg() > 1, f.space == oneByte && f.op == 0xff && f.reg() == 7:
		return undecodable("opcode %#x /%d", f.op, f.reg())
	case f.space == oneByte && f.op == 0xff && (f.reg() == 3 || f.reg() == 5) && f.register():
		return undecodable("far transfer through a register")
	}
	return nil
}

// lockable tells that f may have a lock prefix (SDM vol. 2A LOCK): a
// read-modify-write of memory.
func (f *form) lockable() bool {
	if !f.hasModRM || f.register() {
		return false
	}
	switch f.space {
	case oneByte:
		switch {
		case f.op < 0x38: // add or adc sbb and sub xor, into memory
			return f.op&7 < 2
		case f.op >= 0x80 && f.op <= 0x83:
			return f.reg() != 7
		case f.op == 0x86, f.op == 0x87: // xchg
			return true
		case f.op == 0xf6, f.op == 0xf7: // not, neg
			return f.reg() == 2 || f.reg() == 3
		case f.op == 0xfe, f.op == 0xff: // inc, dec
			return f.reg() < 2
		}
	case map0F:
		switch f.op {
		case 0xab, 0xb3, 0xbb, 0xb0, 0xb1, 0xc0, 0xc1: // bts btr btc cmpxchg xadd
			return true
		case 0xba:
			return f.reg() > 4
		case 0xc7: // cmpxchg8b, cmpxchg16b
			return f.reg() == 1
		}
	}
	return false
}
