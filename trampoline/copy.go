package trampoline

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// CopyOf makes r, which has no arena yet, the region of a forked child that keeps all of its parent's: arenas where the parent's lie, with the same slots,
// detours, records and cells at the same addresses, and the guard. Not copied are what the parent has noted there of its own threads, what is in free cells, and
// what is in the cells whose addresses are in zero. stores reach the child's memory, zero, which may have been mapped already or not. Nobody changes the
// parent's region meanwhile; its threads may write to cells, of which any mixture of before and after is copied.
//
// The error matches ErrNotShared if the parent has a cave, or memory that is not shared with the tracer. Then the stores have some of it.
func (r *Region) CopyOf(parent *Region, zero map[arch.Addr]bool, stores func(Extent) (data, code Store)) error {
	var slots []*Arena
	copied := map[*Arena]*Arena{}
	for _, from := range parent.mapped() {
		data, code := stores(from.ext)
		to, err := from.copyTo(data, code, zero)
		if err != nil {
			return err
		}
		copied[from] = to
		if r.arenas = append(r.arenas, to); to.slots() {
			slots = append(slots, to)
		}
	}
	if len(copied) != len(parent.arenas) || parent.table == nil {
		return fmt.Errorf("the parent's arenas: %w", ErrNotShared)
	}
	slices.SortFunc(r.arenas, func(a, b *Arena) int { return cmp.Compare(a.code.Start, b.code.Start) })
	r.fileEnd, r.listed, r.homes = parent.fileEnd, parent.listed, maps.Clone(parent.homes)
	for _, a := range r.arenas {
		if a.ext.Offset == 0 {
			r.table = a.data
		}
	}
	if err := r.copyHeader(parent); err != nil {
		return err
	}
	r.copyLandings(parent, copied)
	if err := r.journal.copyOf(&parent.journal, slots); err != nil {
		return err
	}
	return r.resume.copyOf(&parent.resume, r)
}

// mapped is the arenas that are no caves, in the order in which they came.
func (r *Region) mapped() (list []*Arena) {
	for _, a := range r.arenas {
		if !a.Cave() {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b *Arena) int { return cmp.Compare(a.ext.Offset, b.ext.Offset) })
	return list
}

// copyTo is an arena over data and code that is as a, with its content. Its chunks are still those of a's landings.
func (a *Arena) copyTo(data, code Store, zero map[arch.Addr]bool) (*Arena, error) {
	to := *a
	to.data, to.store = data, code
	for _, s := range []Store{a.data, a.store, data, code} {
		if _, ok := s.(bytesStore); !ok {
			return nil, fmt.Errorf("the arena at %s: %w", a.span.Start, ErrNotShared)
		}
	}
	if a.ground != nil {
		g, err := a.ground.copyTo(a, data.(bytesStore), code, zero)
		to.ground = g
		return &to, err
	}
	to.state, to.free = slices.Clone(a.state), slices.Clone(a.free)
	if err := copyStore(code, a.store, a.codeOff, uint64(a.filled)*a.slotSize); err != nil {
		return nil, err
	}
	return &to, copyStore(data, a.data, a.sites, 8*uint64(a.next))
}

func (g *ground) copyTo(a *Arena, data bytesStore, code Store, zero map[arch.Addr]bool) (*ground, error) {
	to := &ground{code: g.code.copy(), page: g.page, chunks: make([][]chunk, len(g.chunks)), cells: g.cells, records: g.records}
	for p, m := range g.code.pages {
		if m == nil {
			continue
		}
		if err := copyStore(code, a.store, uint64(p)*PageSize, PageSize); err != nil {
			return nil, err
		}
	}
	n := 0
	for _, in := range g.chunks {
		n += len(in)
	}
	all := make([]chunk, 0, n)
	for p, in := range g.chunks {
		all = append(all, in...)
		to.chunks[p] = slices.Clip(all[len(all)-len(in):])
	}
	to.records.store, to.records.free = data, slices.Clone(g.records.free)
	if err := copyStore(data, a.data, g.records.off, uint64(g.records.used)*detourRecordSize); err != nil {
		return nil, err
	}
	c := &to.cells
	c.bytes = data[c.first:a.ext.Data.Len()]
	c.space, c.taken = g.cells.space.copy(), maps.Clone(g.cells.taken)
	for at, n := range c.taken {
		if !zero[at] {
			off := at - c.at
			copy(c.bytes[off:][:n], g.cells.bytes[off:][:n])
		}
	}
	return to, nil
}

