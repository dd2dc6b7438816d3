package trampoline

import (
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// findCave returns the slots' room in the padding between the end of a segment
// and the end of its last page: from the first multiple of slotSize at or after
// segmentEnd. The error matches ErrCaveSize if there is none. Whether the
// padding is unused, adoptCave finds out.
func findCave(segmentEnd arch.Addr, slotSize int) (arch.Range, error) {
	size := arch.Addr(slotSize)
	r := arch.Range{Start: (segmentEnd + size - 1) / size * size, End: roundUp(segmentEnd)}
	if r.Start >= r.End || r.Len() < uint64(size) {
		return arch.Range{}, fmt.Errorf("padding behind %s: %w", segmentEnd, ErrCaveSize)
	}
	return r, nil
}

// adoptCave adds the padding r, which findCave returned, to the region. s reaches
// it, usually by Remote. The error matches ErrCaveUsed if r holds anything but
// zero bytes, or belongs to the region already.
//
// A cave is the target's own page, so it is changed slot by slot as they are
// allocated and made zero again by Wipe.
func (r *Region) adoptCave(cave arch.Range, s Store) error {
	if cave.Len() < r.slotSize() {
		return fmt.Errorf("cave %s: %w", cave, ErrCaveSize)
	}
	for _, a := range r.arenas {
		if a.span.Overlaps(cave) {
			return fmt.Errorf("cave %s: %w", cave, ErrCaveUsed)
		}
	}
	b := make([]byte, cave.Len())
	if err := s.Read(0, b); err != nil {
		return fmt.Errorf("reading the cave %s: %w", cave, err)
	}
	for i, c := range b {
		if c != 0 {
			return fmt.Errorf("byte %s of the cave %s: %w", cave.Start+arch.Addr(i), cave, ErrCaveUsed)
		}
	}
	r.insert(newArena(r.arch, cave, s, 0, r.slotSize()))
	return nil
}

// wipe makes everything zero that was filled and forgets all slots.
func (a *Arena) wipe() error {
	if err := a.store.Write(a.codeOff, make([]byte, uint64(a.filled)*a.slotSize)); err != nil {
		return fmt.Errorf("wiping the cave %s: %w", a.code, err)
	}
	clear(a.state)
	a.free, a.next, a.filled, a.live, a.dirty = nil, 0, 0, 0, 0
	return nil
}
