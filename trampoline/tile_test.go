package trampoline

import (
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

func TestAnArenaWithoutOptionsIsNearItsCode(t *testing.T) {
	pages := rng(text.Start&^0xfff, roundUp(text.End))
	for _, c := range []struct {
		name  string
		taken arch.Range
	}{
		{"below", rng(text.End, text.End+2<<30)},
		{"above", rng(text.Start-2<<30, text.Start)},
	} {
		r := New(optimized, owner, nil)
		need := &needArena{near: text, reach: fake.Reach(), kind: Detours, size: 100, reached: text}
		e, err := r.place(need, []Mapping{{Range: text}, {Range: c.taken}}, limits)
		if err != nil || e.Kind != Detours || e.Range().Overlaps(pages) || !inReach(e.Range(), text, 32<<20) {
			t.Errorf("%s: %+v, %v", c.name, e, err)
		}
	}
}

// TestAPlaceThatATileEndsInIsPassedOver allows two addresses, of which the first is so near
// to the end of its tile that nothing fits.
func TestAPlaceThatATileEndsInIsPassedOver(t *testing.T) {
	end := tileOf(text.Start - 100<<20).End
	first, second := end-10, end-10+1<<20
	p := arch.Pattern{From: end + 0x2f0_0000} // displacements 0xfd0ffff6 and 0xfd1ffff6
	p.Byte = [4]arch.ByteSet{arch.Bytes(0xf6), arch.Bytes(0xff), arch.Bytes(0x0f, 0x1f), arch.Bytes(0xfd)}
	if !p.Allows(first) || !p.Allows(second) {
		t.Fatal("this test wants other displacements")
	}
	r := New(optimized, owner, nil)
	need := &needArena{near: text, reach: fake.Reach(), kind: Detours, options: []arch.Pattern{p}, size: 100, reached: text}
	e, err := r.place(need, []Mapping{{Range: text}}, limits)
	if err != nil || !e.Code.Contains(second) || !e.Code.Contains(second+99) {
		t.Errorf("%+v, %v; want a place for %s", e, err, second)
	}
}

func TestCellsOutOfReachAreNotPlaced(t *testing.T) {
	r := New(optimized, owner, nil)
	used := []Mapping{{Range: rng(text.Start-3<<30, text.End+3<<30)}}
	for _, n := range []int{64, 16 << 20} {
		_, err := r.place(needCells(text, n, fake.Reach()), used, limits)
		if !errors.Is(err, ErrNoGap) || !errors.Is(err, ErrNoLanding) {
			t.Errorf("%d bytes: %v", n, err)
		}
		e, err := r.place(needCells(text, n, anywhere), used, limits)
		if err != nil || e.Data.Len() < uint64(n) {
			t.Errorf("%d bytes anywhere: %+v, %v", n, e, err)
		}
	}
}

// TestABlocksHomeIsLedToByATrap checks that for all of a block the highest byte traps.
func TestABlocksHomeIsLedToByATrap(t *testing.T) {
	for _, at := range []arch.Addr{0x40_0000, text.Start, 0x7f12_3456_7000} {
		b := blockOf(at)
		for v := range 256 {
			home, ok := b.home(byte(v))
			if !ok {
				continue
			}
			for _, from := range []arch.Addr{arch.Addr(b), at, arch.Addr(b) + tileSize - 1} {
				for _, to := range []arch.Addr{home.Start, home.End - 1} {
					if d := int64(to - from); d != int64(int32(d)) || byte(d>>24) != byte(v) {
						t.Fatalf("from %s to %s: %#x, want the highest byte %#x", from, to, d, v)
					}
				}
			}
		}
	}
}
