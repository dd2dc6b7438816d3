package trampoline

import (
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// HeldMask is a thread's own mask of signals, while its tracer has it block others.
type HeldMask struct {
	TID     int    // as the tracer sees it; 0: of no thread
	Own     uint64 // bit n-1: signal n
	Instead uint64
}

// Where these are noted, offsets in bytes in the guard's data. Each held mask is written TID last, and taken back by that.
const (
	offUnblocked = offGuardState + 64 // [MaxUnblocked]uint64, bit n-1: signal n; 0: none
	offHeldMasks = offUnblocked + 8*MaxUnblocked
	heldMaskLen  = 24 // TID, Own, Instead; uint64

	// MaxHeldMasks is how many can be noted.
	MaxHeldMasks = (GuardLen - offHeldMasks) / heldMaskLen
	// MaxUnblocked is how many sets can be noted that threads do not block all of.
	MaxUnblocked = 32
)

// NoteUnblocked notes in place n, for a later recovery, a signal mask whose threads do
// not really block SIGTRAP and SIGILL. set is the mask as the target believes it to be.
func (r *Region) NoteUnblocked(n int, set uint64) error {
	if n < 0 || n >= MaxUnblocked {
		return fmt.Errorf("set of signals %d: %w", n, ErrBounds)
	}
	return r.PutGuardData(offUnblocked+8*n, le.AppendUint64(nil, set))
}

// Unblocked are the sets that are noted.
func (h *Header) Unblocked(mem arch.Memory) (sets []uint64, err error) {
	b, err := h.GuardData(mem)
	if err != nil {
		return nil, err
	}
	for b = b[offUnblocked:offHeldMasks]; len(b) > 0; b = b[8:] {
		if set := le.Uint64(b); set != 0 {
			sets = append(sets, set)
		}
	}
	return sets, nil
}

// NoteHeldMask notes m in place n, for a later recovery. A TID of 0 clears the place.
func (r *Region) NoteHeldMask(n int, m HeldMask) error {
	if n < 0 || n >= MaxHeldMasks {
		return fmt.Errorf("held mask %d: %w", n, ErrBounds)
	}
	at := offHeldMasks + n*heldMaskLen
	if m.TID != 0 {
		masks := le.AppendUint64(le.AppendUint64(nil, m.Own), m.Instead)
		if err := r.PutGuardData(at+8, masks); err != nil {
			return err
		}
	}
	return r.PutGuardData(at, le.AppendUint64(nil, uint64(m.TID)))
}

// HeldMasks returns the masks that are noted.
func (h *Header) HeldMasks(mem arch.Memory) (list []HeldMask, err error) {
	b, err := h.GuardData(mem)
	if err != nil {
		return nil, err
	}
	for b = b[offHeldMasks:]; len(b) >= heldMaskLen; b = b[heldMaskLen:] {
		m := HeldMask{TID: int(int32(le.Uint64(b))), Own: le.Uint64(b[8:]), Instead: le.Uint64(b[16:])}
		if m.TID > 0 {
			list = append(list, m)
		}
	}
	return list, nil
}
