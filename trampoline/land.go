package trampoline

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// Landing is a place for a detour and the way there from its site.
type Landing struct {
	Option int       // which of the patterns the jump to Entry fulfils
	Entry  arch.Addr // where the site's jump leads
	Detour arch.Addr // Entry, or where a jump at Entry is to lead
	Size   int       // of the detour in bytes
}

// landing is a Landing in use or retired.
type landing struct {
	Landing
	entry, detour arch.Range // entry is empty if it is the detour
	record        recordID
	retired       bool
	strays        []arch.Addr // where the site's jump leads when others change it
}

// grounds is the part of a Region that has detours.
type grounds struct {
	jumpLen  uint64
	traps    []byte                    // bytes that trap, the breakpoint's first
	homes    map[block]bool            // blocks whose home was looked for
	landings map[arch.Addr]*landing    // by Entry
	order    map[block][]*Arena        // what grounded has found, since the last arena came
	dirty    int                       // retired ones
	strays   map[arch.Addr]*landing    // who owns them
	codeAt   func(arch.Addr) arch.Addr // where code is that is not ours
	crowded  bool                      // a place was not taken for its strays
	vain     int                       // searches for an arena in a row that ended with no place whose strays are free
}

func newGrounds(a arch.Code) grounds {
	g := grounds{jumpLen: 1, homes: map[block]bool{}, landings: map[arch.Addr]*landing{}, order: map[block][]*Arena{}}
	g.traps = a.Breakpoint()[:1]
	d, ok := a.(arch.Detours)
	if !ok {
		return g
	}
	g.jumpLen = uint64(d.JumpLen())
	set := d.TrapBytes(false)
	for v := range 256 {
		if set.Has(byte(v)) && byte(v) != g.traps[0] {
			g.traps = append(slices.Clip(g.traps), byte(v))
		}
	}
	return g
}

// Land finds places for a site's jump and its detour. Each option is a pattern for the
// jump's displacement, the preferred first, all From the same address. size is the
// detour's length in bytes. The detour reaches all of near, the site's module, and of
// uses, such as its body's cells. An entry's jump needs to reach the detour only.
//
// The error matches ErrNoLanding if no option can be fulfilled; other errors are as for
// Cells.
func (r *Region) Land(near arch.Range, options []arch.Pattern, size int, uses ...arch.Range) (l Landing, err error) {
	err = r.growing(func() error {
		l, err = r.land(near, options, size, uses)
		return err
	})
	return l, err
}

func (r *Region) land(near arch.Range, options []arch.Pattern, size int, uses []arch.Range) (Landing, error) {
	need := &needArena{near: near, reach: r.arch.Reach(), kind: Detours, options: options, size: size, reached: near}
	for _, u := range uses {
		need.reached = hull(need.reached, u)
	}
	if len(options) == 0 || size <= 0 {
		return Landing{}, fmt.Errorf("%d options, %d bytes: %w", len(options), size, ErrNoLanding)
	}
	if b := blockOf(options[0].From); !r.homes[b] {
		need.home = &b
		return Landing{}, need
	}
	rec, ok := r.freeRecord()
	if !ok {
		return Landing{}, needCells(near, detourRecordSize, anywhere)
	}
	arenas := r.grounded(options[0].From)
	r.crowded = false
	for i, p := range options {
		l := &landing{Landing: Landing{Option: i, Size: size}, record: rec}
		err := r.landWhole(l, arenas, need, p)
		if errors.Is(err, ErrNoLanding) {
			err = r.landByEntry(l, arenas, need, p)
		}
		if errors.Is(err, ErrNoLanding) {
			continue
		}
		if err == nil {
			err = rec.arena.ground.records.reserve(rec.i)
		}
		if err != nil {
			return Landing{}, err
		}
		r.landings[l.Entry] = l
		return l.Landing, nil
	}
	if need.crowded = r.crowded; need.crowded && r.vain >= mostVain {
		return Landing{}, need.noPlace()
	}
	return Landing{}, need
}

// mostVain is how many searches in a row may find no arena for a jump whose strays are taken in those there are. A
// search reads the target's mappings: at each of thousands of such sites that would be seconds.
const mostVain = 64

// grounded returns the arenas of detours, the homes of from's block first.
func (r *Region) grounded(from arch.Addr) []*Arena {
	b := blockOf(from)
	if known, ok := r.order[b]; ok {
		return known
	}
	var homes, others []*Arena
	for _, a := range r.arenas {
		switch {
		case a.ground == nil:
		case r.isHome(a, b):
			homes = append(homes, a)
		default:
			others = append(others, a)
		}
	}
	r.order[b] = append(homes, others...)
	return r.order[b]
}

// landWhole places a detour where the site's jump may lead.
func (r *Region) landWhole(l *landing, arenas []*Arena, need *needArena, p arch.Pattern) error {
	for _, a := range arenas {
		at, ok := r.findFor(a, p, within(a.code, need.reached, need.reach), uint64(l.Size))
		if !ok {
			continue
		}
		l.Entry, l.Detour, l.detour = at, at, stretch(at, uint64(l.Size))
		if err := a.take(l.detour, l); err != nil {
			return err
		}
		return r.takeStrays(l, p)
	}
	return ErrNoLanding
}

