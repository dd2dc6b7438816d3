package trampoline

import (
	"errors"
	"reflect"
	"testing"
)

func TestHeldMasksAreFoundAgain(t *testing.T) {
	g, r := newRegion(t, optimized)
	if r.NoteHeldMask(0, HeldMask{TID: 1}) == nil {
		t.Error("an empty region notes a mask")
	}
	g.alloc(r, text)
	guard := GuardState{Handler: 0x1000, Restorer: 0x2000, Installed: 1 << 5, Unmasked: [2]uint64{3, 4}}
	if err := r.NoteGuard(guard); err != nil {
		t.Fatal(err)
	}
	first, last := HeldMask{TID: 17, Own: 1, Instead: ^uint64(0)}, HeldMask{TID: 4_000_000, Own: 1 << 63, Instead: 7}
	for _, c := range []struct {
		n    int
		note HeldMask
		want []HeldMask
	}{
		{0, first, []HeldMask{first}},
		{MaxHeldMasks - 1, last, []HeldMask{first, last}},
		{0, HeldMask{}, []HeldMask{last}},
		{1, first, []HeldMask{first, last}},
	} {
		if err := r.NoteHeldMask(c.n, c.note); err != nil {
			t.Fatal(err)
		}
		h, err := Inspect(g, g.base(r))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := h.HeldMasks(g); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v, %v, want %+v", got, err, c.want)
		}
		if s, ok, err := h.Guard(g); s.Installed != guard.Installed || s.Unmasked != guard.Unmasked {
			t.Errorf("the guard is %+v, %t, %v", s, ok, err)
		}
	}
	for _, n := range []int{-1, MaxHeldMasks} {
		if err := r.NoteHeldMask(n, first); !errors.Is(err, ErrBounds) {
			t.Errorf("place %d: %v", n, err)
		}
	}
}

func TestSetsThatAreNotBlockedAreFoundAgain(t *testing.T) {
	g, r := newRegion(t, optimized)
	g.alloc(r, text)
	if err := r.NoteHeldMask(0, HeldMask{TID: 17, Own: 1, Instead: 2}); err != nil {
		t.Fatal(err)
	}
	for n, set := range map[int]uint64{0: 5, MaxUnblocked - 1: 7} {
		if err := r.NoteUnblocked(n, set); err != nil {
			t.Fatal(err)
		}
	}
	h, err := Inspect(g, g.base(r))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Unblocked(g); err != nil || !reflect.DeepEqual(got, []uint64{5, 7}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := h.HeldMasks(g); err != nil || len(got) != 1 {
		t.Errorf("held: %v, %v", got, err)
	}
	for _, n := range []int{-1, MaxUnblocked} {
		if err := r.NoteUnblocked(n, 1); !errors.Is(err, ErrBounds) {
			t.Errorf("place %d: %v", n, err)
		}
	}
}
