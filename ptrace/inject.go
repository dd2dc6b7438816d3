package ptrace

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// Extent is two neighbouring mappings to make in the target: Data (rw-) and Code
// (r-x), of a file at Offset and right behind, in bytes.
type Extent struct {
	Data, Code arch.Range
	Offset     uint64
}

func (e Extent) fileEnd() uint64 { return e.Offset + e.Data.Len() + e.Code.Len() }

// MapShared makes a memfd in the target, maps it there as e says and once more here,
// writable. So no page of the target is ever writable and executable. Its size is sealed, and it is what the target has mapped: see
// memfd.go. The target keeps no descriptor; its forked children inherit the mappings. An error leaves nothing
// behind.
func (s *Space) MapShared(name string, e Extent) (*Shared, error) {
	var m *Shared
	err := s.Remote(func(r *Remote) (err error) {
		m, err = r.mapShared(name, e)
		return err
	})
	if err != nil {
		m.Unmap()
		return nil, fmt.Errorf("mapping shared memory in the target: %w", err)
	}
	return m, nil
}

func (r *Remote) mapShared(name string, e Extent) (m *Shared, err error) {
	err = r.withMemfd(name, func(f *memfd, fd uint64) error {
		m, err = r.mapMemfd(f, fd, e)
		return err
	})
	return m, err
}

// KeptGuard is a guard that a forked child keeps: Handler is the action of Signals.
type KeptGuard struct {
	Handler arch.Addr
	Signals Sigset
}

// ErrNotKept says that a forked child has not its parent's memory at a place, or not its guard.
var ErrNotKept = errors.New("the child has not what its parent has")

// ReplaceShared maps memory in a forked child as MapShared does, in the place of its parent's, which lies at exactly extents: one memfd for all of them. The
// first has what g needs. fill writes what belongs there before the child has any of it. The error matches ErrNotKept if the child has something else there, or
// other actions of signals. Until fill has returned the child has its parent's memory; after an error that comes later it has the same content in private memory, at those of extents that
// could not be mapped.
//
// fill gets the memory's file as well, by which it can be read and written without a page of it becoming ours. It is the caller's if there is no error.
func (s *Space) ReplaceShared(parent *Space, name string, extents []Extent, g KeptGuard, fill func([]*Shared, *Backing) error) error {
	for _, e := range extents {
		for _, at := range []arch.Addr{e.Data.Start, e.Code.Start} {
			theirs, err1 := parent.mapAt(at)
			own, err2 := s.mapAt(at)
			if err1 != nil || err2 != nil || theirs == nil || own == nil || *theirs != *own || !own.Shared {
				return errors.Join(ErrNotKept, err1, err2)
			}
		}
	}
	err := s.Remote(func(r *Remote) error {
		if ok, err := r.guarded(g.Signals, g.Handler); err != nil || !ok {
			return errors.Join(ErrNotKept, err)
		}
		return r.withMemfd(name, func(f *memfd, fd uint64) error { return r.replaceBy(f, fd, extents, fill) })
	})
	if err != nil {
		return fmt.Errorf("mapping shared memory in a forked child: %w", err)
	}
	return nil
}

func (r *Remote) replaceBy(f *memfd, fd uint64, extents []Extent, fill func([]*Shared, *Backing) error) (err error) {
	size := uint64(0)
	for _, e := range extents {
		size = max(size, e.fileEnd())
	}
	if err := f.seal(int64(size)); err != nil {
		return err
	}
	var ours []*Shared
	for _, e := range extents {
		m, err := newShared(r.th.Proc.tracer, f, e)
		if err != nil {
			for _, m := range ours {
				m.Unmap()
			}
			return err
		}
		ours = append(ours, m)
	}
	file, err := f.backing()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	if err := fill(ours, file); err != nil {
		return err
	}
	for i, e := range extents {
		err := r.mapBoth(e, unix.MAP_SHARED|unix.MAP_FIXED, fd)
		if err == nil {
			err = f.mapped(r.th.Proc.Space, e)
		}
		if err != nil {
			return errors.Join(err, r.mapInstead(extents[i:], ours[i:]))
		}
	}
	return nil
}

// mapInstead gives the child private memory at extents, with what was filled in, whatever is there now: it may have been of a file of the program's, whose
// number was taken for ours, or nothing. The guard is still an action, and jumps may lead there, until they are taken away. Where it can have no private memory
// either, it has its parent's as a rule, in which nothing is written.
//
// Who kills us before all is written leaves a child whose jumps may lead to nothing. It must have been refused memory at that very moment.
func (r *Remote) mapInstead(extents []Extent, filled []*Shared) error {
	var errs []error
	for i, e := range extents {
		errs = append(errs, r.mapPages(e.Data, unix.PROT_READ|unix.PROT_WRITE, filled[i].Data), r.mapPages(e.Code, unix.PROT_READ|unix.PROT_EXEC, filled[i].Code))
	}
	return errors.Join(errs...)
}

// mapPages maps private memory with the content b, whatever is there now.
func (r *Remote) mapPages(at arch.Range, prot uint64, b []byte) error {
	if err := r.mapOne(at, prot, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED, ^uint64(0), 0); err != nil {
		return err
	}
	return r.putPages(at.Start, b)
}

