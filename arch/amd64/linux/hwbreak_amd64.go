package linux

import (
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// Where struct user (sys/user.h) has the debug registers: 0 to 3 hold addresses, 7 says which of them count.
const (
	debugRegister0 = 848
	debugRegister7 = debugRegister0 + 7*8
)

// debugRegisters is how many addresses there can be.
const debugRegisters = 4

// BreakAt sets debug registers of a stopped thread so that it traps in front of the
// instruction at each of ats (SDM vol. 3B §17.2): a fault, before the processor looks at what
// stands there. It changes no code. The error tells that this machine has none to give, or not so many; then none counts. The kernel keeps a
// register that was set once for the thread's process until that executes a program or ends: nobody else can have it (ptrace_register_breakpoint in
// arch/x86/kernel/ptrace.c).
func BreakAt(tid int, ats ...arch.Addr) error {
	if len(ats) > debugRegisters {
		return unix.ENOSPC
	}
	enabled := uintptr(0)
	for i, at := range ats {
		if err := request(unix.PTRACE_POKEUSR, tid, debugRegister0+8*uintptr(i), uintptr(at)); err != nil {
			return err
		}
		enabled |= 1 << (2 * i) // L0 to L3: execution, locally enabled
	}
	return request(unix.PTRACE_POKEUSR, tid, debugRegister7, enabled)
}

// BreakNowhere undoes BreakAt. It touches no register that was not set: to clear one is to ask the kernel for it.
func BreakNowhere(tid int) error { return request(unix.PTRACE_POKEUSR, tid, debugRegister7, 0) }
