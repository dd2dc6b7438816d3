package trampoline

import (
	"errors"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Why injected memory can't be had, used or understood.
var (
	// ErrNoGap: the address space has no room within reach. The error is a *NoGapError.
	ErrNoGap = errors.New("no free address range within reach")
	// ErrCantMap: no memory can be mapped in the target. A Mapper says so.
	ErrCantMap = errors.New("the process can't map memory")
	// ErrTooManyArenas: the header's table is full, or one allocation has mapped too many.
	ErrTooManyArenas = errors.New("the injected region has no room for another arena")
	// ErrNotAllocated: the address is not that of a slot in use.
	ErrNotAllocated = errors.New("not a slot in use")
	// ErrSlotSize: the code does not fit a slot.
	ErrSlotSize = errors.New("the code does not fit its slot")
	// ErrCaveUsed: the padding holds something else than zero bytes.
	ErrCaveUsed = errors.New("the padding is in use")
	// ErrCaveSize: the padding is smaller than one slot.
	ErrCaveSize = errors.New("the padding is too small for a slot")
	// ErrBounds: an access beyond the end of a store.
	ErrBounds = errors.New("access beyond the end of the mapping")
	// ErrHeader: the memory is not an injected region of this version.
	ErrHeader = errors.New("not an injected region")
	// ErrTooMuch: there is more than a tracer leaves, so the target has made it.
	ErrTooMuch = errors.New("that is more than a killed gokprobe leaves, so it is forged")
	// ErrNoLanding: there is no place for a detour that the site's jump may lead to.
	ErrNoLanding = errors.New("no place for the detour")
	// ErrNotShared: detours need memory that the tracer has mapped too.
	ErrNotShared = errors.New("the memory is not shared with the tracer")
	// ErrRecord: no such journal record, or one that can't be written.
	ErrRecord = errors.New("no such journal record")
)

// NoGapError says where findGap looked in vain. It matches ErrNoGap, and ErrNoLanding if
// it was for a detour.
type NoGapError struct {
	Near        arch.Range
	Size, Reach uint64 // bytes
	// Nearest is the nearest gap that is large enough but out of reach. It is
	// empty if there is none.
	Nearest arch.Range

	detours bool // no place for a detour
	crowded bool // since a jump there would lead into other code if somebody changed a byte of it
}

func (e *NoGapError) Error() string {
	switch {
	case e.crowded:
		return "wherever its jump may lead, it would lead into other code if somebody changed a byte of it"
	case e.detours:
		return "the addresses are taken where its jump may lead"
	}
	s := fmt.Sprintf("no free %d bytes within %#x of %s", e.Size, e.Reach, e.Near)
	if e.Nearest.Len() == 0 {
		return s + ", nor anywhere else"
	}
	return s + fmt.Sprintf(", the nearest large enough gap is %s", e.Nearest)
}

// Is reports whether target is ErrNoGap, or ErrNoLanding and e is about a detour.
func (e *NoGapError) Is(target error) bool {
	return target == ErrNoGap || e.detours && target == ErrNoLanding
}
