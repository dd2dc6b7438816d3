package linux

import "golang.org/x/sys/unix"

// System calls that newer architectures do not have.
const (
	SysFork      = unix.SYS_FORK
	SysVfork     = unix.SYS_VFORK
	SysPoll      = unix.SYS_POLL
	SysSelect    = unix.SYS_SELECT
	SysEpollWait = unix.SYS_EPOLL_WAIT
)

// BeginsProcess tells of a call's number that it makes a process, or another program of it. Numbers of x32 have a bit more;
// five are those of int $0x80 (arch/x86/entry/syscalls/syscall_32.tbl).
func BeginsProcess(nr int) bool {
	const x32 = 1 << 30 // __X32_SYSCALL_BIT
	switch nr &^ x32 {
	case unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_EXECVE, unix.SYS_EXECVEAT,
		2, 11, 120, 190, 358:
		return true
	}
	return false
}

// PauseLoop is code that is in pause(2) for ever.
var PauseLoop = []byte{
	0xb8, unix.SYS_PAUSE, 0, 0, 0, // 0: mov $SYS_pause,%eax
	0x0f, 0x05, // 5: syscall
	0xeb, 0xf7, // 7: jmp 0
}
