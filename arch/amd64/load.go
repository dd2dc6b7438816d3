package amd64

import (
	"encoding/binary"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Load performs i if it only sets one general register, or does nothing: mov from a
// register, a constant or memory, lea, xor of a register with itself. Flags are not
// changed, though xor would change them: callers do not look at them. r's IP does not
// move.
func (Arch) Load(i arch.Insn, regs arch.Regs, m arch.Memory) error {
	r, ok := regs.(*Regs)
	if !ok {
		return fmt.Errorf("%w: %T", ErrRegs, regs)
	}
	f, _, err := decode(i.Bytes)
	if err != nil {
		return err
	}
	to, value, err := f.load(i, r, m)
	if err != nil || to == noReg {
		return err
	}
	if f.rex&rexW == 0 {
		value &= 0xffffffff // SDM vol. 1 §3.4.1.1
	}
	*r.gpr(to) = value
	return nil
}

// load is the register that i sets, or noReg if it does nothing, and the value.
func (f *form) load(i arch.Insn, r *Regs, m arch.Memory) (to int8, value uint64, err error) {
	const nop, long, movTo, movFrom, lea, movImm, xorTo, xorFrom = 0x90, 0x1f, 0x89, 0x8b, 0x8d, 0xc7, 0x31, 0x33
	high := func(n byte, bit byte) int8 {
		if f.rex&bit != 0 {
			n |= 8
		}
		return int8(n)
	}
	switch {
	case f.space == map0F && f.op == long, f.space == oneByte && f.op == nop && f.rex&rexB == 0 && f.rep == 0:
		return noReg, 0, nil
	case f.space != oneByte || f.opsize || f.lock || f.rep != 0:
		return noReg, 0, fmt.Errorf("%w: % x", arch.ErrNoLoad, i.Bytes)
	case f.op&^7 == 0xb8 && f.immLen == 8:
		return high(f.op&7, rexB), binary.LittleEndian.Uint64(i.Bytes[f.imm:]), nil
	case f.op&^7 == 0xb8:
		return high(f.op&7, rexB), uint64(signed(i.Bytes, f.imm, f.immLen)), nil
	}
	if !f.hasModRM {
		return noReg, 0, fmt.Errorf("%w: % x", arch.ErrNoLoad, i.Bytes)
	}
	o, reg := newOperand(f, i), high(f.reg(), rexR)
	switch {
	case f.op == movTo && f.register():
		return o.reg, *r.gpr(reg), nil
	case f.op == movFrom:
		value, err = f.read(&o, r, m)
		return reg, value, err
	case f.op == movImm && f.register() && f.reg() == 0:
		return o.reg, uint64(signed(i.Bytes, f.imm, f.immLen)), nil
	case f.op == lea && !f.register():
		o.seg = 0
		return reg, o.address(r), nil
	case (f.op == xorTo || f.op == xorFrom) && f.register() && o.reg == reg:
		return reg, 0, nil
	}
	return noReg, 0, fmt.Errorf("%w: % x", arch.ErrNoLoad, i.Bytes)
}

// read is the value of the operand that a mov reads, of its width.
func (f *form) read(o *operand, r *Regs, m arch.Memory) (uint64, error) {
	if f.register() || f.rex&rexW != 0 {
		return o.value(r, m)
	}
	var b [4]byte
	err := m.ReadMemory(arch.Addr(o.address(r)), b[:])
	return uint64(binary.LittleEndian.Uint32(b[:])), err
}

// SkipCall makes regs those behind the system-call instruction at insn, as the instruction leaves them: rcx and r11
// are what the kernel returns with (SDM vol. 2B SYSCALL).
func (Arch) SkipCall(regs arch.Regs, insn arch.Addr) {
	r, ok := regs.(*Regs)
	if !ok {
		return
	}
	r.Rip = uint64(insn) + uint64(len(Arch{}.SyscallInsn()))
	r.Rcx, r.R11, r.Orig_rax = r.Rip, r.Eflags, ^uint64(0)
}

// KeepsNumber reports whether i certainly leaves rax alone and goes on to the next
// instruction, or may, as a conditional branch does.
func (Arch) KeepsNumber(i arch.Insn) bool {
	switch i.Flow {
	case arch.FlowCond:
		return true
	case arch.FlowNext:
	default:
		return false
	}
	f, err := parse(i.Bytes)
	if err != nil || f.len != len(i.Bytes) {
		return false
	}
	if f.space == oneByte && (f.op == 0xc1 || f.op == 0xd1 || f.op == 0xd3) && f.register() { // shifts of 16 bits and more
		return f.rm() != AX || f.rex&rexB != 0
	}
	e, ok := effectsOf(&f, i.Bytes)
	return ok && (e.reads|e.writes)&(1<<AX) == 0
}