// landByEntry places a jump where the site's may lead, and the detour where that one may.
func (r *Region) landByEntry(l *landing, arenas []*Arena, need *needArena, p arch.Pattern) error {
	for _, a := range arenas {
		at, ok := r.findFor(a, p, a.code, r.jumpLen)
		if !ok {
			continue
		}
		l.Entry, l.entry = at, stretch(at, r.jumpLen)
		if err := a.take(l.entry, l); err != nil {
			return err
		}
		err := r.takeStrays(l, p)
		if err == nil {
			err = r.landDetour(l, arenas, need)
		}
		if err != nil {
			return errors.Join(err, r.giveStrays(l), a.give(l.entry))
		}
		return nil
	}
	return ErrNoLanding
}

// landDetour places the detour of l, whose entry has its place.
func (r *Region) landDetour(l *landing, arenas []*Arena, need *needArena) error {
	for _, a := range arenas {
		reachable := within(within(a.code, need.reached, need.reach), l.entry, need.reach)
		at, ok := a.findAny(reachable, uint64(l.Size))
		if !ok {
			continue
		}
		l.Detour, l.detour = at, stretch(at, uint64(l.Size))
		return a.take(l.detour, l)
	}
	more := *need
	more.options, more.reached = nil, hull(need.reached, l.entry)
	return &more
}

func hull(a, b arch.Range) arch.Range {
	return arch.Range{Start: min(a.Start, b.Start), End: max(a.End, b.End)}
}

// within returns the part of r whose bytes are at most reach from every byte of near.
func within(r, near arch.Range, reach uint64) arch.Range {
	r.Start = max(r.Start, sub(near.End, reach))
	r.End = max(min(r.End, add(near.Start, reach)), r.Start)
	return r
}

func stretch(at arch.Addr, n uint64) arch.Range { return arch.Range{Start: at, End: at + arch.Addr(n)} }

// PutDetour stores code, which may be all of a landing's detour, the jump at its entry, or
// a part of one of them. A single byte is changed as a whole, for threads that run there. The
// error matches ErrNotAllocated if the place is not that of one landing.
func (r *Region) PutDetour(at arch.Addr, code []byte) error {
	a, ok := r.arena(at)
	if !ok {
		return fmt.Errorf("address %s: %w", at, ErrNotAllocated)
	}
	c, ok := a.chunkOf(at)
	if !ok {
		return fmt.Errorf("address %s: %w", at, ErrNotAllocated)
	}
	if uint64(len(code)) > uint64(c.at.End-at) {
		return fmt.Errorf("%d bytes of code at %s: %w", len(code), at, ErrSlotSize)
	}
	if err := a.store.Write(uint64(at-a.code.Start), code); err != nil {
		return fmt.Errorf("writing a detour at %s: %w", at, err)
	}
	return nil
}

// ChunkOf returns the start of the detour, or of the entry's jump, around ip. ok is
// false if ip lies in none, in use or retired.
func (r *Region) ChunkOf(ip arch.Addr) (start arch.Addr, ok bool) {
	a, ok := r.arena(ip)
	if !ok {
		return 0, false
	}
	c, ok := a.chunkOf(ip)
	return c.at.Start, ok
}

// FreeLanding fills the places of l with breakpoints, for Land to give out again. No
// thread may be inside nor come back to it; see RetireLanding. The error matches
// ErrNotAllocated.
func (r *Region) FreeLanding(l Landing) error {
	in, ok := r.landings[l.Entry]
	if !ok {
		return fmt.Errorf("detour at %s: %w", l.Detour, ErrNotAllocated)
	}
	r.give(in.places()...)
	return r.release(in)
}

// RetireLanding says that no thread will be led to l any more, though one may be inside. It
// keeps its code until CollectDetours. The error matches ErrNotAllocated.
func (r *Region) RetireLanding(l Landing) error {
	in, ok := r.landings[l.Entry]
	if !ok {
		return fmt.Errorf("detour at %s: %w", l.Detour, ErrNotAllocated)
	}
	if !in.retired {
		in.retired = true
		r.dirty++
	}
	return nil
}

// CollectDetours frees retired landings. inside reports whether a thread is in a
// landing's entry or detour, or will return there; such a landing stays. left is the
// number of those that stay. No thread may run meanwhile, unless the caller knows that
// it can't be inside.
func (r *Region) CollectDetours(inside func(arch.Range) bool) (left int, err error) {
	if r.dirty == 0 {
		return 0, nil
	}
	var errs []error
	var freed []arch.Range
	for _, l := range r.landings {
		if !l.retired {
			continue
		}
		if l.entry.Len() > 0 && inside(l.entry) || inside(l.detour) {
			left++
			continue
		}
		freed = append(freed, l.places()...)
		if err := r.release(l); err != nil {
			left++
			errs = append(errs, err)
		}
	}
	r.give(freed...)
	return left, errors.Join(errs...)
}

// release undoes Land, in the order in which a thread would come by.
func (r *Region) release(l *landing) error {
	if err := l.record.erase(); err != nil {
		return err
	}
	if err := r.giveStrays(l); err != nil {
		return err
	}
	for _, at := range []*arch.Range{&l.entry, &l.detour} {
		a, ok := r.arena(at.Start)
		if at.Len() == 0 || !ok {
			continue
		}
		if err := a.give(*at); err != nil {
			return err
		}
		*at = arch.Range{}
	}
	if l.retired {
		r.dirty--
	}
	delete(r.landings, l.Entry)
	return nil
}

// Detours is the number of landings in use or retired.
func (r *Region) Detours() int { return len(r.landings) }
