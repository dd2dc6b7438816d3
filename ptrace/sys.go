package ptrace

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
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

// isParent reports whether the calling thread has children, that it has made or traces, which nobody has waited for.
func isParent() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL|unix.WNOTHREAD, nil)
	return err == nil
}

// ownThread is one thread of this program, for waiting for its end: what the kernel does
// for us there comes after the last line of Go.
type ownThread struct {
	tid   int
	start uint64 // tells it from a later thread of the same ID
	pidfd int    // -1 before Linux 6.9
}

// thisThread must be called on a locked thread.
func thisThread() ownThread {
	const pidfdThread = unix.O_EXCL // PIDFD_THREAD
	o := ownThread{tid: unix.Gettid(), pidfd: -1}
	if fd, err := unix.PidfdOpen(o.tid, pidfdThread); err == nil {
		o.pidfd = fd
	}
	if st, err := procfs.ReadStat(os.Getpid(), o.tid); err == nil {
		o.start = st.StartTime
	}
	return o
}

// waitEnd returns when the thread, which was told to, has ended. Call it once.
func (o ownThread) waitEnd() {
	if o.pidfd >= 0 {
		defer unix.Close(o.pidfd)
		for {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(o.pidfd), Events: unix.POLLIN}}, -1); err != unix.EINTR {
				return
			}
		}
	}
	for { // an older kernel offers nothing to wait for
		st, err := procfs.ReadStat(os.Getpid(), o.tid)
		if err != nil || st.StartTime != o.start || st.State == 'X' {
			return
		}
		runtime.Gosched()
	}
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
