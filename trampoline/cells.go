package trampoline

import (
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// cellSize is the unit of cells in bytes: a processor's cache line, so that what different
// threads change does not share one.
const cellSize = 64

// cellSpace is the part of an arena's data that Cells gives out.
type cellSpace struct {
	first uint64 // offset in the data part
	at    arch.Addr
	bytes []byte // from first on
	space space
	taken map[arch.Addr]int
}

func newCellSpace(e Extent, data []byte) cellSpace {
	// Pages that have only cells: whole ones are what a space keeps book of.
	first := roundUp(e.Records + e.RecordsLen)
	return cellSpace{
		first: first, at: e.Data.Start + arch.Addr(first), bytes: data[first:e.Data.Len()],
		space: newSpace(e.Data.Len() - first), taken: map[arch.Addr]int{},
	}
}

// alloc returns n bytes, n a multiple of cellSize.
func (c *cellSpace) alloc(n int) (arch.Addr, []byte, bool) {
	off, ok := c.space.next(0, uint64(n))
	if !ok {
		return 0, nil, false
	}
	fresh := true
	for p := off / PageSize; p <= (off+uint64(n)-1)/PageSize; p++ {
		fresh = fresh && c.space.page(p) == nil
	}
	_ = c.space.take(off, uint64(n), func(uint64) error { return nil })
	b := c.bytes[off:][:n:n]
	if !fresh { // unused memory is zero, and touching it would cost memory
		clear(b)
	}
	at := c.at + arch.Addr(off)
	c.taken[at] = n
	return at, b, true
}

// Cells returns n bytes of zeroed memory, aligned to 64 bytes, that the target may
// write. All code within a jump's reach of near reaches them; give their range to Land
// as one of uses. cell is the tracer's view of the same memory; it lasts as long as the
// arena's mapping.
//
// Errors match ErrNoLanding, ErrTooManyArenas, ErrCantMap, ErrNotShared, or are the Mapper's.
func (r *Region) Cells(near arch.Addr, n int) (at arch.Addr, cell []byte, err error) {
	if n <= 0 {
		return 0, nil, fmt.Errorf("%d bytes of cells: %w", n, ErrBounds)
	}
	err = r.growing(func() error {
		at, cell, err = r.cells(near, n)
		return err
	})
	return at, cell, err
}

func (r *Region) cells(near arch.Addr, n int) (arch.Addr, []byte, error) {
	code := stretch(near, 1)
	for _, a := range r.grounded(near) {
		if !inReach(a.span, code, r.arch.Reach()) {
			continue
		}
		if at, cell, ok := a.ground.cells.alloc((n + cellSize - 1) &^ (cellSize - 1)); ok {
			return at, cell[:n:n], nil
		}
	}
	if b := blockOf(near); !r.homes[b] {
		return 0, nil, &needArena{near: code, reach: r.arch.Reach(), kind: Detours, size: 1, reached: code, home: &b}
	}
	return 0, nil, needCells(code, n, r.arch.Reach())
}

// needCells orders n bytes of data; what no code refers to may lie anywhere.
func needCells(near arch.Range, n int, reach uint64) *needArena {
	return &needArena{near: near, reach: reach, kind: Detours, cells: n, reached: near}
}

// FreeCells gives back memory that Cells returned. No thread may use it any more. The
// error matches ErrNotAllocated.
func (r *Region) FreeCells(at arch.Addr) error {
	for _, a := range r.arenas {
		if a.ground == nil || !a.span.Contains(at) {
			continue
		}
		c := &a.ground.cells
		if n, ok := c.taken[at]; ok {
			r.give(stretch(at, uint64(n)))
			delete(c.taken, at)
			c.space.give(uint64(at-c.at), uint64(n))
			return nil
		}
	}
	return fmt.Errorf("cells at %s: %w", at, ErrNotAllocated)
}
