package ptrace

import (
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// Where struct user (sys/user.h) has the debug registers 0 and 7.
const (
	debugRegister0 = 848
	debugRegister7 = debugRegister0 + 7*8
)

// trapHardware is the si_code of a debug register's SIGTRAP, TRAP_HWBKPT.
const trapHardware = 4

// breakAt has a stopped thread trap in front of the instruction at at by a debug register (SDM vol. 3B §17.2): a fault, before the
// processor looks at what stands there. It changes no code. The error tells that this machine has none to give.
func (th *Thread) breakAt(at arch.Addr) error {
	if err := request(unix.PTRACE_POKEUSR, th.TID, debugRegister0, uintptr(at)); err != nil {
		return err
	}
	return request(unix.PTRACE_POKEUSR, th.TID, debugRegister7, 1) // L0: execution, locally enabled
}

// breakNowhere undoes breakAt.
func (th *Thread) breakNowhere() error {
	if err := request(unix.PTRACE_POKEUSR, th.TID, debugRegister7, 0); err != nil {
		return err
	}
	return request(unix.PTRACE_POKEUSR, th.TID, debugRegister0, 0)
}
