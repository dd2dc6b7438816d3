package kprobes

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Alloc gives the target size bytes of memory, zero, readable and writable, in whole
// pages. It belongs to the target, as does its content: it stays until Free, even after
// the session's end. The error matches ptrace.ErrSeccomp if the target can't be made to
// call mmap(2), unix.ENOMEM if it has no more memory.
func (s *Session) Alloc(size uint64) (arch.Addr, error) {
	var at arch.Addr
	err := s.do(func() (err error) {
		d := s.mainDomain()
		if d == nil {
			return ErrExited
		}
		at, err = d.memory.alloc(size)
		return err
	})
	return at, err
}

// Free takes back what Alloc gave.
func (s *Session) Free(at arch.Addr, size uint64) error {
	return s.do(func() error {
		d := s.mainDomain()
		if d == nil {
			return ErrExited
		}
		return d.memory.free(at, size)
	})
}

// Alloc is Session.Alloc for the address space of the thread, also in a followed child. The
// thread itself, or another, makes the system call.
func (r *Regs) Alloc(size uint64) (arch.Addr, error) { return r.domain.memory.alloc(size) }

// Free takes back what Alloc gave.
func (r *Regs) Free(at arch.Addr, size uint64) error { return r.domain.memory.free(at, size) }

func (m *memory) alloc(size uint64) (at arch.Addr, err error) {
	m.d.look.changed()
	err = m.d.space.Remote(func(r *ptrace.Remote) error {
		ret, err := r.Syscall(unix.SYS_MMAP, 0, size, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0), 0)
		at = arch.Addr(ret)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("allocating %d bytes in the target: %w", size, err)
	}
	return at, nil
}

func (m *memory) free(at arch.Addr, size uint64) error {
	m.d.look.changed()
	if err := m.d.space.Unmap(arch.Range{Start: at, End: at + arch.Addr(size)}); err != nil {
		return fmt.Errorf("freeing memory in the target: %w", err)
	}
	return nil
}
