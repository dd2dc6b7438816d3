package ptrace

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// Identity is one certain process, even if another one gets its number later. The
// kernel may give a number to another process as soon as its own has ended and been
// waited for. A user who may choose the numbers of new processes (clone3(2) with
// set_tid, ns_last_pid) can make that happen at once. So code that uses a number for
// more than one system call identifies the process first, works by number, and then
// asks whether it is Still that process: if it is, it was so all the time. Safe for
// concurrent use.
type Identity struct {
	pid   int
	fd    int    // -1 before Linux 5.3
	start uint64 // its start time, which tells less: it is in hundredths of a second
}

// Identify tells who has number pid now, of a process or a thread of one. The error matches unix.ESRCH if nobody has.
func Identify(pid int) (*Identity, error) {
	id := &Identity{pid: pid, fd: -1}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // a thread's
		if st, serr := procfs.ReadStatus(pid, 0); serr == nil {
			id.pid = st.Tgid
			fd, err = unix.PidfdOpen(st.Tgid, 0)
		}
	}
	switch {
	case err == nil:
		id.fd = fd
	case errors.Is(err, unix.ESRCH):
		return nil, fmt.Errorf("process %d: %w", pid, unix.ESRCH)
	}
	st, err := procfs.ReadStat(id.pid, 0)
	if err != nil {
		id.Close()
		return nil, fmt.Errorf("process %d: %w (%w)", pid, unix.ESRCH, err)
	}
	id.start = st.StartTime
	return id, nil
}

// PID is the process's number.
func (id *Identity) PID() int { return id.pid }

// Still is nil if the process has its number still. Else the error matches unix.ESRCH:
// it has ended, and findings by its number may be another one's.
func (id *Identity) Still() error {
	if id.fd >= 0 {
		return still(id.pid, id.fd)
	}
	if st, err := procfs.ReadStat(id.pid, 0); err != nil || st.StartTime != id.start {
		return ended(id.pid)
	}
	return nil
}

// still is Identity.Still by a descriptor of the process.
func still(pid, fd int) error {
	if errors.Is(unix.PidfdSendSignal(fd, 0, nil, 0), unix.ESRCH) {
		return ended(pid)
	}
	return nil
}

func ended(pid int) error { return fmt.Errorf("process %d has ended: %w", pid, unix.ESRCH) }

// Close ends it. Of nil it does nothing.
func (id *Identity) Close() {
	if id != nil && id.fd >= 0 {
		_ = unix.Close(id.fd)
		id.fd = -1
	}
}
