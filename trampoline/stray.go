package trampoline

import (
	"slices"

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

// Avoid tells r which memory, apart from its own, holds code that can be executed. It may be nil.
func (r *Region) Avoid(code func(arch.Addr) bool) { r.codeAt = code }

// findFor is a.find of a place whose strays are free.
func (r *Region) findFor(a *Arena, p arch.Pattern, in arch.Range, n uint64) (at arch.Addr, ok bool) {
	for range strayTries {
		if at, ok = a.find(p, in, n); !ok || r.straysFree(p, stretch(at, n)) {
			return at, ok
		}
		r.crowded = true
		in.Start = at + 1
	}
	return 0, false
}

func (r *Region) straysFree(p arch.Pattern, landing arch.Range) bool {
	return !slices.ContainsFunc(p.Strays(landing.Start), func(at arch.Addr) bool {
		a, inside := r.arena(at)
		switch {
		case landing.Contains(at), r.strays[at] != nil:
			return true
		case !inside:
			return r.codeAt != nil && r.codeAt(at)
		}
		return a.ground == nil || !a.isFree(at)
	})
}

func (a *Arena) isFree(at arch.Addr) bool {
	off := uint64(at - a.code.Start)
	found, ok := a.ground.code.next(off, 1)
	return ok && found == off
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

// keepStrays reserves places in a new arena: the strays of jumps that were written
// before it came.
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
