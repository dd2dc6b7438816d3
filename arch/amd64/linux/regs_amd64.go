package linux

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// BreakpointCode is si_code for int3. int1 has TRAP_BRKPT (arch/x86/kernel/traps.c).
const BreakpointCode = 0x80 // SI_KERNEL

// OwnTrap is int1, which raises the signal that the kernel raises for a single step over a system call.
const OwnTrap = "\xf1"

// AuditArch is what PTRACE_GET_SYSCALL_INFO tells of calls by the 64-bit ABI, AUDIT_ARCH_X86_64 (linux/audit.h).
const AuditArch = 0xc000003e

// ReadRegs fills r with the general registers (struct user_regs_struct).
func ReadRegs(tid int, r *amd64.Regs) error {
	return requestPtr(unix.PTRACE_GETREGS, tid, 0, unsafe.Pointer(r))
}

// WriteAllRegs stores all of them, changed or not.
func WriteAllRegs(tid int, r *amd64.Regs) error {
	return requestPtr(unix.PTRACE_SETREGS, tid, 0, unsafe.Pointer(r))
}

// ordinary is the length of the fields in front of the bases and the segments of data
// in struct user_regs_struct. The kernel takes it whatever it holds (putreg in
// arch/x86/kernel/ptrace.c), but for a zero in cs or ss. Of the others it refuses
// values that a program can have all the same: a base in the upper half (wrgsbase), a
// selector of another privilege level than 3. PTRACE_SETREGS writes one register after
// the other and stops at such a one, with all before it written.
const ordinary = unsafe.Offsetof(amd64.Regs{}.Fs_base)

// special are the other registers, by their offsets.
var special = []uintptr{
	unsafe.Offsetof(amd64.Regs{}.Fs), unsafe.Offsetof(amd64.Regs{}.Gs), // before their bases, which they change
	unsafe.Offsetof(amd64.Regs{}.Fs_base), unsafe.Offsetof(amd64.Regs{}.Gs_base),
	unsafe.Offsetof(amd64.Regs{}.Ds), unsafe.Offsetof(amd64.Regs{}.Es),
}

func wordAt(r *amd64.Regs, offset uintptr) uint64 {
	return *(*uint64)(unsafe.Add(unsafe.Pointer(r), offset))
}

// WriteRegs stores the registers that differ between old, which the thread has, and r.
// A changed instruction pointer alone is one word: more would cost three times as much.
// A register that did not change is not written if the kernel might refuse it. Should
// it refuse a special one that did, the thread keeps all of these, and has the others
// all the same: where it goes on does not hang on that.
func WriteRegs(tid int, old, r *amd64.Regs) error {
	if *old == *r {
		return nil
	}
	ip := old.Rip
	old.Rip = r.Rip
	same := *old == *r
	old.Rip = ip
	if same {
		return request(unix.PTRACE_POKEUSR, tid, unsafe.Offsetof(amd64.Regs{}.Rip), uintptr(r.Rip))
	}
	refused := writeSpecial(tid, old, r)
	if err := writeOrdinary(tid, old, r); err != nil {
		return err
	}
	return refused
}

// writeOrdinary can't fail but for a thread that is gone. It is one request, so the thread never has a part of it.
//
// For a thread in compatibility mode, the kernel takes a regset for one of 32-bit
// registers (task_user_regset_view). So such a thread gets all registers by
// PTRACE_SETREGS. What that refuses are the special ones: it has come behind the
// ordinary ones then.
func writeOrdinary(tid int, old, r *amd64.Regs) error {
	if !old.InNativeMode() {
		err := requestPtr(unix.PTRACE_SETREGS, tid, 0, unsafe.Pointer(r))
		if errors.Is(err, unix.EIO) {
			return nil
		}
		return err
	}
	iov := unix.Iovec{Base: (*byte)(unsafe.Pointer(r)), Len: uint64(ordinary)}
	return requestPtr(unix.PTRACE_SETREGSET, tid, ntPRStatus, unsafe.Pointer(&iov))
}

// writeSpecial undoes its writes if one is refused. What could not be undone, since the
// kernel would not take the value that the thread has, stays: Regs.Set does not change
// it either, and a thread's mailbox, from which registers may come, knows no segments.
func writeSpecial(tid int, old, r *amd64.Regs) error {
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

// WriteIP stores the instruction pointer alone.
func WriteIP(tid int, ip arch.Addr) error {
	return request(unix.PTRACE_POKEUSR, tid, unsafe.Offsetof(amd64.Regs{}.Rip), uintptr(ip))
}

// WriteResult stores the result of a system call alone.
func WriteResult(tid int, v int64) error {
	return request(unix.PTRACE_POKEUSR, tid, unsafe.Offsetof(amd64.Regs{}.Rax), uintptr(v))
}

// ntPRStatus is the regset of the general registers, struct user_regs_struct (elf.h).
const ntPRStatus = 1

// basesEnd is where the kernel begins to refuse a base; further up with five-level page tables.
const basesEnd = 1<<47 - 4096

// settable tells whether the kernel takes v as a base, or a selector.
func settable(base bool, v uint64) bool {
	if base {
		return v < basesEnd
	}
	const ownLevel = 3
	return v == 0 || v&3 == ownLevel
}

// request issues one ptrace request. Only the tracer's thread may call it.
func request(req, tid int, addr, data uintptr) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(req), uintptr(tid), addr, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// requestPtr is request with data pointing to our memory.
func requestPtr(req, tid int, addr uintptr, data unsafe.Pointer) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(req), uintptr(tid), addr, uintptr(data), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
