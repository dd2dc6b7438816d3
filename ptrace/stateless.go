package ptrace

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
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
	id := m.PID
	w, err := openFiles(id, os.O_RDONLY)
	if err != nil {
		if id = procfs.Living(m.PID); id != m.PID { // its first thread has ended
			w.close()
			w, err = openFiles(id, os.O_RDONLY)
		}
	}
	defer func() { w.close() }()
	if err != nil {
		return fault(at, false, err)
	}
	g, err := w.look(at, len(p), false, &region{}, func() ([]procfs.Mapping, error) { return parseMaps(w.maps) })
	switch {
	case err != nil:
		return fault(at, false, err)
	case !g.allowed:
		return fault(at, false, unix.EFAULT)
	}
	return fault(at, false, readPatiently(id, w.mem, at, p, g))
}

// readPatiently reads memory as far as that is permitted, on any goroutine. A page that
// does not come is waited for a while. See reach.go.
func readPatiently(id int, mem *os.File, at arch.Addr, p []byte, g ground) error {
	if !g.absent {
		var err error
		if g.file {
			err = waitingRead(id, mem, at, p, false)
		} else {
			err = readMem(mem, at, p)
		}
		if g.file || !errors.Is(err, unix.EIO) {
			return err
		}
	}
	b := make([]byte, len(p))
	err := patiently(waitFor{id, g.where}, nil, func() error { return waitingRead(id, mem, at, b, false) })
	if err == nil {
		copy(p, b)
	}
	return err
}

// WriteMemory fails: this is a reader.
func (m PeekMemory) WriteMemory(at arch.Addr, _ []byte) error {
	return &arch.FaultError{Addr: at, Write: true, Cause: unix.EACCES}
}
