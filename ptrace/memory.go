package ptrace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// memory is what the kernel has refused for good of the ways into an address space: process_vm_readv/writev, /proc/PID/mem, and writes
// through that which protections forbid. Such a way is not tried again. What remains is ptrace's word access, which needs a stopped thread. See reach.go.
type memory struct {
	noVM, noFile, noForce bool
	// known is the mapping that was asked for last, before the tracer's moves.
	known region
	moves uint
}

// ReadMemory fills p from at, as the target itself could read it. A failure is an
// *arch.FaultError; it matches ErrNoAnswer if the memory is there for the target, but did not come in time.
func (s *Space) ReadMemory(at arch.Addr, p []byte) error {
	return fault(at, false, s.access(at, p, false, false))
}

// WriteMemory stores p at at, as the target itself could. A failure, also in the
// middle, is an *arch.FaultError. If that matches ErrNoAnswer, and a file is mapped there for all to see, p may still come to be written.
func (s *Space) WriteMemory(at arch.Addr, p []byte) error {
	return fault(at, true, s.access(at, p, true, false))
}

func fault(at arch.Addr, write bool, err error) error {
	if err != nil {
		return &arch.FaultError{Addr: at, Write: write, Cause: err}
	}
	return nil
}

// access reads or writes. With force it ignores the protections.
func (s *Space) access(at arch.Addr, p []byte, write, force bool) error {
	if len(p) == 0 {
		return nil
	}
	if err := s.reopen(); err != nil {
		return err
	}
	g, err := s.look(at, len(p), write)
	switch {
	case force && !g.mapped:
		return s.direct(at, p, write, true) // a stack may grow
	case err != nil:
		return err
	case !force && !g.allowed:
		return unix.EFAULT
	case write && g.shared:
		return s.writeShared(at, p, g)
	case g.absent && !write:
		return s.fetch(at, p, g, force)
	case g.file:
		return s.accessFile(at, p, write, force, g)
	}
	err = s.direct(at, p, write, !g.allowed)
	if errors.Is(err, unix.EIO) { // userfaultfd(2) is to provide it
		switch came := s.fetch(at, make([]byte, len(p)), g, true); {
		case came == nil:
			err = s.direct(at, p, write, !g.allowed)
		case errors.Is(came, ErrNoAnswer):
			err = came
		}
	}
	return err
}

// accessFile reads the present pages of a file, or writes to a private copy.
func (s *Space) accessFile(at arch.Addr, p []byte, write, force bool, g ground) error {
	if g.absent {
		if err := s.fetch(at, make([]byte, len(p)), g, true); err != nil {
			return err
		}
	}
	if !force && !s.mem.noVM && (g.unasked || !write) {
		done, err := s.there(at, p, write)
		if done {
			return err
		}
		if g, err = s.look(at, len(p), write); err != nil || !g.allowed {
			return errors.Join(err, unix.EFAULT)
		}
	}
	return s.direct(at, p, write, force && (!g.allowed || g.unasked))
}

// reopen opens the files of a space that has none: its first thread had gone too early, or is not dumpable.
func (s *Space) reopen() error {
	if s.entry.files.maps != nil && s.entry.files.mem != nil || s.mem.noFile {
		return nil
	}
	tid, err := s.TID()
	if err != nil {
		return err
	}
	if err := s.enter(tid); err == nil && s.entry.files.mem == nil {
		s.mem.noFile = true
	}
	return nil
}

// fetch reads pages that may not be present, on another goroutine.
func (s *Space) fetch(at arch.Addr, p []byte, g ground, forced bool) error {
	tid, err := s.TID()
	if err != nil {
		return err
	}
	mem, noVM := s.entry.files.mem, s.mem.noVM
	b := make([]byte, len(p))
	if err := patiently(waitFor{tid, g.where}, s.tracer.quit.done, func() error {
		if noVM {
			return readMem(mem, at, b)
		}
		return waitingRead(tid, mem, at, b, forced)
	}); err != nil {
		return err
	}
	copy(p, b)
	return nil
}

