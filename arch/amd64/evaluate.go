package amd64

import (
	"encoding/binary"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// evaluation is a function call that is computed. The words that it pushes are kept
// apart from the thread's stack.
type evaluation struct {
	r      Regs
	m      arch.Memory
	pushed []uint64
}

// Evaluate implements arch.Evaluator.
func (a Arch) Evaluate(regs arch.Regs, m arch.Memory, fn arch.Addr) (uint64, error) {
	const most = 32 // instructions
	r, ok := regs.Clone().(*Regs)
	if !ok {
		return 0, ErrRegs
	}
	e := &evaluation{r: *r, m: m}
	e.r.Rip = uint64(fn)
	for range most {
		done, err := e.step()
		if err != nil {
			return 0, fmt.Errorf("computing what the function at %s returns: %w", fn, err)
		}
		if done {
			return e.r.Rax, nil
		}
	}
	return 0, fmt.Errorf("computing what the function at %s returns: %w: it is too long", fn, arch.ErrNotPlain)
}

// The registers that instructions name without saying so.
const (
	rax = 0
	rsp = 4
)

// step performs one instruction. done tells that it was the function's return.
func (e *evaluation) step() (done bool, err error) {
	at := arch.Addr(e.r.Rip)
	code, err := e.code(at)
	if err != nil {
		return false, err
	}
	f, _, err := decode(code)
	if err != nil {
		return false, err
	}
	i := f.insn(code, at)
	e.r.Rip = uint64(i.End())
	switch classOf(&f, i.Bytes) {
	case linear:
		return false, e.compute(&f, i)
	case jump:
		e.r.Rip = uint64(i.Target)
		return false, nil
	case indirectJump: // of the procedure linkage table
		o := newOperand(&f, i)
		e.r.Rip, err = e.load(&o)
		return false, err
	case ret:
		if len(e.pushed) == 0 && f.immLen == 0 {
			return true, nil
		}
	}
	return false, e.notPlain(i)
}

func (e *evaluation) notPlain(i arch.Insn) error {
	return fmt.Errorf("%w: it has %q at %s", arch.ErrNotPlain, Arch{}.Disassemble(i), i.Addr)
}

// code reads an instruction, or less where the page ends.
func (e *evaluation) code(at arch.Addr) ([]byte, error) {
	const page = 4096
	code := make([]byte, maxInsnLen)
	err := e.m.ReadMemory(at, code)
	if left := page - int(at%page); err != nil && left < len(code) {
		code = code[:left]
		err = e.m.ReadMemory(at, code)
	}
	return code, err
}

// compute performs an instruction that changes registers only.
func (e *evaluation) compute(f *form, i arch.Insn) error {
	switch {
	case f.space == map0F && (f.op == 0x1e || f.op == 0x1f): // endbr64, nop
		return nil
	case f.space != oneByte || f.opsize || f.addrsize || f.lock || f.rep != 0:
		return e.notPlain(i)
	case f.op == 0x90 && f.rex&rexB == 0: // nop
		return nil
	case f.op&0xf8 == 0x50:
		e.pushed = append(e.pushed, *e.r.gpr(f.opReg()))
		e.r.Rsp -= 8
		return nil
	case f.op&0xf8 == 0x58 && len(e.pushed) > 0:
		last := len(e.pushed) - 1
		e.r.Rsp += 8
		*e.r.gpr(f.opReg()) = e.pushed[last]
		e.pushed = e.pushed[:last]
		return nil
	}
	to, v, err := e.result(f, i)
	if err != nil {
		return err
	}
	if f.rex&rexW == 0 {
		v &= 0xffffffff
	}
	if to == rsp {
		return e.notPlain(i)
	}
	*e.r.gpr(to) = v
	return nil
}

// result is what a move, an addition or an address computation gives, and the register for it.
func (e *evaluation) result(f *form, i arch.Insn) (to int8, v uint64, err error) {
	if f.op&0xf8 == 0xb8 { // mov $imm,reg
		if f.immLen == 8 {
			return f.opReg(), binary.LittleEndian.Uint64(i.Bytes[f.imm:]), nil
		}
		return f.opReg(), uint64(signed(i.Bytes, f.imm, f.immLen)), nil
	}
	if f.op == 0x05 { // add $imm,rax
		return rax, e.r.Rax + uint64(signed(i.Bytes, f.imm, f.immLen)), nil
	}
	o := newOperand(f, i)
	reg := int8(f.reg())
	if f.rex&rexR != 0 {
		reg |= 8
	}
	inReg := o.reg != noReg
	switch {
	case f.op == 0x8d && !inReg: // lea
		o.seg = 0
		return reg, o.address(&e.r), nil
	case f.op == 0x8b: // mov r/m,reg
		v, err = e.load(&o)
		return reg, v, err
	case f.op == 0x03: // add r/m,reg
		v, err = e.load(&o)
		return reg, *e.r.gpr(reg) + v, err
	case f.op == 0x89 && inReg:
		return o.reg, *e.r.gpr(reg), nil
	case f.op == 0x01 && inReg:
		return o.reg, *e.r.gpr(o.reg) + *e.r.gpr(reg), nil
	case f.op == 0xc7 && inReg && f.reg() == 0:
		return o.reg, uint64(signed(i.Bytes, f.imm, f.immLen)), nil
	case (f.op == 0x81 || f.op == 0x83) && inReg && f.reg() == 0:
		return o.reg, *e.r.gpr(o.reg) + uint64(signed(i.Bytes, f.imm, f.immLen)), nil
	case (f.op == 0x81 || f.op == 0x83) && inReg && f.reg() == 5:
		return o.reg, *e.r.gpr(o.reg) - uint64(signed(i.Bytes, f.imm, f.immLen)), nil
	}
	return 0, 0, e.notPlain(i)
}

// load reads an operand, 8 bytes of it. What the function has pushed is not in memory.
func (e *evaluation) load(o *operand) (uint64, error) {
	if o.reg != noReg {
		return *e.r.gpr(o.reg), nil
	}
	at := o.address(&e.r)
	if end := e.r.Rsp + 8*uint64(len(e.pushed)); at+8 > e.r.Rsp && at < end {
		return 0, fmt.Errorf("%w: it reads its frame", arch.ErrNotPlain)
	}
	var b [8]byte
	if err := e.m.ReadMemory(arch.Addr(at), b[:]); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// opReg is the register that the opcode's low bits name.
func (f *form) opReg() int8 {
	n := int8(f.op & 7)
	if f.rex&rexB != 0 {
		n |= 8
	}
	return n
}
