package ptrace

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

var (
	// ErrExited means that the thread or process is gone or dying. It matches
	// unix.ESRCH.
	ErrExited = fmt.Errorf("the process has exited: %w", unix.ESRCH)
	// ErrClosed means that the tracer was closed.
	ErrClosed = errors.New("the tracer is closed")
	// ErrNoThread means that no thread of the process can run a system call for
	// us now, for example since all are inside vfork(2).
	ErrNoThread = errors.New("no thread of the process can run a system call now")
	// ErrNoSyscallInsn means that the process maps no system-call instruction.
	ErrNoSyscallInsn = errors.New("no system-call instruction found in the process")
	// ErrSeccomp means that a seccomp filter might kill the process for a
	// system call that is not its own, and the filter can't be suspended.
	ErrSeccomp = errors.New("a seccomp filter of the process may forbid system calls made on its behalf")
	// ErrNotHandled means that no Handler method is about the thread now.
	ErrNotHandled = errors.New("the thread is not stopped for a handler")
	// ErrCallTimeout means that a function did not return in time.
	ErrCallTimeout = errors.New("the function did not return in time")
	// ErrCallLeft means that a thread has left a function by another way than its return.
	ErrCallLeft = errors.New("the thread has left the function by another way than its return (longjmp or the like)")
	// ErrLetGo means that the thread was detached from.
	ErrLetGo = errors.New("the process was let go meanwhile")
)

// gone turns the kernel's ESRCH into ErrExited: the thread was killed while we
// looked at it, and its exit is the next thing wait4 reports of it.
func (th *Thread) gone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("thread %d: %w", th.TID, ErrExited)
	}
	return err
}

// Departed reports whether an error means that a process has left the address space, by
// its end or by exec, before the tracer was told.
func Departed(err error) bool {
	return errors.Is(err, ErrExited) || errors.Is(err, unix.EFAULT) || errors.As(err, new(*arch.FaultError))
}