// writeShared writes to a mapped file, whose file system may want to be asked first (page_mkwrite).
func (s *Space) writeShared(at arch.Addr, p []byte, g ground) error {
	tid, err := s.TID()
	if err != nil {
		return err
	}
	mem, noVM, b := s.entry.files.mem, s.mem.noVM, bytes.Clone(p)
	return patiently(waitFor{tid, g.where}, s.tracer.quit.done, func() error {
		if !noVM {
			if err := processVM(tid, at, b, true); !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
				return err
			}
		}
		return writeMem(mem, at, b)
	})
}

// look tells what an access meets. A mapping is asked for once in a stop: what is made with a stop's registers is made in one moment, as far as other threads
// are concerned.
func (s *Space) look(at arch.Addr, n int, write bool) (ground, error) {
	if s.mem.moves != s.tracer.moves {
		s.mem.moves, s.mem.known = s.tracer.moves, region{}
	}
	if s.mem.noVM {
		return s.entry.files.look(at, n, write, &s.mem.known, s.Maps)
	}
	return s.entry.files.look(at, n, write, &s.mem.known, nil)
}

// there accesses pages that are there by process_vm_readv(2) or process_vm_writev(2): through /proc/PID/mem it would be devices' registers, too
// (generic_access_phys). done is false if that way is closed.
func (s *Space) there(at arch.Addr, p []byte, write bool) (done bool, err error) {
	tid, err := s.TID()
	if err != nil {
		return true, err
	}
	if err = processVM(tid, at, p, write); errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		s.mem.noVM = true
		return false, nil
	}
	return true, err
}

// processVM is process_vm_readv(2) or process_vm_writev(2), whole or an error.
func processVM(tid int, at arch.Addr, p []byte, write bool) error {
	local := unix.Iovec{Base: &p[0], Len: uint64(len(p))}
	remote := unix.RemoteIovec{Base: uintptr(at), Len: len(p)}
	nr := uintptr(unix.SYS_PROCESS_VM_READV)
	if write {
		nr = unix.SYS_PROCESS_VM_WRITEV
	}
	// Not a raw call: a page that somebody provides may block it.
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

// writable tells whether the target may write there. It touches nothing: reading a page that can only be read makes it
// present, which the error code of the next fault tells the program.
func (s *Space) writable(at arch.Addr, n int) bool {
	g, err := s.entry.files.look(at, n, true, &region{}, s.Maps)
	return err == nil && g.allowed
}

// direct accesses pages that nobody waits for. forbidden is a write that the
// protections do not allow.
func (s *Space) direct(at arch.Addr, p []byte, write, forbidden bool) error {
	if s.mem.noFile || write && forbidden && s.mem.noForce {
		return s.words(at, p, write)
	}
	mem := s.entry.files.mem
	err := accessMem(mem, at, p, write)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EBADF):
		s.mem.noFile = true
	case write && forbidden && errors.Is(err, unix.EIO) && readMem(mem, at, make([]byte, 1)) == nil:
		s.mem.noForce = true // a kernel with proc_mem.force_override=never; for memory that is not mapped EIO is the usual answer
	default:
		return err
	}
	return s.words(at, p, write)
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
	return fault(at, false, t.s.access(at, p, false, true))
}

func (t textMemory) WriteMemory(at arch.Addr, p []byte) error {
	t.s.writes++
	return fault(at, true, t.s.access(at, p, true, true))
}

// MemoryWays chooses the ways into target memory, for tests: it disables those that are
// false.
type MemoryWays struct{ VM, File bool }

// LimitMemory makes the space use only the given ways and ptrace's words. It
// exists for machines on which a way lies about working, and for tests.
func (s *Space) LimitMemory(w MemoryWays) { s.mem.noVM, s.mem.noFile = !w.VM, !w.File }

var _ arch.Memory = (*Space)(nil)
