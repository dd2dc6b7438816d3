package trampoline

import (
	"cmp"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// Where arenas of detours lie. The address space is cut into tiles; an arena is as much
// of one as is free. That costs the target addresses, not memory: pages of a memfd
// exist when something is stored there. So one arena serves all displacements that lead
// to its tile. A jump reaches 512 tiles, so a module never has more arenas, however
// many sites it has.
//
// A block is a tile's length of probed code. Its home is the tile where its jumps lead
// if the highest byte of their displacement is one that traps. Nearly all sites can
// have such a jump.

// tileSize is half of the range that one value of a displacement's highest byte covers
// (16 MiB). So for each value there is a tile that jumps from all bytes of a block
// reach whole.
const tileSize = 8 << 20

// leastHome is the size of the smallest part of a tile that is worth being a home.
const leastHome = 1 << 20

// Data parts: records for about 4,000 detours and 1.5 MiB of cells in a home; what
// there is room for elsewhere.
const (
	homeData = 2 << 20
	moreData = 8 << 20 // of an arena that is for data
)

// someRoom is the room that stays free below a stack and above a heap where growthRoom
// would leave no place.
const someRoom = 256 << 20

type block arch.Addr

func blockOf(from arch.Addr) block { return block(from &^ (tileSize - 1)) }

// home returns the tile where all jumps of b lead whose highest displacement byte is v.
func (b block) home(v byte) (arch.Range, bool) {
	start := arch.Addr(b).Add(int64(int8(v))<<24 + tileSize)
	return stretch(start, tileSize), (start > arch.Addr(b)) == (int8(v) >= 0)
}

// isHome reports whether a lies in one of b's homes.
func (r *Region) isHome(a *Arena, b block) bool {
	for _, v := range r.traps {
		if home, ok := b.home(v); ok && home.Contains(a.code.Start) {
			return true
		}
	}
	return false
}

// placeDetours decides where an arena of detours goes: in a home if possible, else wherever
// one of the options leads, else wherever it is reached.
func (r *Region) placeDetours(need *needArena, used []Mapping, limits arch.Range) (Extent, error) {
	p := placement{region: r, need: need}
	if need.home != nil {
		r.homes[*need.home] = true
	}
	for _, room := range []uint64{growthRoom, someRoom} {
		p.gaps = gaps(used, need.near, limits, room)
		if e, ok := p.place(); ok {
			r.vain = 0
			return e, nil
		}
	}
	if need.crowded {
		r.vain++
	}
	return Extent{}, need.noPlace()
}

// placement is one search for an arena's place.
type placement struct {
	region *Region
	need   *needArena
	gaps   []arch.Range
}

func (p *placement) place() (Extent, bool) {
	if p.need.cells > 0 {
		return p.placeCells()
	}
	if p.need.home != nil {
		if e, ok := p.placeHome(*p.need.home); ok {
			return e, true
		}
	}
	for _, o := range p.need.options {
		if e, ok := p.placeOption(o, p.need.size, true); ok {
			return e, true
		}
		if e, ok := p.placeOption(o, int(p.region.jumpLen), false); ok {
			return e, true
		}
	}
	if len(p.need.options) == 0 {
		return p.placeAnywhere()
	}
	return Extent{}, false
}

// placeHome takes the first of b's homes that is free enough.
func (p *placement) placeHome(b block) (Extent, bool) {
	for _, v := range p.region.traps {
		home, ok := b.home(v)
		if !ok {
			continue
		}
		free := p.largest(home)
		if free.Len() >= leastHome && within(free, p.need.reached, p.need.reach) == free {
			return p.region.layOutDetours(free, min(free.Len()/4, homeData)), true
		}
	}
	return Extent{}, false
}

// mostTries bounds how many places are tried for one option whose strays turn out not to be free.
const mostTries = 1024

// placeOption takes the free part of a tile where o may lead, with strays that are free, and n bytes fit, within
// the code's reach if inReach is set. The nearest gap is preferred. (Next to the program's code few places will do: what
// differs in one of the lower bytes of a displacement leads into that code.)
func (p *placement) placeOption(o arch.Pattern, n int, inReach bool) (Extent, bool) {
	head, tries := p.region.leastData(), 0
	for _, gap := range p.nearest(o.From) {
		window := arch.Range{Start: gap.Start + arch.Addr(head), End: gap.End}
		if inReach {
			window = within(window, p.need.reached, p.need.reach)
		}
		for at, ok := nextAllowed(o, window.Start); ok && at < window.End; at, ok = nextAllowed(o, at) {
			if next := p.region.straysTaken(o, stretch(at, uint64(n))); next != 0 {
				p.need.crowded = true
				if tries++; next >= window.End || tries > mostTries {
					break
				}
				at = next
				continue
			}
			free := clip(gap, tileOf(at))
			if at >= free.Start+arch.Addr(head) && free.End >= at+arch.Addr(n) && window.End >= at+arch.Addr(n) {
				data := min(free.Len()/4, homeData)
				if at < free.Start+arch.Addr(data) {
					data = head
				}
				return p.region.layOutDetours(free, data), true
			}
			if at < free.Start+arch.Addr(head) {
				at = free.Start + arch.Addr(head) // behind the data part
			} else {
				at = tileOf(at).End // the rest of the tile is too short
			}
		}
	}
	return Extent{}, false
}

// placeAnywhere takes the nearest free part of a tile that is in reach of the code.
func (p *placement) placeAnywhere() (Extent, bool) {
	size := p.region.leastData() + roundUp(uint64(p.need.size))
	for _, gap := range p.nearest(p.need.near.Start) {
		reachable := within(gap, p.need.reached, p.need.reach)
		for _, tile := range p.tiles(reachable) {
			if free := clip(reachable, tile); free.Len() >= size {
				return p.region.layOutDetours(free, min(free.Len()/4, homeData)), true
			}
		}
	}
	return Extent{}, false
}

// tiles returns the tiles of r, the nearest to the code first.
func (p *placement) tiles(r arch.Range) (tiles []arch.Range) {
	if r.Len() == 0 {
		return nil
	}
	for t := tileOf(r.Start); t.Start < r.End; t = tileOf(t.End) {
		tiles = append(tiles, t)
	}
	if r.End <= p.need.near.Start {
		slices.Reverse(tiles)
	}
	return tiles
}

// placeCells takes memory for data, near the code and, where that is known, its home.
func (p *placement) placeCells() (Extent, bool) {
	least := p.region.leastData() + roundUp(uint64(p.need.cells)*2) // a quarter is for records
	for size := max(moreData, least); ; size = max(size/2, least) {
		var best candidate
		window := arch.Range{Start: sub(p.need.near.End, p.need.reach), End: add(p.need.near.Start, p.need.reach)}
		for _, gap := range p.gaps {
			best.closer(fit(gap, p.need.near, window, size+PageSize))
		}
		if best.ok {
			return p.region.layOutDetours(stretch(best.at, size+PageSize), size), true
		}
		if size == least {
			return Extent{}, false
		}
	}
}

// largest is the largest free part of r, in whole pages.
func (p *placement) largest(r arch.Range) (best arch.Range) {
	for _, gap := range p.gaps {
		if c := clip(gap, r); c.Len() > best.Len() {
			best = c
		}
	}
	return best
}

// nearest returns the gaps that a jump at from may reach, the nearest first.
func (p *placement) nearest(from arch.Addr) []arch.Range {
	reach := arch.Range{Start: sub(from, 1<<31), End: add(from, 1<<31)}
	var found []arch.Range
	for _, gap := range p.gaps {
		if c := clip(gap, reach); c.Len() > p.region.leastData() {
			found = append(found, c)
		}
	}
	distance := func(r arch.Range) arch.Addr {
		if r.End <= from {
			return from - r.End
		}
		return r.Start - min(r.Start, from)
	}
	slices.SortFunc(found, func(a, b arch.Range) int { return cmp.Compare(distance(a), distance(b)) })
	return found
}

func tileOf(at arch.Addr) arch.Range { return stretch(at&^(tileSize-1), tileSize) }

// clip is the whole pages of what a and b share.
func clip(a, b arch.Range) arch.Range {
	r := arch.Range{Start: roundUp(max(a.Start, b.Start)), End: min(a.End, b.End) &^ (PageSize - 1)}
	r.End = max(r.End, r.Start)
	return r
}

// leastData is the size of the smallest data part that the next arena may have.
func (r *Region) leastData() uint64 {
	if r.listed == 0 {
		return prefixSize + PageSize
	}
	return PageSize
}

// layOutDetours makes an arena of detours from free pages. About data bytes are for
// data, a quarter of them for records.
func (r *Region) layOutDetours(free arch.Range, data uint64) Extent {
	data = roundUp(max(data, r.leastData()))
	e := Extent{Kind: Detours, Offset: r.fileEnd}
	e.Data = stretch(free.Start, data)
	e.Code = arch.Range{Start: e.Data.End, End: free.End}
	if r.listed == 0 {
		e.Records = prefixSize
	}
	e.RecordsLen = (data - e.Records) / 4 / detourRecordSize * detourRecordSize
	return e
}
