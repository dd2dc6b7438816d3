package amd64

import "github.com/gokprobe/gokprobe/arch"

// effectsOf says what f, whose bytes are code, does; ok is false if it is not known.
func effectsOf(f *form, code []byte) (e effects, ok bool) {
	if f.space == oneByte && f.op == 0x90 && f.rex&rexB == 0 { // nop; with REX.B it is xchg
		return e, true
	}
	row, ok := effectRowOf(f)
	if !ok {
		return e, false
	}
	e.readsFlags, e.writesFlags = row.readsFlags, row.flags
	part := f.narrow() || row.bytes == all8 || row.bytes == ifEven && f.op&1 == 0
	e.register(extended(f.op&7, f.rex&rexB), row.opcode, part)
	e.register(AX, row.rax, part)
	if f.hasModRM {
		e.register(extended(f.reg(), f.rex&rexR), row.reg, part)
		e.rm(f, code, row.rm, part || row.bytes == rmOnly)
	}
	if zeroes(f) {
		e.reads = 0
	}
	if f.op >= 0x80 && f.op <= 0x83 { // sub $n,%rsp and its kin make room
		e.movesStack = false
	}
	return e, true
}

// zeroes tells that f is xor or sub of a register with itself.
func zeroes(f *form) bool {
	switch {
	case f.space != oneByte || !f.register() || f.narrow():
		return false
	case f.op != 0x29 && f.op != 0x2b && f.op != 0x31 && f.op != 0x33:
		return false
	}
	return extended(f.reg(), f.rex&rexR) == extended(f.rm(), f.rex&rexB)
}

func effectRowOf(f *form) (effectRow, bool) {
	if row, ok := alu(f); ok {
		return row, true
	}
	for _, n := range effectIndex[f.space][f.op] {
		if row := effectRows[n]; row.matches(f) {
			return row, true
		}
	}
	return effectRow{}, false
}

// alu is add, or, adc, sbb, and, sub, xor, cmp in all their encodings (SDM vol. 2D table A-2).
func alu(f *form) (row effectRow, ok bool) {
	row = effectRow{bytes: ifEven, flags: Arithmetic}
	operation := f.op >> 3 & 7
	switch {
	case f.space != oneByte:
		return row, false
	case f.op >= 0x80 && f.op <= 0x83 && f.op != 0x82:
		operation, row.rm = f.reg(), reads|writes
	case f.op >= 0x40 || f.op&7 >= 6:
		return row, false
	case f.op&7 >= 4:
		row.rax = reads | writes
	case f.op&2 != 0:
		row.reg, row.rm = reads|writes, reads
	default:
		row.reg, row.rm = reads, reads|writes
	}
	row.readsFlags = operation == 2 || operation == 3
	return row, true
}

// extended is a register's number.
func extended(low, bit byte) byte {
	if bit != 0 {
		low |= 8
	}
	return low
}

// register adds a use of register n. Writing a part of a register keeps the rest, so it
// counts as a read, too.
func (e *effects) register(n byte, u use, part bool) {
	if u&reads != 0 || u&writes != 0 && part {
		e.reads |= 1 << n
		if part && n >= 4 && n < 8 {
			e.reads |= 1 << (n - 4) // ah, ch, dh, bh, if there is no REX prefix
		}
	}
	e.movesStack = e.movesStack || u&writes != 0 && n == SP
	if u&writes != 0 && !part {
		e.writes |= 1 << n
	}
}

// rm adds the use of the r/m operand.
func (e *effects) rm(f *form, code []byte, u use, part bool) {
	if f.register() {
		if u&names == 0 {
			e.register(extended(f.rm(), f.rex&rexB), u, part)
		}
		return
	}
	o := newOperand(f, arch.Insn{Bytes: code})
	for _, n := range []int8{o.base, o.index} {
		if n != noReg {
			e.reads |= 1 << n
		}
	}
	onStack := o.base == SP && o.index == noReg
	ofThread := o.base == noReg && o.index == noReg && !f.ripRel && o.seg != 0 // always there
	e.touches = u&vector != 0 || u&(reads|writes) != 0 && !onStack && !ofThread
}
