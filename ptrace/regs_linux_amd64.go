package ptrace

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// Host is the architecture of the processes that this build can trace. This is
// the one file that picks it.
var Host arch.Arch = amd64.Arch{}

type hostRegs = amd64.Regs

// breakpointCode is si_code for int3. int1 has TRAP_BRKPT (arch/x86/kernel/traps.c).
const breakpointCode = siKernel

const ripOffset = unsafe.Offsetof(hostRegs{}.Rip)

// readRegs fills r with the general registers (struct user_regs_struct).
func readRegs(tid int, r *hostRegs) error {
	return requestPtr(unix.PTRACE_GETREGS, tid, 0, unsafe.Pointer(r))
}

// ordinary is the length of what stands in front of the bases and the segments of data in struct user_regs_struct. The kernel
// takes it whatever it holds (putreg in arch/x86/kernel/ptrace.c), but for a zero in cs or ss. Of the others it refuses values that a
// program can have all the same: a base in the upper half (wrgsbase), a selector of another privilege level than 3.
// PTRACE_SETREGS writes one register after the other and stops at such a one, with all before it written.
const ordinary = unsafe.Offsetof(hostRegs{}.Fs_base)

// special are the other registers, by their offsets.
var special = []uintptr{
	unsafe.Offsetof(hostRegs{}.Fs), unsafe.Offsetof(hostRegs{}.Gs), // before their bases, which they change
	unsafe.Offsetof(hostRegs{}.Fs_base), unsafe.Offsetof(hostRegs{}.Gs_base),
	unsafe.Offsetof(hostRegs{}.Ds), unsafe.Offsetof(hostRegs{}.Es),
}

func wordAt(r *hostRegs, offset uintptr) uint64 {
	return *(*uint64)(unsafe.Add(unsafe.Pointer(r), offset))
}

// writeRegs stores what differs between old, which the thread has, and r. A changed instruction pointer alone is one word: more would
// cost three times as much. A register that did not change is not written if the kernel might refuse it. Should it refuse a special one that
// did, the thread keeps all of these, and has the others all the same: where it goes on does not hang on that.
func writeRegs(tid int, old, r *hostRegs) error {
	if *old == *r {
		return nil
	}
	ip := old.Rip
	old.Rip = r.Rip
	same := *old == *r
	old.Rip = ip
	if same {
		return request(unix.PTRACE_POKEUSR, tid, ripOffset, uintptr(r.Rip))
	}
	refused := writeSpecial(tid, old, r)
	if err := writeOrdinary(tid, old, r); err != nil {
		return err
	}
	return refused
}

// writeOrdinary can't fail but for a thread that is gone. It is one request, so the thread never has a part of it.
//
// The kernel takes a regset of a thread in compatibility mode for one of 32-bit registers (task_user_regset_view), so such a thread is given all
// by PTRACE_SETREGS. What that refuses are the special ones: it has come behind the ordinary ones then.
func writeOrdinary(tid int, old, r *hostRegs) error {
	if !old.In64BitMode() {
		err := requestPtr(unix.PTRACE_SETREGS, tid, 0, unsafe.Pointer(r))
		if errors.Is(err, unix.EIO) {
			return nil
		}
		return err
	}
	iov := unix.Iovec{Base: (*byte)(unsafe.Pointer(r)), Len: uint64(ordinary)}
	return requestPtr(unix.PTRACE_SETREGSET, tid, ntPRStatus, unsafe.Pointer(&iov))
}

// writeSpecial undoes what it has written if one is refused. What could not be undone, since the kernel would not take the value
// that the thread has, stays: Regs.Set does not change it either, and a thread's mailbox, from which registers may come, knows no segments.
func writeSpecial(tid int, old, r *hostRegs) error {
	selectors := old.Fs != r.Fs || old.Gs != r.Gs
	for i, offset := range special {
		base := offset == special[2] || offset == special[3]
		if wordAt(old, offset) == wordAt(r, offset) && !(selectors && base) || !settable(base, wordAt(old, offset)) {
			continue
		}
		if err := request(unix.PTRACE_POKEUSR, tid, offset, uintptr(wordAt(r, offset))); err != nil {
			for _, written := range special[:i] {
				if wordAt(old, written) != wordAt(r, written) {
					_ = request(unix.PTRACE_POKEUSR, tid, written, uintptr(wordAt(old, written)))
				}
			}
			return err
		}
	}
	return nil
}

// cloneFlags are the flags of the clone, clone3, fork or vfork call that the
// thread is in. read fetches target memory.
func cloneFlags(r *hostRegs, read func(arch.Addr, []byte) error) (uint64, error) {
	switch r.Orig_rax {
	case unix.SYS_FORK:
		return uint64(unix.SIGCHLD), nil
	case unix.SYS_VFORK:
		return unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD), nil
	case unix.SYS_CLONE3:
		var flags uint64
		err := read(arch.Addr(r.Rdi), unsafe.Slice((*byte)(unsafe.Pointer(&flags)), 8))
		return flags, err
	}
	return r.Rdi, nil
}

// beforeCall makes the registers of a thread at the entry of a system call those in front of the instruction. The kernel
// makes no call then.
func beforeCall(r *hostRegs) {
	r.Rax, r.Orig_rax = r.Orig_rax, ^uint64(0)
	r.Rip -= uint64(len(Host.SyscallInsn()))
}

// intoCall is the opposite, as the kernel has it: the result register is -ENOSYS (arch/x86/entry/entry_64.S).
func intoCall(r *hostRegs) {
	enosys := -int64(unix.ENOSYS)
	r.Orig_rax, r.Rax = r.Rax, uint64(enosys)
	r.Rip += uint64(len(Host.SyscallInsn()))
}

