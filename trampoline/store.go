package trampoline

import (
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Store is how the tracer reaches one mapping of the region. Offsets are bytes
// from the mapping's start. An access beyond its end fails with ErrBounds.
type Store interface {
	Read(off uint64, p []byte) error
	Write(off uint64, p []byte) error
}

type bytesStore []byte

// Bytes is the store over the tracer's own mapping of the same pages. A write is
// a plain store, seen by the target at once; one of 1, 2, 4 or 8 bytes within an aligned
// word of eight is seen as a whole.
func Bytes(b []byte) Store { return bytesStore(b) }

func (s bytesStore) at(off uint64, n int) ([]byte, error) {
	if off > uint64(len(s)) || uint64(n) > uint64(len(s))-off {
		return nil, fmt.Errorf("%d bytes at offset %#x of %#x: %w", n, off, len(s), ErrBounds)
	}
	return s[off:][:n], nil
}

func (s bytesStore) Read(off uint64, p []byte) error {
	b, err := s.at(off, len(p))
	copy(p, b)
	return err
}

func (s bytesStore) Write(off uint64, p []byte) error {
	b, err := s.at(off, len(p))
	if err != nil {
		return err
	}
	switch len(b) { // one store each
	case 2:
		le.PutUint16(b, le.Uint16(p))
	case 4:
		le.PutUint32(b, le.Uint32(p))
	case 8:
		le.PutUint64(b, le.Uint64(p))
	default:
		copy(b, p)
	}
	return nil
}

type remoteStore struct {
	mem arch.Memory
	r   arch.Range
	why error // unless it is nil: why it is not shared
}

// Remote is the store over r in the target's memory, for a mapping that the
// tracer can't share: anonymous memory and caves. mem must be able to write
// pages that the target can't.
func Remote(mem arch.Memory, r arch.Range) Store { return Unshared(mem, r, nil) }

// Unshared is Remote for a mapping that was to be shared. why tells why it is not.
func Unshared(mem arch.Memory, r arch.Range, why error) Store { return remoteStore{mem, r, why} }

func (s remoteStore) at(off uint64, n int) (arch.Addr, error) {
	if off > s.r.Len() || uint64(n) > s.r.Len()-off {
		return 0, fmt.Errorf("%d bytes at offset %#x of %s: %w", n, off, s.r, ErrBounds)
	}
	return s.r.Start + arch.Addr(off), nil
}

func (s remoteStore) Read(off uint64, p []byte) error {
	at, err := s.at(off, len(p))
	if err != nil {
		return err
	}
	return s.mem.ReadMemory(at, p)
}

func (s remoteStore) Write(off uint64, p []byte) error {
	at, err := s.at(off, len(p))
	if err != nil {
		return err
	}
	return s.mem.WriteMemory(at, p)
}
