package trampoline

import (
	"bytes"
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// guarded is a fakeArch that has a guard, of three slots.
type guarded struct {
	fakeArch
	arch.Guards
}

func (guarded) AssembleGuard(at arch.Addr, _ arch.GuardPlace) arch.Guard {
	return arch.Guard{Code: bytes.Repeat([]byte{0x90, byte(at >> 6)}, 80), Handler: at, Restorer: at + 150}
}

// TestAChildsRegionTakesItsParentsPlace: a forked child's region lies where its parent's does, with the guard at the same place and what is noted for a recovery, but
// without the parent's slots; and no slot is given out in the guard.
func TestAChildsRegionTakesItsParentsPlace(t *testing.T) {
	for _, before := range []int{0, 1, 300} {
		g, parent := newRegion(t, guarded{fakeArch: fake})
		for range max(before, 1) {
			g.alloc(parent, text)
		}
		state := must(parent.AddGuard())(t)
		for parent.listed < 3 {
			g.alloc(parent, text)
		}
		state.Installed, state.Unmasked = 1<<5, [2]uint64{6, 8}
		for _, err := range []error{parent.NoteGuard(state), parent.NoteUnblocked(2, 0xfe), parent.PutGuardData(8, []byte("saved")), parent.PutGuardData(offHeldMasks, []byte{9})} {
			if err != nil {
				t.Fatal(err)
			}
		}
		own := newTarget(t)
		child := New(guarded{fakeArch: fake}, owner, own)
		err := child.TakeOver(parent, state, func(e Extent) (data, code Store) {
			data, code, _ = own.Map(e)
			return data, code
		})
		if err != nil || !slices.Equal(child.Mapped(), parent.Mapped()) || child.Live() != 0 {
			t.Fatalf("taken over: %v, %d slots live, arenas %v of %v", err, child.Live(), child.Mapped(), parent.Mapped())
		}
		h := must(Inspect(own, own.base(child)))(t)
		state.Place.Trap = 0 // it is not noted: a recovery needs no thread
		if got, ok, err := h.Guard(own); !ok || err != nil || got != state {
			t.Errorf("the child's guard is %+v, %v, the parent's %+v", got, err, state)
		}
		if sets := must(h.Unblocked(own))(t); !slices.Equal(sets, []uint64{0xfe}) {
			t.Errorf("sets noted: %x", sets)
		}
		if held := must(h.HeldMasks(own))(t); len(held) > 0 {
			t.Errorf("the child has masks of its parent's threads: %v", held)
		}
		code, theirs := must(own.bytes(state.Code.Start, int(state.Code.Len())))(t), must(g.bytes(state.Code.Start, int(state.Code.Len())))(t)
		if saved := must(own.bytes(state.Place.Data+8, 5))(t); !bytes.Equal(code, theirs) || string(saved) != "saved" {
			t.Errorf("the guard is % x with %q, the parent's % x", code, saved, theirs)
		}
		seen := map[arch.Addr]bool{}
		for child.Room(text) > 0 {
			at := own.alloc(child, text)
			if slot := stretch(at, child.slotSize()); seen[at] || slot.Overlaps(state.Code) {
				t.Fatalf("slot %s is given out twice, or in the guard %s", slot, state.Code)
			}
			seen[at] = true
		}
		if code := must(own.bytes(state.Code.Start, int(state.Code.Len())))(t); !bytes.Equal(code, theirs) {
			t.Error("the guard has changed")
		}
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
