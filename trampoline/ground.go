package trampoline

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// ground is what an arena of detours has instead of slots. Code that is not in use holds
// breakpoints, in all pages that were ever touched.
type ground struct {
	code    space
	chunks  [][]chunk // by page of code, up to the last that ever had some: all that lie in it, in order of address
	page    []byte    // of breakpoints
	cells   cellSpace
	records recordTable
}

// chunk is a stretch of code in use: a detour, or an entry's jump.
type chunk struct {
	at      arch.Range
	landing *landing
}

// newDetourArena lays an arena of detours over the two mappings of e.
func newDetourArena(a arch.Code, e Extent, data, code Store) (*Arena, error) {
	bodies, shared := code.(bytesStore)
	cells, ok := data.(bytesStore)
	if remote, is := code.(remoteStore); is && remote.why != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotShared, remote.why)
	}
	if !shared || !ok {
		return nil, fmt.Errorf("detours at %s: %w", e.Code, ErrNotShared)
	}
	if len(cells) < int(e.Data.Len()) || len(bodies) < int(e.Code.Len()) {
		return nil, fmt.Errorf("detours at %s: %w", e.Code, ErrBounds)
	}
	return &Arena{
		span: e.Range(), code: e.Code, store: code, data: data, ext: e,
		ground: &ground{
			code:    newSpace(e.Code.Len()),
			page:    bytes.Repeat(a.Breakpoint(), PageSize/len(a.Breakpoint())),
			cells:   newCellSpace(e, cells),
			records: recordTable{store: data, off: e.Records, n: int(e.RecordsLen / detourRecordSize)},
		},
	}, nil
}

// find returns the lowest address in r, a part of a's code, where n free bytes begin and
// where p allows to jump to.
func (a *Arena) find(p arch.Pattern, r arch.Range, n uint64) (arch.Addr, bool) {
	at, ok := nextAllowed(p, r.Start)
	for ok && at < r.End && uint64(r.End-at) >= n {
		off, free := a.ground.code.next(uint64(at-a.code.Start), n)
		if !free {
			return 0, false
		}
		if found := a.code.Start + arch.Addr(off); found != at {
			at, ok = nextAllowed(p, found)
			continue
		}
		return at, true
	}
	return 0, false
}

// findAny is find without a pattern.
func (a *Arena) findAny(r arch.Range, n uint64) (arch.Addr, bool) {
	if r.Start >= r.End {
		return 0, false
	}
	off, ok := a.ground.code.next(uint64(r.Start-a.code.Start), n)
	at := a.code.Start + arch.Addr(off)
	return at, ok && at < r.End && uint64(r.End-at) >= n
}

// take makes at a chunk of l.
func (a *Arena) take(at arch.Range, l *landing) error {
	g := a.ground
	touch := func(page uint64) error { return a.store.Write(page*PageSize, g.page) }
	if err := g.code.take(uint64(at.Start-a.code.Start), at.Len(), touch); err != nil {
		return fmt.Errorf("preparing code at %s: %w", at.Start, err)
	}
	for p := a.page(at.Start); p <= a.page(at.End-1); p++ {
		for len(g.chunks) <= p {
			g.chunks = append(g.chunks, nil)
		}
		i, _ := g.search(p, at.Start)
		g.chunks[p] = slices.Insert(g.chunks[p], i, chunk{at, l})
	}
	return nil
}

// give fills the chunk at with breakpoints and makes it free.
func (a *Arena) give(at arch.Range) error {
	g := a.ground
	off := uint64(at.Start - a.code.Start)
	for done := uint64(0); done < at.Len(); done += PageSize {
		if err := a.store.Write(off+done, g.page[:min(PageSize, at.Len()-done)]); err != nil {
			return fmt.Errorf("emptying code at %s: %w", at.Start, err)
		}
	}
	for p := a.page(at.Start); p <= a.page(at.End-1); p++ {
		if i, found := g.search(p, at.Start); found {
			g.chunks[p] = slices.Delete(g.chunks[p], i, i+1)
		}
	}
	g.code.give(off, at.Len())
	return nil
}

// chunkOf returns the chunk around ip.
func (a *Arena) chunkOf(ip arch.Addr) (chunk, bool) {
	if a.ground == nil || !a.code.Contains(ip) {
		return chunk{}, false
	}
	p := a.page(ip)
	i, found := a.ground.search(p, ip)
	if !found {
		i--
	}
	if i < 0 || !a.ground.chunks[p][i].at.Contains(ip) {
		return chunk{}, false
	}
	return a.ground.chunks[p][i], true
}

func (a *Arena) page(at arch.Addr) int { return int(at-a.code.Start) / PageSize }

// search finds the first chunk in page p that begins at at or behind it.
func (g *ground) search(p int, at arch.Addr) (int, bool) {
	if p >= len(g.chunks) {
		return 0, false
	}
	return slices.BinarySearchFunc(g.chunks[p], at, func(c chunk, at arch.Addr) int {
		return cmp.Compare(c.at.Start, at)
	})
}
