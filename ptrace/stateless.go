package ptrace

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// PeekMemory reads a process's memory without being its tracer; the permission is
// the same (PTRACE_MODE_ATTACH). It is for symbol tables, which are read on other
// goroutines than the tracer's. Safe for concurrent use.
type PeekMemory struct{ PID int }

// ReadMemory fills p from at. A failure is an *arch.FaultError.
func (m PeekMemory) ReadMemory(at arch.Addr, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	err := processVM(m.PID, at, p, false)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		err = m.file(at, p)
	}
	if err != nil {
		return &arch.FaultError{Addr: at, Cause: err}
	}
	return nil
}

func (m PeekMemory) file(at arch.Addr, p []byte) error {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/mem", m.PID), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n, err := unix.Pread(fd, p, int64(at))
	if err == nil && n != len(p) {
		err = unix.EFAULT
	}
	return err
}

// WriteMemory fails: this is a reader.
func (m PeekMemory) WriteMemory(at arch.Addr, _ []byte) error {
	return &arch.FaultError{Addr: at, Write: true, Cause: unix.EACCES}
}
