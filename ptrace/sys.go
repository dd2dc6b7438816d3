package ptrace

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests and constants of ptrace(2) that x/sys/unix does not name.
const (
	reqGetSigmask     = 0x420a
	reqSetSigmask     = 0x420b
	reqPeekSiginfo    = 0x4209
	eventStop         = 128
	optSuspendSeccomp = 1 << 21

	seizeOptions = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK |
		unix.PTRACE_O_TRACEVFORKDONE | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACEEXIT | unix.PTRACE_O_TRACESYSGOOD
)

// request issues one ptrace request. Only the tracer's thread may call it: the
// kernel answers ESRCH to every other thread.
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

// isTracee reports whether tid is a thread of ours that was not reaped yet.
func isTracee(tid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, tid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
	return err == nil
}

// waitStatus waits for a change of one child (or any of this thread's children
// if tid is -1). It is a blocking system call as the Go scheduler knows it, so
// garbage collection is not held up. __WNOTHREAD keeps the host program's own
// children out of it.
func waitStatus(tid int, flags int) (int, unix.WaitStatus, error) {
	var ws unix.WaitStatus
	if tid == -1 {
		flags |= unix.WNOTHREAD
	}
	for {
		pid, err := unix.Wait4(tid, &ws, flags|unix.WALL, nil)
		if err != unix.EINTR {
			return pid, ws, err
		}
	}
}
