package amd64

import (
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// check refuses what no row of a table can say: prefixes that an instruction does
// not take, and a length on which processors differ (SDM vol. 2A CALL, APM vol. 3
// CALL).
func (f *form) check(code []byte) error {
	if f.lock && !f.lockable() {
		return undecodable("lock prefix on an instruction that does not take it")
	}
	if shapeOf(f.space, f.op) == shRel32 && f.opsize && f.rex&rexW == 0 {
		return fmt.Errorf("%w: length of % x: %w", arch.ErrUndecodable, code, arch.ErrOperandSize)
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
