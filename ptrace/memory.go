package ptrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// memory is the ways into an address space, tried in this order:
// process_vm_readv/writev (one call, obeys the target's protections),
// /proc/PID/mem (ignores them), ptrace's word access (needs a stopped thread).
// A way that the kernel refuses for good is not tried again.
type memory struct {
	fd     int // of /proc/TID/mem, -1 if not open
	noVM   bool
	noFile bool
}

func (m *memory) close() {
	if m.fd >= 0 {
		unix.Close(m.fd)
		m.fd = -1
	}
}

// ReadMemory fills p from at, as the target itself could read it. A failure is an
// *arch.FaultError.
func (s *Space) ReadMemory(at arch.Addr, p []byte) error {
	return s.access(at, p, false)
}

// WriteMemory stores p at at, as the target itself could. A failure, also in the
// middle, is an *arch.FaultError.
func (s *Space) WriteMemory(at arch.Addr, p []byte) error {
	return s.access(at, p, true)
}

func (s *Space) access(at arch.Addr, p []byte, write bool) error {
	if len(p) == 0 {
		return nil
	}
	tid, err := s.TID()
	if err != nil {
		return &arch.FaultError{Addr: at, Write: write, Cause: err}
	}
	if !s.mem.noVM {
		err = processVM(tid, at, p, write)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
			return &arch.FaultError{Addr: at, Write: write, Cause: err}
		}
		s.mem.noVM = true
	}
	if err := s.permitted(at, len(p), write); err != nil {
		return &arch.FaultError{Addr: at, Write: write, Cause: err}
	}
	if err := s.force(at, p, write); err != nil {
		return &arch.FaultError{Addr: at, Write: write, Cause: err}
	}
	return nil
}

// processVM is process_vm_readv(2) or process_vm_writev(2), whole or an error.
func processVM(tid int, at arch.Addr, p []byte, write bool) error {
	local := unix.Iovec{Base: &p[0], Len: uint64(len(p))}
	remote := unix.RemoteIovec{Base: uintptr(at), Len: len(p)}
	nr := uintptr(unix.SYS_PROCESS_VM_READV)
	if write {
		nr = unix.SYS_PROCESS_VM_WRITEV
	}
	// Not a raw call: a page that userfaultfd or FUSE provides may block it.
	n, _, errno := unix.Syscall6(nr, uintptr(tid), uintptr(unsafe.Pointer(&local)), 1,
		uintptr(unsafe.Pointer(&remote)), 1, 0)
	switch {
	case errno != 0:
		return errno
	case int(n) != len(p):
		return unix.EFAULT
	}
	return nil
}

// permitted checks an access against the target's own mappings.
func (s *Space) permitted(at arch.Addr, n int, write bool) error {
	maps, err := s.Maps()
	if err != nil {
		return err
	}
	return permits(maps, at, n, write)
}

func permits(maps []procfs.Mapping, at arch.Addr, n int, write bool) error {
	end := at + arch.Addr(n)
	for _, m := range maps {
		if m.Range.Contains(at) && (write && m.Write || !write && m.Read) {
			if at = m.Range.End; at >= end {
				return nil
			}
		}
	}
	return unix.EFAULT
}

// writable tells whether the target may write there. It touches nothing: reading a page that can only be read makes it
// present, which the error code of the next fault tells the program.
func (s *Space) writable(at arch.Addr, n int) bool {
	return s.permitted(at, n, true) == nil
}

// force reads or writes whatever the protections say.
func (s *Space) force(at arch.Addr, p []byte, write bool) error {
	if !s.mem.noFile {
		err := s.memFile(at, p, write)
		if err == nil || !s.refused(err, at, write) {
			return err
		}
		s.mem.noFile = true
	}
	return s.words(at, p, write)
}

// refused tells errors of /proc/PID/mem that stay: no procfs, or a kernel started
// with proc_mem.force_override=never, which answers EIO for a write to memory that can
// be read. For memory that is not mapped EIO is the usual answer.
func (s *Space) refused(err error, at arch.Addr, write bool) bool {
	for _, errno := range []error{unix.EACCES, unix.EPERM, unix.ENOENT} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return write && errors.Is(err, unix.EIO) && s.memFile(at, make([]byte, 1), false) == nil
}

func (s *Space) memFile(at arch.Addr, p []byte, write bool) error {
	if s.mem.fd < 0 {
		tid, err := s.TID()
		if err != nil {
			return err
		}
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/mem", tid), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		s.mem.fd = fd
	}
	for len(p) > 0 {
		var n int
		var err error
		if write {
			n, err = unix.Pwrite(s.mem.fd, p, int64(at))
		} else {
			n, err = unix.Pread(s.mem.fd, p, int64(at))
		}
		switch {
		case err != nil:
			return err
		case n == 0:
			return unix.EFAULT
		}
		at, p = at+arch.Addr(n), p[n:]
	}
	return nil
}

// words uses PTRACE_PEEKTEXT and PTRACE_POKETEXT, which work through their own
// path in the kernel, on any stopped thread.
func (s *Space) words(at arch.Addr, p []byte, write bool) error {
	return s.withStopped(func(th *Thread) error {
		if write {
			return pokeText(th.TID, at, p)
		}
		return peekText(th.TID, at, p)
	})
}

func peekText(tid int, at arch.Addr, p []byte) error {
	for len(p) > 0 {
		var word [8]byte
		base := at &^ 7
		if err := requestPtr(unix.PTRACE_PEEKTEXT, tid, uintptr(base), unsafe.Pointer(&word)); err != nil {
			return err
		}
		n := copy(p, word[at-base:])
		at, p = at+arch.Addr(n), p[n:]
	}
	return nil
}

// pokeText writes whole aligned words, so bytes beside p are read and written back
// unchanged.
func pokeText(tid int, at arch.Addr, p []byte) error {
	for len(p) > 0 {
		var word [8]byte
		base := at &^ 7
		if err := requestPtr(unix.PTRACE_PEEKTEXT, tid, uintptr(base), unsafe.Pointer(&word)); err != nil {
			return err
		}
		n := copy(word[at-base:], p)
		if err := request(unix.PTRACE_POKETEXT, tid, uintptr(base), uintptr(binary.LittleEndian.Uint64(word[:]))); err != nil {
			return err
		}
		at, p = at+arch.Addr(n), p[n:]
	}
	return nil
}

// Text is the address space with writes that ignore the mapping's protection and
// give the target a private copy of the page: for code that was there.
func (s *Space) Text() arch.Memory { return textMemory{s} }

type textMemory struct{ s *Space }

func (t textMemory) ReadMemory(at arch.Addr, p []byte) error {
	if err := t.s.force(at, p, false); err != nil {
		return &arch.FaultError{Addr: at, Cause: err}
	}
	return nil
}

func (t textMemory) WriteMemory(at arch.Addr, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if err := t.s.force(at, p, true); err != nil {
		return &arch.FaultError{Addr: at, Write: true, Cause: err}
	}
	return nil
}

// MemoryWays tells which ways into target memory still work, for tests and logs:
// it disables those that are false.
type MemoryWays struct{ VM, File bool }

// LimitMemory makes the space use only the given ways and ptrace's words. It
// exists for machines on which a way lies about working, and for tests.
func (s *Space) LimitMemory(w MemoryWays) { s.mem.noVM, s.mem.noFile = !w.VM, !w.File }

var _ arch.Memory = (*Space)(nil)
