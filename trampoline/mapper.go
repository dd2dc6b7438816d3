package trampoline

import (
	"errors"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Mapper gives a Region memory in the target. A Region that has no room within reach calls it
// from inside Alloc, Reserve, Land, Cells, SetResume and Journal.Record, on the tracer's
// goroutine.
//
// The target's threads may run meanwhile or be frozen, as they were when the Region was
// called: Map and Unmap must work either way. Usually a thread of the target makes
// system calls for them. For that they may handle events of the target, and a handler
// may use the same Region. So at each call the Region is consistent and holds no
// half-made allocation, and a use from inside Map or Unmap may itself grow it. If
// another arena takes the place of one while that is being mapped, the latter is given
// to Unmap, and the search for room begins anew.
//
// What Map has mapped stays on both sides until Unmap, or until the Region is not used any more.
type Mapper interface {
	// Mappings returns what the address space has mapped at this moment, as
	// /proc/PID/maps lists it, and the addresses that a mapping may have.
	Mappings() (used []Mapping, limits arch.Range, err error)
	// Map maps two neighbours of zero bytes, e.Data (rw-) and e.Code (r-x), at exactly these
	// addresses: a memfd of at least e.FileEnd bytes from e.Offset on, where the target can have
	// one. The stores reach the two parts. Those of an arena of Detours must be
	// made by Bytes. After an error nothing stays mapped. The error of Map or Mappings matches
	// ErrCantMap if no memory can be mapped, and a cave is to serve for slots.
	Map(e Extent) (data, code Store, err error)
	// Unmap takes back what Map mapped for e. The Region has no reference to it.
	Unmap(e Extent) error
	// Cave returns where the executable segment ends that holds near.Start, and the memory
	// through which its padding is read and written.
	Cave(near arch.Range) (segmentEnd arch.Addr, text arch.Memory, err error)
}

// needArena says which arena would give an allocation room.
type needArena struct {
	near  arch.Range // the code that the arena must reach, all of it
	reach uint64     // how far, in bytes
	slots int        // how many more slots are wanted; 0 if journal records are

	kind Kind // Detours, if the fields below are wanted instead
	// options are where a detour of size bytes may lie; without them, anywhere.
	options []arch.Pattern
	size    int
	cells   int // bytes of data that are wanted

	reached arch.Range // all that the detour must reach
	home    *block     // the arena is to be this block's home
	crowded bool       // there are places, but none whose strays are free
}

// noPlace is the error if there is no place for an arena of detours.
func (e *needArena) noPlace() *NoGapError {
	return &NoGapError{Near: e.near, Size: PageSize, Reach: e.reach, detours: true, crowded: e.crowded}
}

func (e *needArena) Error() string {
	switch {
	case e.cells > 0:
		return fmt.Sprintf("no room for %d bytes of data within reach of %s", e.cells, e.near)
	case e.kind == Detours:
		return fmt.Sprintf("no room for a detour within reach of %s", e.near)
	case e.slots == 0:
		return "the journal is full"
	}
	return fmt.Sprintf("no free slot within reach of %s", e.near)
}

// maxGrowths bounds how many arenas one allocation may map. A detour may take up to
// four: a home for its block of code, one where the jump may lead, one for the detour
// itself, and one for its record.
const maxGrowths = 4

// growing repeats allocate, which has no effect when its error is *needArena, with one more arena each time.
func (r *Region) growing(allocate func() error) error {
	for n := 0; ; n++ {
		err := allocate()
		var need *needArena
		if !errors.As(err, &need) {
			return err
		}
		if n == maxGrowths {
			return fmt.Errorf("%w, and %d new arenas did not help: %w", err, n, ErrTooManyArenas)
		}
		if err := r.grow(need); err != nil {
			return err
		}
	}
}

// grow adds the arena that need asks for. If the target can't map memory, slots go into padding of
// its code.
func (r *Region) grow(need *needArena) error {
	err := r.mapArena(need)
	if need.slots == 0 || !errors.Is(err, ErrCantMap) {
		return err
	}
	if cave := r.addCave(need.near); cave != nil {
		return fmt.Errorf("%w: %w", err, cave)
	}
	return nil
}

func (r *Region) mapArena(need *needArena) error {
	used, limits, err := r.mapper.Mappings()
	if err != nil {
		return err
	}
	e, err := r.place(need, used, limits)
	if err != nil {
		return err
	}
	data, code, err := r.mapper.Map(e)
	overtaken := e.Offset != r.fileEnd // by an arena that came from inside Map
	switch {
	case err != nil && !overtaken:
		return err
	case err != nil: // perhaps because the other one lies there: place it anew
		return nil
	case overtaken:
		return r.mapper.Unmap(e)
	}
	if err := r.adopt(e, data, code); err != nil {
		return errors.Join(err, r.mapper.Unmap(e))
	}
	return nil
}

// addCave adds the padding behind the code at near.
func (r *Region) addCave(near arch.Range) error {
	end, text, err := r.mapper.Cave(near)
	if err != nil {
		return err
	}
	cave, err := findCave(end, r.arch.SlotSize())
	if err != nil {
		return err
	}
	return r.adoptCave(cave, Remote(text, cave))
}
