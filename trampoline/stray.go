package trampoline

import (
	"github.com/gokprobe/gokprobe/arch"
)

// Others, such as a kernel uprobe, may change a byte of a site's jump at any time, and
// nobody is told. The jump then leads to one of its strays. All of them are known
// beforehand (arch.Pattern.Strays), and the landing owns these places as well. Each
// belongs to one landing alone. It holds a breakpoint, in memory of ours that is used
// for nothing else, or it lies where no code is. A thread that comes there traps or
// faults before it has done anything.

// strayTries is how many places are tried for one landing in one arena.
const strayTries = 256

// Avoid tells r which memory, apart from its own, holds code that can be executed: code returns where
// that ends which is at an address, 0 if there is none. It may be nil.
func (r *Region) Avoid(code func(at arch.Addr) (end arch.Addr)) { r.codeAt = code }

// findFor is a.find of a place whose strays are free.
func (r *Region) findFor(a *Arena, p arch.Pattern, in arch.Range, n uint64) (at arch.Addr, ok bool) {
	for range strayTries {
		if at, ok = a.find(p, in, n); !ok {
			return 0, false
		}
		next := r.straysTaken(p, stretch(at, n))
		if next == 0 {
			return at, true
		}
		r.crowded = true
		if next >= in.End {
			return 0, false
		}
		in.Start = next
	}
	return 0, false
}

// straysTaken is 0 if the strays of a jump to landing are free. Else it is an address up to which no landing
// as long has free strays: a search byte by byte would not come to the end of the detours that a stray lies in.
func (r *Region) straysTaken(p arch.Pattern, landing arch.Range) (next arch.Addr) {
	for _, at := range p.Strays(landing.Start) {
		end := r.takenUpTo(at)
		own := landing.Contains(at)
		if end == 0 && !own {
			continue
		}
		// Landings keep their distance to this stray as long as they have the same values in the bytes that it changes.
		same := sameDistance(p, landing.Start, at)
		if !own {
			same = min(same, add(landing.Start, uint64(end-at)))
		}
		next = max(next, same)
	}
	return next
}

// takenUpTo is 0 if a stray may be at at, else where that ends which is there.
func (r *Region) takenUpTo(at arch.Addr) (end arch.Addr) {
	if r.strays[at] != nil {
		end = at + 1
	}
	a, inside := r.arena(at)
	switch {
	case inside && a.ground == nil:
		return a.code.End
	case inside:
		if free := a.freeFrom(at); free > at {
			return free
		}
	case r.codeAt != nil:
		return max(end, r.codeAt(at))
	}
	return end
}

// freeFrom is the first free address of a's code from at on, or its end.
func (a *Arena) freeFrom(at arch.Addr) arch.Addr {
	return a.code.Start + arch.Addr(a.ground.code.firstFree(uint64(at-a.code.Start)))
}

// sameDistance returns an address up to which all landings that p allows from landing on are as far
// from one of their strays as landing is from its stray at at.
func sameDistance(p arch.Pattern, landing, at arch.Addr) arch.Addr {
	d := uint32(landing - p.From)
	changed := d ^ uint32(at-p.From)
	for k, values := range p.Byte {
		if byte(changed>>(8*k)) == 0 || values == arch.Bytes(byte(d>>(8*k))) {
			continue
		}
		below := uint32(1)<<(8*k) - 1
		return landing + arch.Addr(d|below-d) + 1
	}
	return ^arch.Addr(0)
}

// takeStrays makes l the owner of its jump's strays.
func (r *Region) takeStrays(l *landing, p arch.Pattern) error {
	for _, at := range p.Strays(l.Entry) {
		if err := r.takeStray(l, at); err != nil {
			return err
		}
	}
	return nil
}

func (r *Region) takeStray(l *landing, at arch.Addr) error {
	if a, inside := r.arena(at); inside && a.ground != nil {
		if err := a.take(stretch(at, 1), l); err != nil {
			return err
		}
	}
	if r.strays == nil {
		r.strays = map[arch.Addr]*landing{}
	}
	r.strays[at] = l
	l.strays = append(l.strays, at)
	return nil
}

// giveStrays undoes takeStrays.
func (r *Region) giveStrays(l *landing) error {
	for _, at := range l.strays {
		if a, inside := r.arena(at); inside && a.ground != nil {
			if err := a.give(stretch(at, 1)); err != nil {
				return err
			}
		}
		delete(r.strays, at)
	}
	l.strays = nil
	return nil
}

// strayPages is the pages outside of the arenas that have strays.
func (r *Region) strayPages() (all []Mapping) {
	pages := map[arch.Addr]bool{}
	for at := range r.strays {
		page := at &^ (PageSize - 1)
		if _, inside := r.arena(at); !inside && !pages[page] {
			pages[page] = true
			all = append(all, Mapping{Range: stretch(page, PageSize)})
		}
	}
	return all
}

// keepStrays reserves places in a new arena: the strays of jumps that were written
// before it came. An arena of slots is placed elsewhere.
func (r *Region) keepStrays(a *Arena) error {
	if a.ground == nil {
		return nil
	}
	for at, l := range r.strays {
		if a.code.Contains(at) {
			if err := a.take(stretch(at, 1), l); err != nil {
				return err
			}
		}
	}
	return nil
}
