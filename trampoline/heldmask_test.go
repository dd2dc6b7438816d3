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