// putPages writes b to memory of the target's that is zero.
func (r *Remote) putPages(at arch.Addr, b []byte) error {
	zero := make([]byte, pageSize)
	var errs []error
	for off := 0; off < len(b); off += pageSize {
		if page := b[off:min(off+pageSize, len(b))]; !bytes.Equal(page, zero[:len(page)]) {
			errs = append(errs, r.th.Proc.Space.Text().WriteMemory(at+arch.Addr(off), page))
		}
	}
	return errors.Join(errs...)
}

// withMemfd runs f with a memfd that the target has made, as number fd of its descriptors.
func (r *Remote) withMemfd(name string, do func(f *memfd, fd uint64) error) error {
	fd, err := r.memfdCreate(name)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	f, err := r.th.takeMemfd(fd)
	theirs := errors.Is(err, errNotOurs) || errors.Is(err, unix.ENOENT)
	if err == nil {
		defer f.Close()
		err = do(f, fd)
		theirs = !f.isAt(r.th, fd)
	}
	if !theirs { // else ours was closed, and the number is used for a file of the program's, or will be
		_, _ = r.Syscall(unix.SYS_CLOSE, fd)
	}
	return err
}

// memfdCreate makes a memfd that can be sealed. Kernels since 6.3 want to be told that it is no program.
func (r *Remote) memfdCreate(name string) (fd uint64, err error) {
	err = r.WithString(name, func(at arch.Addr) (err error) {
		fd, err = r.Syscall(unix.SYS_MEMFD_CREATE, uint64(at), unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
		if errors.Is(err, unix.EINVAL) {
			fd, err = r.Syscall(unix.SYS_MEMFD_CREATE, uint64(at), unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		}
		return err
	})
	return fd, err
}

// mapMemfd maps f, which should be number fd of the target's, on both sides.
func (r *Remote) mapMemfd(f *memfd, fd uint64, e Extent) (*Shared, error) {
	if err := f.seal(int64(e.fileEnd())); err != nil {
		return nil, err
	}
	m, err := newShared(r.th.Proc.tracer, f, e)
	if err != nil {
		return nil, err
	}
	if err = r.mapBoth(e, unix.MAP_SHARED|unix.MAP_FIXED_NOREPLACE, fd); err == nil {
		if err = f.mapped(r.th.Proc.Space, e); err != nil {
			err = errors.Join(err, r.munmap(arch.Range{Start: e.Data.Start, End: e.Code.End}))
		}
	}
	if err != nil {
		m.Unmap()
		return nil, err
	}
	return m, nil
}

// MapPrivate maps e as anonymous memory, for targets that can't have a memfd. The
// tracer writes it through Text.
func (s *Space) MapPrivate(e Extent) error {
	err := s.Remote(func(r *Remote) error {
		return r.mapBoth(e, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE, ^uint64(0))
	})
	if err != nil {
		return fmt.Errorf("mapping memory in the target: %w", err)
	}
	return nil
}

func (r *Remote) mapBoth(e Extent, flags, fd uint64) error {
	if err := r.mapOne(e.Data, unix.PROT_READ|unix.PROT_WRITE, flags, fd, e.Offset); err != nil {
		return err
	}
	err := r.mapOne(e.Code, unix.PROT_READ|unix.PROT_EXEC, flags, fd, e.Offset+e.Data.Len())
	if err != nil && flags&unix.MAP_FIXED == 0 {
		err = errors.Join(err, r.munmap(e.Data))
	}
	return err
}

func (r *Remote) mapOne(at arch.Range, prot, flags, fd, offset uint64) error {
	if flags&unix.MAP_ANONYMOUS != 0 {
		offset = 0
	}
	got, err := r.Syscall(unix.SYS_MMAP, uint64(at.Start), at.Len(), prot, flags, fd, offset)
	if err != nil {
		return fmt.Errorf("mmap at %s: %w", at.Start, err)
	}
	if arch.Addr(got) != at.Start {
		// A kernel before 4.17 takes the address as a hint.
		return errors.Join(fmt.Errorf("mmap at %s: %w", at.Start, unix.EEXIST),
			r.munmap(arch.Range{Start: arch.Addr(got), End: arch.Addr(got + at.Len())}))
	}
	return nil
}

func (r *Remote) munmap(at arch.Range) error {
	_, err := r.Syscall(unix.SYS_MUNMAP, uint64(at.Start), at.Len())
	return err
}

// Unmap removes target mappings. No thread may be inside.
func (s *Space) Unmap(ranges ...arch.Range) error {
	if len(ranges) == 0 {
		return nil
	}
	return s.Remote(func(r *Remote) error {
		var errs []error
		for _, at := range ranges {
			if err := r.munmap(at); err != nil {
				errs = append(errs, fmt.Errorf("munmap %s: %w", at, err))
			}
		}
		return errors.Join(errs...)
	})
}

// Drop has private pages of a file's mapping dropped (MADV_DONTNEED): the next access finds the file's own. Nobody may write there meanwhile. After an error some
// of ranges may have been.
func (s *Space) Drop(ranges ...arch.Range) error {
	return s.Remote(func(r *Remote) error {
		for _, at := range ranges {
			if _, err := r.Syscall(unix.SYS_MADVISE, uint64(at.Start), at.Len(), unix.MADV_DONTNEED); err != nil {
				return fmt.Errorf("dropping the copies at %s: %w", at, err)
			}
		}
		return nil
	})
}
