package amd64

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Reasons why an instruction can't run in a detour, where nobody corrects its result
// afterwards. arch.ErrBreakpoint, arch.ErrEnclave and arch.ErrOperandSize are further
// reasons.
var (
	ErrSystemCall  = errors.New("a system call has to come from its own place")
	ErrX87         = errors.New("the FPU records the address of its last instruction")
	ErrSetsFlags   = errors.New("popf may set the trap flag")
	ErrLoadsSS     = errors.New("loading ss holds back the debug trap of the following instruction")
	ErrPerformed   = errors.New("the kernel may perform the instruction, by the address where it stands")
	ErrFar         = errors.New("a far branch has its address in its bytes or on the stack")
	ErrTransaction = errors.New("a transaction's fallback address is relative to its begin")
	ErrCallByStack = errors.New("the call's target depends on memory below the stack pointer, or on the stack pointer itself")
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
