package ptrace

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Backing is the file of memory that is shared with a target. What is read and written by it needs no mapping, makes no page of a hole, and fails by an
// error. It may be read on any goroutine.
type Backing struct{ f *os.File }

func (f *memfd) backing() (*Backing, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("keeping shared memory's file: %w", err)
	}
	return &Backing{os.NewFile(uintptr(fd), f.Name())}, nil
}

// Close is for the end. The memory stays where it is mapped.
func (b *Backing) Close() {
	if b != nil {
		_ = b.f.Close()
	}
}

// WriteAt stores p at off, in bytes. Nobody is to run there: others may see any part of it first.
func (b *Backing) WriteAt(off uint64, p []byte) error {
	_, err := b.f.WriteAt(p, int64(off))
	return err
}

// ReadAt reads what is at off, in bytes.
func (b *Backing) ReadAt(off uint64, p []byte) error {
	_, err := b.f.ReadAt(p, int64(off))
	return err
}

// Written calls f for each stretch of [from, end), in bytes, in which anybody has ever stored something, in order.
func (b *Backing) Written(from, end uint64, f func(start, end uint64)) error {
	for from < end {
		start, err := b.f.Seek(int64(from), unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && uint64(start) >= end {
			return nil // there is no more
		}
		hole := int64(0)
		if err == nil {
			hole, err = b.f.Seek(start, unix.SEEK_HOLE)
		}
		if err != nil {
			return err
		}
		from = min(uint64(hole), end)
		f(uint64(start), from)
	}
	return nil
}
