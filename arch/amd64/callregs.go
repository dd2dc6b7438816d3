package amd64

import "github.com/gokprobe/gokprobe/arch"

// syscallLen is the length of the system-call instruction.
const syscallLen = 2

// noCall is orig_rax of a thread that is in no system call (arch/x86/include/asm/syscall.h).
const noCall = ^uint64(0)

// InCall tells of a stopped thread that it is in a system call, or returns from one.
func (r *Regs) InCall() bool { return int64(r.Orig_rax) >= 0 }

// CallNumber is the number of that call; above any number there is if the thread is in none.
func (r *Regs) CallNumber() uint64 { return r.Orig_rax }

// CallArg is the call's n-th argument, n from 0 to 5 (syscall(2), "Architecture calling conventions").
func (r *Regs) CallArg(n int) uint64 {
	switch n {
	case 0:
		return r.Rdi
	case 1:
		return r.Rsi
	case 2:
		return r.Rdx
	case 3:
		return r.R10
	case 4:
		return r.R8
	}
	return r.R9
}

// CallResult is what the call returns; in front of it, -ENOSYS.
func (r *Regs) CallResult() int64 { return int64(r.Rax) }

// SetCallResult changes that.
func (r *Regs) SetCallResult(v int64) { r.Rax = uint64(v) }

// LeaveCall makes the thread be in no call: the kernel restarts none.
func (r *Regs) LeaveCall() { r.Orig_rax = noCall }

// BeforeCall makes the registers of a thread at the entry of a system call those in front of the instruction. The kernel
// makes no call then.
func (r *Regs) BeforeCall() {
	r.Rax, r.Orig_rax = r.Orig_rax, noCall
	r.Rip -= syscallLen
}

// IntoCall is the opposite, as the kernel has it: the result register is -ENOSYS (arch/x86/entry/entry_64.S).
func (r *Regs) IntoCall() {
	const enosys = 38
	r.Orig_rax, r.Rax = r.Rax, ^uint64(enosys-1)
	r.Rip += syscallLen
}

// BehindCall moves a thread in front of a system-call instruction behind it, as if the
// call had returned with the present value of the result register.
func (r *Regs) BehindCall() {
	r.Rip += syscallLen
	r.Rcx, r.R11, r.Orig_rax = r.Rip, r.Eflags, noCall
}

// ThreadPointer is what C libraries have the thread's own data at.
func (r *Regs) ThreadPointer() arch.Addr { return arch.Addr(r.Fs_base) }
