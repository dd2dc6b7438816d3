package arm64

import (
	"slices"
	"strconv"

	"github.com/gokprobe/gokprobe/arch"
)

// Regs is one thread's general registers: Linux's struct user_pt_regs (arch/arm64/include/uapi/asm/ptrace.h),
// and the two words that NT_ARM_SYSTEM_CALL and NT_ARM_TLS tell.
type Regs struct {
	X      [31]uint64
	Sp     uint64
	Pc     uint64
	Pstate uint64
	Call   uint64 // the system call that the thread is in, -1 for none
	TLS    uint64
}

var _ arch.Regs = (*Regs)(nil)

// Numbers of registers with a use of their own (Procedure Call Standard for the Arm 64-bit Architecture §6.1.1), and the bit of
// PSTATE that single-steps (SPSR_EL1.SS).
const (
	callNumber   = 8
	framePointer = 29
	args         = 8

	softwareStep = 1 << 21
	syscallLen   = insnLen
	noCall       = ^uint64(0)
)

// IP is pc.
func (r *Regs) IP() arch.Addr { return arch.Addr(r.Pc) }

// SetIP changes it.
func (r *Regs) SetIP(a arch.Addr) { r.Pc = uint64(a) }

// Trapped is pc: brk does not advance it.
func (r *Regs) Trapped() arch.Addr { return r.IP() }

// SetTrapped makes pc a.
func (r *Regs) SetTrapped(a arch.Addr) { r.SetIP(a) }

// SP is sp.
func (r *Regs) SP() arch.Addr { return arch.Addr(r.Sp) }

// SetSP changes it.
func (r *Regs) SetSP(a arch.Addr) { r.Sp = uint64(a) }

// FP is x29.
func (r *Regs) FP() arch.Addr { return arch.Addr(r.X[framePointer]) }

// ReturnValue is x0.
func (r *Regs) ReturnValue() uint64 { return r.X[0] }

// SetReturnValue changes it.
func (r *Regs) SetReturnValue(v uint64) { r.X[0] = v }

// ThreadPointer is tpidr_el0.
func (r *Regs) ThreadPointer() arch.Addr { return arch.Addr(r.TLS) }

// TrapFlag is SS of PSTATE.
func (r *Regs) TrapFlag() bool { return r.Pstate&softwareStep != 0 }

// ClearTrapFlag clears it.
func (r *Regs) ClearTrapFlag() { r.Pstate &^= softwareStep }

// SetNativeMode does nothing: a thread can't leave 64-bit mode by itself.
func (r *Regs) SetNativeMode() {}

// Arg is the n-th integer argument, n from 0 to 7.
func (r *Regs) Arg(n int) (uint64, bool) {
	if n < 0 || n >= args {
		return 0, false
	}
	return r.X[n], true
}

// SetArg changes it.
func (r *Regs) SetArg(n int, v uint64) bool {
	if n < 0 || n >= args {
		return false
	}
	r.X[n] = v
	return true
}

// Names lists the registers, x0 to x30 first.
func (r *Regs) Names() (names []string) {
	for n := range r.X {
		names = append(names, "x"+strconv.Itoa(n))
	}
	return append(names, "sp", "pc", "pstate")
}

// Get returns a register by name; w0 to w30 are the low halves.
func (r *Regs) Get(name string) (uint64, bool) {
	if p := r.whole(name); p != nil {
		return *p, true
	}
	if len(name) > 1 && name[0] == 'w' {
		if p := r.whole("x" + name[1:]); p != nil {
			return *p & 0xffffffff, true
		}
	}
	return 0, false
}

// Set changes a whole register by name.
func (r *Regs) Set(name string, v uint64) bool {
	p := r.whole(name)
	if p != nil {
		*p = v
	}
	return p != nil
}

func (r *Regs) whole(name string) *uint64 {
	n := slices.Index(r.Names(), name)
	switch {
	case n < 0:
		return nil
	case n < len(r.X):
		return &r.X[n]
	}
	return []*uint64{&r.Sp, &r.Pc, &r.Pstate}[n-len(r.X)]
}

// SetSyscall loads nr and args for the system-call instruction at insn.
func (r *Regs) SetSyscall(nr uint64, args [6]uint64, insn arch.Addr) {
	r.X[callNumber] = nr
	copy(r.X[:], args[:])
	r.Pc, r.Call = uint64(insn), noCall
}

// InCall tells of a stopped thread that it is in a system call, or returns from one.
func (r *Regs) InCall() bool { return int64(r.Call) >= 0 }

// CallNumber is the number of that call.
func (r *Regs) CallNumber() uint64 { return r.Call }

// CallArg is the call's n-th argument, n from 0 to 5.
func (r *Regs) CallArg(n int) uint64 { return r.X[n] }

// CallResult is what the call returns, in the first argument's register.
func (r *Regs) CallResult() int64 { return int64(r.X[0]) }

// SetCallResult changes that.
func (r *Regs) SetCallResult(v int64) { r.X[0] = uint64(v) }

// LeaveCall makes the thread be in no call: the kernel restarts none.
func (r *Regs) LeaveCall() { r.Call = noCall }

// BeforeCall makes the registers of a thread at the entry of a system call those in front of the instruction.
func (r *Regs) BeforeCall() { r.Pc, r.Call = r.Pc-syscallLen, noCall }

// IntoCall is the opposite.
func (r *Regs) IntoCall() { r.Pc, r.Call = r.Pc+syscallLen, r.X[callNumber] }

// BehindCall moves a thread in front of a system-call instruction behind it, with the result that it has.
func (r *Regs) BehindCall() { r.Pc, r.Call = r.Pc+syscallLen, noCall }

// Clone returns an independent *Regs.
func (r *Regs) Clone() arch.Regs {
	c := *r
	return &c
}

// CopyFrom overwrites every register.
func (r *Regs) CopyFrom(o arch.Regs) {
	if o, ok := o.(*Regs); ok {
		*r = *o
	}
}

// Same tells whether all registers of the program are equal.
func (r *Regs) Same(o arch.Regs) bool {
	a, ok := o.(*Regs)
	if !ok {
		return false
	}
	b := *r
	b.Call = a.Call
	return b == *a
}
