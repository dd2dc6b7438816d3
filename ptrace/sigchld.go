package ptrace

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is the kernel's struct sigaction (rt_sigaction(2)), 32 bytes.
type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     Sigset
}

const saNoCldStop = 1

var quiet struct {
	sync.Mutex
	users int
	added bool
}

// quietSIGCHLD adds SA_NOCLDSTOP to this program's SIGCHLD action while a tracer runs.
// Without it every stop of a tracee runs Go's signal handler, which costs more than a
// register read. Exits are still signalled, and wait4 is woken either way. So os/exec
// and signal.Notify see the same as before, except for stopped children.
func quietSIGCHLD(on bool) {
	quiet.Lock()
	defer quiet.Unlock()
	if on {
		quiet.users++
	} else {
		quiet.users--
	}
	switch {
	case on && quiet.users == 1:
		quiet.added = changeSIGCHLD(func(flags uint64) uint64 { return flags | saNoCldStop })
	case !on && quiet.users == 0 && quiet.added:
		changeSIGCHLD(func(flags uint64) uint64 { return flags &^ saNoCldStop })
	}
}

// changeSIGCHLD reports whether it changed anything.
func changeSIGCHLD(change func(uint64) uint64) bool {
	var sa sigaction
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), 0, uintptr(unsafe.Pointer(&sa)), 8, 0, 0)
	if errno != 0 || change(sa.flags) == sa.flags {
		return false
	}
	sa.flags = change(sa.flags)
	_, _, errno = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(&sa)), 0, 8, 0, 0)
	return errno == 0
}
