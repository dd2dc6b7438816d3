package linux

import (
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// Where struct user (sys/user.h) has the debug registers 0 and 7.
const (
	debugRegister0 = 848
	debugRegister7 = debugRegister0 + 7*8
)

// BreakAt sets a debug register of a stopped thread so that it traps in front of the
// instruction at at (SDM vol. 3B §17.2): a fault, before the processor looks at what
// stands there. It changes no code. The error tells that this machine has none to give.
func BreakAt(tid int, at arch.Addr) error {
	if err := request(unix.PTRACE_POKEUSR, tid, debugRegister0, uintptr(at)); err != nil {
		return err
	}
	return request(unix.PTRACE_POKEUSR, tid, debugRegister7, 1) // L0: execution, locally enabled
}

// BreakNowhere undoes BreakAt.
func BreakNowhere(tid int) error {
	if err := request(unix.PTRACE_POKEUSR, tid, debugRegister7, 0); err != nil {
		return err
	}
	return request(unix.PTRACE_POKEUSR, tid, debugRegister0, 0)
}
