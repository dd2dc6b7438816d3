package amd64

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Why an instruction can't run in a detour, where nobody puts right afterwards what its
// place has changed. arch.ErrBreakpoint, arch.ErrEnclave and arch.ErrOperandSize are
// further reasons.
var (
	ErrSystemCall  = errors.New("a system call has to come from its own place")
	ErrX87         = errors.New("the FPU records the address of its last instruction")
	ErrSetsFlags   = errors.New("popf may set the trap flag")
	ErrLoadsSS     = errors.New("loading ss holds back the debug trap of the following instruction")
	ErrPerformed   = errors.New("the kernel may perform the instruction, by the address where it stands")
	ErrFar         = errors.New("a far branch has its address in its bytes or on the stack")
	ErrTransaction = errors.New("a transaction's fallback address is relative to its begin")
	ErrCallByStack = errors.New("the call's target depends on what is below the stack pointer, or on that itself")
)

// refused is why a class can't run in a detour.
var refused = [...]error{
	x87: ErrX87, setsFlags: ErrSetsFlags, loadsSS: ErrLoadsSS, systemCall: ErrSystemCall, breakpoint: arch.ErrBreakpoint,
	performed: ErrPerformed, farJump: ErrFar, farCall: ErrFar, farReturn: ErrFar, enclave: arch.ErrEnclave, transaction: ErrTransaction,
}

// displaced is an instruction that is to run in a detour.
type displaced struct {
	form
	class class
	insn  arch.Insn
}

// Displaceable returns nil if i may run as a copy in a detour. The error wraps
// arch.ErrUndecodable (also when i.Bytes is longer than its instruction) or one of the
// reasons above.
func (Arch) Displaceable(i arch.Insn) error {
	_, err := newDisplaced(i)
	return err
}

func newDisplaced(i arch.Insn) (displaced, error) {
	i.Bytes = bytes.Clone(i.Bytes)
	f, _, err := decode(i.Bytes)
	if err == nil && f.len != len(i.Bytes) {
		err = undecodable("% x is %d bytes and then something else", i.Bytes, f.len)
	}
	if err != nil {
		return displaced{}, fmt.Errorf("instruction at %s: %w", i.Addr, err)
	}
	d := displaced{f, classOf(&f, i.Bytes), f.insn(i.Bytes, i.Addr)}
	if err := d.refusal(); err != nil {
		return displaced{}, fmt.Errorf("instruction at %s: %s: %w", i.Addr, Arch{}.Disassemble(i), err)
	}
	return d, nil
}

func (d *displaced) refusal() error {
	switch {
	case d.narrow() && d.class.nearBranch():
		return arch.ErrOperandSize
	case d.class == indirectCall && d.callsByStack():
		return ErrCallByStack
	case int(d.class) < len(refused):
		return refused[d.class]
	}
	return nil
}

// callsByStack tells that the target of an indirect call would not be the same once the
// return address has been pushed.
func (d *displaced) callsByStack() bool {
	o := newOperand(&d.form, d.insn)
	if o.reg != noReg {
		return o.reg == SP
	}
	// A displacement close to its limits could not be made 8 more.
	return o.base == SP && (o.disp > 0x7ffffff7 || o.index == noReg && -16 < o.disp && o.disp < 0)
}

// copyTo generates what does at a's place what the original does at its own. A call pushes
// the original's return address, and every direct branch leads to the original's target,
// even if that is a displaced instruction itself: a probe may be there. The result is the
// places inside the copy.
func (d *displaced) copyTo(a *asm) []arch.Inner {
	i := d.insn
	switch d.class {
	case jump:
		a.jmp(i.Target)
	case condJump:
		a.jcc(d.op&15, i.Target)
	case loopJump:
		return d.copyLoop(a)
	case call:
		inner := pushReturn(a, i)
		a.jmp(i.Target)
		return inner
	case indirectCall:
		inner := pushReturn(a, i)
		d.jumpLikeCall(a)
		return inner
	default:
		d.copyPlain(a, i.Bytes)
	}
	return nil
}

// copyPlain writes code, d's bytes or what they have become, so that it names the same memory.
func (d *displaced) copyPlain(a *asm, code []byte) {
	n, at := len(a.code), a.here()
	a.emit(code...)
	if err := writeCopy(a.code[n:], &d.form, arch.Insn{Bytes: code, MemTarget: d.insn.MemTarget}, at); err != nil && a.err == nil {
		a.err = err
	}
}

// copyLoop has to go further than loop and jrcxz can:
//
//	    loop 1f
//	    jmp  2f
//	1:  jmp  target
//	2:
func (d *displaced) copyLoop(a *asm) []arch.Inner {
	a.emit(d.insn.Bytes[:d.imm]...)
	a.emit(2)
	stays := arch.Inner{At: a.here(), Orig: d.insn.End()}
	over := a.short(0xeb)
	leaves := arch.Inner{At: a.here(), Orig: d.insn.Target}
	a.jmp(d.insn.Target)
	a.land(over)
	return []arch.Inner{stays, leaves}
}

// pushReturn pushes the address behind i without changing a register or flag: push
// extends the sign of its 32 bits, and where that is not the address the upper half is
// stored on its own.
func pushReturn(a *asm, i arch.Insn) []arch.Inner {
	link := uint64(i.End())
	a.emit(0x68)
	a.imm32(uint32(link))
	inner := []arch.Inner{{At: a.here(), Orig: i.Addr, Pop: 8}}
	if link == uint64(int32(link)) {
		return inner
	}
	a.emit(0xc7, 0x44, 0x24, 4) // movl $…, 4(%rsp)
	a.imm32(uint32(link >> 32))
	return append(inner, arch.Inner{At: a.here(), Orig: i.Addr, Pop: 8})
}

// jumpLikeCall is the jump to where an indirect call leads, behind pushReturn: opcode
// ff /4 instead of /2, and a displacement that counts from the stack pointer is 8 more.
func (d *displaced) jumpLikeCall(a *asm) {
	code := bytes.Clone(d.insn.Bytes)
	code[d.modrmAt] ^= (2 ^ 4) << 3
	o := newOperand(&d.form, d.insn)
	if o.base != SP {
		d.copyPlain(a, code)
		return
	}
	a.emit(code[:d.disp]...)
	modrm, disp := &a.code[len(a.code)-2], o.disp+8
	*modrm &= 0x3f
	if disp == int64(int8(disp)) {
		*modrm |= 0x40
		a.emit(byte(disp))
		return
	}
	*modrm |= 0x80
	a.imm32(uint32(disp))
}
