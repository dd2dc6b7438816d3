package amd64

import "github.com/gokprobe/gokprobe/arch"

// Regs is one thread's general registers in the layout of Linux's struct
// user_regs_struct (arch/x86/include/asm/user_64.h), which PTRACE_GETREGS and
// PTRACE_SETREGS exchange. Field names are those of x/sys/unix.PtraceRegs. It is
// not safe for concurrent use.
type Regs struct {
	R15      uint64
	R14      uint64
	R13      uint64
	R12      uint64
	Rbp      uint64
	Rbx      uint64
	R11      uint64
	R10      uint64
	R9       uint64
	R8       uint64
	Rax      uint64
	Rcx      uint64
	Rdx      uint64
	Rsi      uint64
	Rdi      uint64
	Orig_rax uint64
	Rip      uint64
	Cs       uint64
	Eflags   uint64
	Rsp      uint64
	Ss       uint64
	Fs_base  uint64
	Gs_base  uint64
	Ds       uint64
	Es       uint64
	Fs       uint64
	Gs       uint64
}

var _ arch.Regs = (*Regs)(nil)

// IP is rip.
func (r *Regs) IP() arch.Addr { return arch.Addr(r.Rip) }

// SetIP changes rip.
func (r *Regs) SetIP(a arch.Addr) { r.Rip = uint64(a) }

// Trapped is where the int3 begins that ends at rip.
func (r *Regs) Trapped() arch.Addr { return r.IP() - trapLen }

// SetTrapped puts rip behind an int3 at a.
func (r *Regs) SetTrapped(a arch.Addr) { r.SetIP(a + trapLen) }

// SP is rsp.
func (r *Regs) SP() arch.Addr { return arch.Addr(r.Rsp) }

// SetSP changes rsp.
func (r *Regs) SetSP(a arch.Addr) { r.Rsp = uint64(a) }

// FP is rbp, whether or not the code at hand uses it as a frame pointer.
func (r *Regs) FP() arch.Addr { return arch.Addr(r.Rbp) }

// ReturnValue is rax (System V ABI, AMD64 supplement §3.2.3).
func (r *Regs) ReturnValue() uint64 { return r.Rax }

// SetReturnValue changes rax.
func (r *Regs) SetReturnValue(v uint64) { r.Rax = v }

// arg is where the n-th integer argument is passed (System V ABI, AMD64
// supplement §3.2.3), nil beyond the sixth.
func (r *Regs) arg(n int) *uint64 {
	switch n {
	case 0:
		return &r.Rdi
	case 1:
		return &r.Rsi
	case 2:
		return &r.Rdx
	case 3:
		return &r.Rcx
	case 4:
		return &r.R8
	case 5:
		return &r.R9
	}
	return nil
}

// Arg is the n-th integer argument, n from 0 to 5, by the System V ABI.
func (r *Regs) Arg(n int) (uint64, bool) {
	if p := r.arg(n); p != nil {
		return *p, true
	}
	return 0, false
}

// SetArg changes the n-th integer argument, n from 0 to 5.
func (r *Regs) SetArg(n int, v uint64) bool {
	p := r.arg(n)
	if p != nil {
		*p = v
	}
	return p != nil
}

// SetSyscall loads nr and args for the syscall instruction at insn (the kernel's
// convention: rax; rdi rsi rdx r10 r8 r9). orig_rax becomes -1, so that the
// kernel does not restart a call that this stop interrupted
// (arch/x86/kernel/signal.c). The thread makes it in 64-bit mode.
func (r *Regs) SetSyscall(nr uint64, args [6]uint64, insn arch.Addr) {
	r.Rax = nr
	r.Rdi, r.Rsi, r.Rdx = args[0], args[1], args[2]
	r.R10, r.R8, r.R9 = args[3], args[4], args[5]
	r.Rip = uint64(insn)
	r.Orig_rax = ^uint64(0)
	r.SetNativeMode()
}

// SetNativeMode makes the thread execute 64-bit code. A far branch can take a target's
// thread to compatibility mode, where the same bytes are other instructions (SDM vol.
// 3A §5.2.1).
func (r *Regs) SetNativeMode() { r.Cs = UserCS }

// InNativeMode tells whether it does.
func (r *Regs) InNativeMode() bool { return r.Cs == UserCS }

// TrapFlag is TF (SDM vol. 3B §17.3.1.4). ptrace shows none that a tracer has set.
func (r *Regs) TrapFlag() bool { return r.Eflags&FlagTF != 0 }

// ClearTrapFlag clears TF.
func (r *Regs) ClearTrapFlag() { r.Eflags &^= FlagTF }

// Clone returns an independent *Regs.
func (r *Regs) Clone() arch.Regs {
	c := *r
	return &c
}

// CopyFrom overwrites every register. It panics if o is not *Regs.
func (r *Regs) CopyFrom(o arch.Regs) { *r = *o.(*Regs) }

// Same tells whether all registers are equal but RF, which each exception sets anew, and
// orig_rax, which is the kernel's.
func (r *Regs) Same(o arch.Regs) bool {
	a, ok := o.(*Regs)
	if !ok {
		return false
	}
	b := *r
	b.Orig_rax = a.Orig_rax
	b.Eflags = b.Eflags&^flagRF | a.Eflags&flagRF
	return b == *a
}

// gpr is the general register that the machine numbers n (SDM vol. 2A §3.1.1.1):
// ModRM's three bits extended by REX.
func (r *Regs) gpr(n int8) *uint64 {
	return [...]*uint64{
		&r.Rax, &r.Rcx, &r.Rdx, &r.Rbx, &r.Rsp, &r.Rbp, &r.Rsi, &r.Rdi,
		&r.R8, &r.R9, &r.R10, &r.R11, &r.R12, &r.R13, &r.R14, &r.R15,
	}[n&15]
}