// behindCall moves a thread in front of a system-call instruction behind it, as if the call had returned what is in
// the result register.
func behindCall(r *hostRegs) {
	r.Rip += uint64(len(Host.SyscallInsn()))
	r.Rcx, r.R11, r.Orig_rax = r.Rip, r.Eflags, ^uint64(0)
}

// nativeCall tells of a call that its number is one of this architecture's 64-bit ABI.
func nativeCall(info *syscallInfo) bool {
	const auditX8664 = 0xc000003e // AUDIT_ARCH_X86_64
	return info.arch == auditX8664
}

// resultless tells that the thread has returned by rt_sigreturn: the registers are those of what it returns to.
func resultless(r *hostRegs) bool { return int64(r.Orig_rax) < 0 }

// ST returns x87 register st(n), n being 0 to 7 (FXSAVE area, SDM vol. 1 §10.5.1). It returns
// ErrExited if the thread is gone.
func (th *Thread) ST(n int) (v [10]byte, err error) {
	var fx [512]byte
	if err := requestPtr(unix.PTRACE_GETFPREGS, th.TID, 0, unsafe.Pointer(&fx)); err != nil {
		return v, th.gone(err)
	}
	copy(v[:], fx[32+16*n:])
	return v, nil
}

// XMM returns the low 128 bits of vector register n (FXSAVE area, Intel SDM
// vol. 1 §10.5.1). The thread must be stopped.
func (th *Thread) XMM(n int) (lo, hi uint64, err error) {
	var fx [512]byte
	if err := requestPtr(unix.PTRACE_GETFPREGS, th.TID, 0, unsafe.Pointer(&fx)); err != nil {
		return 0, 0, th.gone(err)
	}
	p := (*[2]uint64)(unsafe.Pointer(&fx[160+16*n]))
	return p[0], p[1], nil
}

// SetXMM changes the low 128 bits of vector register n and nothing else. The thread must be
// stopped.
func (th *Thread) SetXMM(n int, lo, hi uint64) error {
	fx, err := th.xstate()
	if err != nil {
		return err
	}
	setXMM(fx, n, lo, hi)
	return th.setXstate(fx)
}

// setXMM changes a vector register of an XSAVE image. Where SSE state is in its initial
// configuration, what the image has of it counts for nothing until its bit in XSTATE_BV is
// set (SDM vol. 1 §13.4.2, §13.6); the kernel has put zeros there.
func setXMM(fx []byte, n int, lo, hi uint64) {
	const xmm0, xstateBV, sse = 160, 512, 2
	binary.LittleEndian.PutUint64(fx[xmm0+16*n:], lo)
	binary.LittleEndian.PutUint64(fx[xmm0+16*n+8:], hi)
	fx[xstateBV] |= sse
}

// ntPRStatus is the regset of the general registers, struct user_regs_struct (elf.h).
const ntPRStatus = 1

// basesEnd is where the kernel begins to refuse a base; further up with five-level page tables.
const basesEnd = 1<<47 - pageSize

// ntX86XState is the regset of all extended state in the layout of XSAVE (elf.h).
const ntX86XState = 0x202

// LastFPUInsn is the address of the last x87 instruction that the thread executed (FIP;
// Intel SDM vol. 1 §8.1.8). The thread must be stopped.
func (th *Thread) LastFPUInsn() (arch.Addr, error) {
	fx, err := th.xstate()
	if err != nil {
		return 0, err
	}
	return arch.Addr(binary.LittleEndian.Uint64(fx[fipOffset:])), nil
}

// SetLastFPUInsn changes it.
func (th *Thread) SetLastFPUInsn(a arch.Addr) error {
	fx, err := th.xstate()
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(fx[fipOffset:], uint64(a))
	return th.setXstate(fx)
}

func (th *Thread) setXstate(fx []byte) error {
	iov := unix.Iovec{Base: &fx[0], Len: uint64(len(fx))}
	return th.gone(requestPtr(unix.PTRACE_SETREGSET, th.TID, ntX86XState, unsafe.Pointer(&iov)))
}

// emptyX87 makes the x87 stack of an XSAVE image empty, as functions expect it (System V ABI,
// AMD64 supplement §3.2.3), with no exception pending. It reports whether it was not.
func emptyX87(fx []byte) (changed bool) {
	const statusWord, tags, inUse = 2, 4, 512 // SDM vol. 1 table 10-2, §13.4.2
	if fx[inUse]&1 == 0 || fx[statusWord] == 0 && fx[statusWord+1] == 0 && fx[tags] == 0 {
		return false
	}
	fx[statusWord], fx[statusWord+1], fx[tags] = 0, 0, 0
	return true
}

// fipOffset is where FXSAVE64 stores FIP (Intel SDM vol. 1 table 10-2).
const fipOffset = 8

// xstate reads the extended state. PTRACE_SETFPREGS would mark SSE as used, which a
// program that executes XSAVE can tell; this regset keeps XSTATE_BV.
func (th *Thread) xstate() ([]byte, error) {
	if th.Proc.tracer.fpu == nil {
		th.Proc.tracer.fpu = make([]byte, 64<<10)
	}
	buf := th.Proc.tracer.fpu
	iov := unix.Iovec{Base: &buf[0], Len: uint64(len(buf))}
	err := requestPtr(unix.PTRACE_GETREGSET, th.TID, ntX86XState, unsafe.Pointer(&iov))
	return buf[:iov.Len], th.gone(err)
}

// settable tells whether the kernel takes v as a base, or a selector.
func settable(base bool, v uint64) bool {
	if base {
		return v < basesEnd
	}
	const ownLevel = 3
	return v == 0 || v&3 == ownLevel
}
