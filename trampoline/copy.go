package trampoline

import (
	"bytes"
	"cmp"
	"errors"
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
// It is CopyContent and CopyBooks. The error matches ErrNotShared if the parent has a cave, or memory that is not shared with the tracer. Then the stores have
// some of it.
func (r *Region) CopyOf(parent *Region, zero map[arch.Addr]bool, stores func(Extent) (data, code Store)) error {
	known := map[Extent][2]Store{}
	once := func(e Extent) (data, code Store) {
		if _, ok := known[e]; !ok {
			data, code = stores(e)
			known[e] = [2]Store{data, code}
		}
		return known[e][0], known[e][1]
	}
	if err := parent.CopyContent(func(at arch.Addr) bool { return zero[at] }, once); err != nil {
		return err
	}
	return r.CopyBooks(parent, once)
}

// CopyContent writes to stores, a forked child's memory, what CopyOf copies. zero tells of cells that begin with zero. The child has no region yet, but who
// finds the memory there finds all that a recovery needs.
func (r *Region) CopyContent(zero func(arch.Addr) bool, stores func(Extent) (data, code Store)) error {
	if r.table == nil || slices.ContainsFunc(r.arenas, (*Arena).Cave) {
		return fmt.Errorf("the parent's arenas: %w", ErrNotShared)
	}
	var table Store
	journals := r.journal.parts
	for _, a := range r.mapped() {
		data, code := stores(a.ext)
		if err := a.copyContent(data, code, func(at arch.Addr) bool { return zero(at) || r.resume.former[at] }); err != nil { // nobody reads there in the child
			return err
		}
		if a.slots() && len(journals) > 0 { // in the same order
			if err := copyStore(data, a.data, journals[0].off, uint64(journals[0].used)*recordSize); err != nil {
				return err
			}
			journals = journals[1:]
		}
		if a.ext.Offset == 0 {
			table = data
		}
	}
	if table == nil {
		return fmt.Errorf("no first arena: %w", ErrNotShared)
	}
	return r.copyHeader(table)
}

// CopyBooks makes r, which has no arena yet, the region of a forked child to which parent's CopyContent has given its memory, which stores reach. parent is as it
// was then. The child may run.
func (r *Region) CopyBooks(parent *Region, stores func(Extent) (data, code Store)) error {
	var slots []*Arena
	copied := map[*Arena]*Arena{}
	for _, from := range parent.mapped() {
		data, code := stores(from.ext)
		to, err := from.copyTo(data, code)
		if err != nil {
			return err
		}
		copied[from] = to
		if r.arenas = append(r.arenas, to); to.slots() {
			slots = append(slots, to)
		}
	}
	slices.SortFunc(r.arenas, func(a, b *Arena) int { return cmp.Compare(a.code.Start, b.code.Start) })
	r.fileEnd, r.listed, r.homes = parent.fileEnd, parent.listed, maps.Clone(parent.homes)
	for _, a := range r.arenas {
		if a.ext.Offset == 0 {
			r.table = a.data
		}
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

// copyTo is an arena over data and code that is as a, and has its content. Its chunks are still those of a's landings.
func (a *Arena) copyTo(data, code Store) (*Arena, error) {
	to := *a
	to.data, to.store = data, code
	for _, s := range []Store{a.data, a.store, data, code} {
		if _, ok := s.(bytesStore); !ok {
			return nil, fmt.Errorf("the arena at %s: %w", a.span.Start, ErrNotShared)
		}
	}
	if a.ground != nil {
		to.ground = a.ground.copyTo(a, data.(bytesStore))
		return &to, nil
	}
	to.state, to.free = slices.Clone(a.state), slices.Clone(a.free)
	return &to, nil
}

func (g *ground) copyTo(a *Arena, data bytesStore) *ground {
	to := &ground{code: g.code.copy(), page: g.page, chunks: make([][]chunk, len(g.chunks)), cells: g.cells, records: g.records}
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
	c := &to.cells
	c.bytes = data[c.first:a.ext.Data.Len()]
	c.space, c.taken = g.cells.space.copy(), maps.Clone(g.cells.taken)
	return to
}

// copyContent writes what a has in its two parts, but for the header.
func (a *Arena) copyContent(data, code Store, zero func(arch.Addr) bool) error {
	g := a.ground
	if g == nil {
		return errors.Join(copyStore(code, a.store, a.codeOff, uint64(a.filled)*a.slotSize), copyStore(data, a.data, a.sites, 8*uint64(a.next)))
	}
	for p := 0; p < len(g.code.pages); p++ {
		first := p
		for p < len(g.code.pages) && g.code.pages[p] != nil {
			p++
		}
		if err := copyStore(code, a.store, uint64(first)*PageSize, uint64(p-first)*PageSize); err != nil {
			return err
		}
	}
	if err := copyStore(data, a.data, g.records.off, uint64(g.records.used)*detourRecordSize); err != nil {
		return err
	}
	for at, n := range g.cells.taken {
		if zero(at) {
			continue
		}
		if err := copyStore(data, a.data, g.cells.first+uint64(at-g.cells.at), uint64(n)); err != nil {
			return err
		}
	}
	return nil
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
		n, blank := 0, false
		for n < len(b) && !blank {
			page := b[n:min(n+PageSize-int((off+uint64(n))%PageSize), len(b))]
			if blank = bytes.Equal(page, zeroPage[:len(page)]); !blank {
				n += len(page)
			} else if n == 0 {
				off, b = off+uint64(len(page)), b[len(page):]
			}
		}
		if n == 0 {
			continue
		}
		if err := to.Write(off, b[:n]); err != nil {
			return err
		}
		off, b = off+uint64(n), b[n:]
	}
	return nil
}

var zeroPage [PageSize]byte

// copyHeader copies to to what is in front of the first arena's own: the list of arenas, the first resume table, the guard's data. The magic goes last.
func (r *Region) copyHeader(to Store) error {
	const held, behind = offGuard + offHeldMasks, offGuard + GuardLen
	for _, part := range [][2]uint64{{uint64(len(Magic)), held}, {behind, prefixSize}, {0, uint64(len(Magic))}} {
		if err := copyStore(to, r.table, part[0], part[1]-part[0]); err != nil {
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
	r.dirty, r.crowded, r.vain = parent.dirty, parent.crowded, parent.vain
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
		j.parts = append(j.parts, to)
	}
	return nil
}

// copyOf is the parent's table, which lies in the copy of an arena's data.
func (t *resumes) copyOf(parent *resumes, r *Region) error {
	at := parent.at
	i := slices.IndexFunc(r.arenas, func(a *Arena) bool { return a.ext.Data.Contains(at) })
	if i < 0 {
		return fmt.Errorf("the resume table at %s: %w", at, ErrNotAllocated)
	}
	*t = resumes{store: r.arenas[i].data, off: uint64(at - r.arenas[i].ext.Data.Start), at: at, keys: slices.Clone(parent.keys), to: maps.Clone(parent.to), used: parent.used, former: maps.Clone(parent.former)}
	return nil
}

// CellRanges is where the memory lies that Cells gives out, by the arenas' extents.
func (r *Region) CellRanges() map[Extent]arch.Range {
	all := map[Extent]arch.Range{}
	for _, a := range r.arenas {
		if a.ground != nil {
			all[a.ext] = arch.Range{Start: a.ground.cells.at, End: a.ext.Data.End}
		}
	}
	return all
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
