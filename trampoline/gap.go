package trampoline

import (
	"cmp"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// PageSize is the granularity of mappings in bytes.
const PageSize = 4096

// lowestAddr is the default of vm.mmap_min_addr (64 KiB): below it a mapping
// would turn null-pointer bugs of the target into something else.
const lowestAddr arch.Addr = 64 << 10

// growthRoom is the room that stays free below the stack and above the heap, in bytes.
// The kernel keeps mmap at least 128 MiB away from the stack; the usual stack limit is
// 8 MiB. 1 GiB leaves room for a limit raised at run time and for a heap that brk(2)
// grows. It is still well within a reach of 2 GiB.
const growthRoom = 1 << 30

// Growth is the direction in which the kernel extends a mapping.
type Growth uint8

const (
	GrowsNot  Growth = iota // as most mappings
	GrowsDown               // [stack]
	GrowsUp                 // [heap]; before the first brk(2), the executable's last mapping
)

// Mapping is a used address range, as /proc/PID/maps lists it.
type Mapping struct {
	Range arch.Range
	Grows Growth
}

// findGap returns the page-aligned address of size free bytes, each at most reach bytes
// from every byte of near. It chooses the closest gap to near, and the one below if two
// are equally close. The range lies in limits and not below 64 KiB.
//
// A page stays free on each side of it, so that an overrun of a neighbour faults
// instead of meeting our code. room bytes stay free below a stack and above a heap. The
// inside of near is not used even where it is free: dlclose(3) unmaps a module from its
// first to its last byte.
//
// The error is a *NoGapError.
func findGap(used []Mapping, near arch.Range, size, reach uint64, limits arch.Range, room uint64) (arch.Addr, error) {
	size = roundUp(size)
	window := arch.Range{Start: sub(near.End, reach), End: add(near.Start, reach)}
	var best, nearest candidate
	for _, gap := range gaps(used, near, limits, room) {
		best.closer(fit(gap, near, window, size))
		nearest.closer(fit(gap, near, arch.Range{End: ^arch.Addr(0)}, size))
	}
	if !best.ok {
		return 0, &NoGapError{Near: near, Size: size, Reach: reach, Nearest: nearest.gap}
	}
	return best.at, nil
}

// candidate is a possible answer in a gap.
type candidate struct {
	ok       bool
	at       arch.Addr
	distance uint64
	gap      arch.Range
}

func (c *candidate) closer(o candidate) {
	if o.ok && (!c.ok || o.distance < c.distance) {
		*c = o
	}
}

// fit places size bytes in gap and window as close to near as they go. gap lies
// on one side of near.
func fit(gap, near, window arch.Range, size uint64) candidate {
	r := arch.Range{
		Start: roundUp(max(gap.Start, window.Start)),
		End:   min(gap.End, window.End) &^ (PageSize - 1),
	}
	if size == 0 || r.Start >= r.End || r.Len() < size {
		return candidate{}
	}
	if gap.End <= near.Start {
		return candidate{true, r.End - arch.Addr(size), uint64(near.Start - r.End), gap}
	}
	return candidate{true, r.Start, uint64(r.Start - near.End), gap}
}

// gaps returns the free ranges, in ascending order. No gap contains near.
func gaps(used []Mapping, near, limits arch.Range, room uint64) []arch.Range {
	blocked := make([]arch.Range, 0, len(used)+1)
	for _, m := range append([]Mapping{{Range: near}}, used...) {
		down, up := uint64(PageSize), uint64(PageSize)
		switch m.Grows {
		case GrowsDown:
			down = max(down, room)
		case GrowsUp:
			up = max(up, room)
		}
		blocked = append(blocked, arch.Range{Start: sub(m.Range.Start, down), End: add(m.Range.End, up)})
	}
	slices.SortFunc(blocked, func(a, b arch.Range) int { return cmp.Compare(a.Start, b.Start) })
	var free []arch.Range
	at := max(limits.Start, lowestAddr)
	for _, b := range blocked {
		if end := min(b.Start, limits.End); at < end {
			free = append(free, arch.Range{Start: at, End: end})
		}
		at = max(at, b.End)
	}
	if at < limits.End {
		free = append(free, arch.Range{Start: at, End: limits.End})
	}
	return free
}

// inReach reports whether every byte of a is at most reach from every byte of b.
func inReach(a, b arch.Range, reach uint64) bool {
	return uint64(max(a.End, b.End)-min(a.Start, b.Start)) <= reach
}

// sub and add saturate at the ends of the address space.
func sub(a arch.Addr, n uint64) arch.Addr { return a - min(a, arch.Addr(n)) }
func add(a arch.Addr, n uint64) arch.Addr { return a + min(^a, arch.Addr(n)) }

// roundUp returns the next multiple of PageSize, or the last one there is.
func roundUp[T ~uint64](n T) T {
	if n > ^T(0)-(PageSize-1) {
		return ^T(0) &^ (PageSize - 1)
	}
	return (n + PageSize - 1) &^ (PageSize - 1)
}