// copyStore copies n bytes from offset off on, to memory that is zero: most pages of a header are, and stay untouched.
func copyStore(to, from Store, off, n uint64) error {
	own, ok := from.(bytesStore)
	if !ok {
		return ErrNotShared
	}
	b, err := own.at(off, int(n))
	if err != nil {
		return err
	}
	for len(b) > 0 {
		page := b[:min(PageSize-off%PageSize, uint64(len(b)))]
		if !bytes.Equal(page, zeroPage[:len(page)]) {
			if err := to.Write(off, page); err != nil {
				return err
			}
		}
		off, b = off+uint64(len(page)), b[len(page):]
	}
	return nil
}

var zeroPage [PageSize]byte

// copyHeader copies what is in front of the first arena's own: the list of arenas, the first resume table, the guard's data. The magic goes last.
func (r *Region) copyHeader(parent *Region) error {
	const held, behind = offGuard + offHeldMasks, offGuard + GuardLen
	for _, part := range [][2]uint64{{uint64(len(Magic)), held}, {behind, prefixSize}, {0, uint64(len(Magic))}} {
		if err := copyStore(r.table, parent.table, part[0], part[1]-part[0]); err != nil {
			return err
		}
	}
	return nil
}

func (r *Region) copyLandings(parent *Region, copied map[*Arena]*Arena) {
	same := make(map[*landing]*landing, len(parent.landings))
	of := func(l *landing) *landing {
		if l == nil || same[l] != nil {
			return same[l]
		}
		to := *l
		to.record.arena, to.strays = copied[l.record.arena], slices.Clone(l.strays)
		same[l] = &to
		return &to
	}
	for at, l := range parent.landings {
		r.landings[at] = of(l)
	}
	for at, l := range parent.strays {
		if r.strays == nil {
			r.strays = make(map[arch.Addr]*landing, len(parent.strays))
		}
		r.strays[at] = of(l)
	}
	for _, a := range r.arenas {
		if a.ground == nil {
			continue
		}
		for _, chunks := range a.ground.chunks {
			for i := range chunks {
				chunks[i].landing = of(chunks[i].landing)
			}
		}
	}
	r.dirty, r.crowded = parent.dirty, parent.crowded
}

// copyOf has one part for each of slots, the copies of the arenas of slots in the order in which those came.
func (j *Journal) copyOf(parent *Journal, slots []*Arena) error {
	j.sequence, j.near, j.more = parent.sequence, parent.near, maps.Clone(parent.more)
	if len(slots) != len(parent.parts) {
		return fmt.Errorf("%d journals of %d arenas: %w", len(parent.parts), len(slots), ErrRecord)
	}
	for i, from := range parent.parts {
		to := from
		to.store, to.free, to.live = slots[i].data, slices.Clone(from.free), slices.Clone(from.live)
		if err := copyStore(to.store, from.store, from.off, uint64(from.used)*recordSize); err != nil {
			return err
		}
		j.parts = append(j.parts, to)
	}
	return nil
}

// copyOf is the table that the header tells of, which lies in the copy of an arena's data.
func (t *resumes) copyOf(parent *resumes, r *Region) error {
	b := make([]byte, 8)
	if err := r.table.Read(offResume, b); err != nil {
		return err
	}
	at := arch.Addr(le.Uint64(b))
	i := slices.IndexFunc(r.arenas, func(a *Arena) bool { return a.ext.Data.Contains(at) })
	if i < 0 {
		return fmt.Errorf("the resume table at %s: %w", at, ErrNotAllocated)
	}
	*t = resumes{store: r.arenas[i].data, off: uint64(at - r.arenas[i].ext.Data.Start), keys: slices.Clone(parent.keys), to: maps.Clone(parent.to), used: parent.used}
	return nil
}

// Cell is the tracer's view of the memory at at that Cells gave, to this region or to the one that it is a copy of.
func (r *Region) Cell(at arch.Addr, n int) ([]byte, error) {
	for _, a := range r.arenas {
		if a.ground == nil {
			continue
		}
		if c := &a.ground.cells; c.taken[at] >= n {
			return c.bytes[at-c.at:][:n:n], nil
		}
	}
	return nil, fmt.Errorf("cells at %s: %w", at, ErrNotAllocated)
}
