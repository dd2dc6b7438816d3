package trampoline

import (
	"math/rand"
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// TestWhereAChangedJumpLeadsNothingElseIs: landings come and go at random places. Whatever bytes of a jump others change, it leads to a breakpoint that belongs to
// its landing, or to where no code is.
func TestWhereAChangedJumpLeadsNothingElseIs(t *testing.T) {
	rnd := rand.New(rand.NewSource(5))
	g, r := newRegion(t, jumps{fakeArch: fake})
	r.Avoid(text.Contains)
	type landed struct {
		Landing
		pattern arch.Pattern
	}
	var all []landed
	const rounds = 400
	for i := range rounds {
		if n := len(all); n > 0 && rnd.Intn(4) == 0 {
			k := rnd.Intn(n)
			if err := r.FreeLanding(all[k].Landing); err != nil {
				t.Fatal(err)
			}
			all = slices.Delete(all, k, k+1)
		}
		options := patterns(rnd, text.Start+arch.Addr(16*i+5))
		for k := range options {
			options[k].Others = others(rnd, options[0])
		}
		if l, ok := g.tryLand(r, text, options, 60); ok {
			all = append(all, landed{l, options[l.Option]})
		}
	}
	if len(all) < rounds/4 {
		t.Fatalf("only %d landings", len(all))
	}
	seen := map[arch.Addr]bool{}
	for _, l := range all {
		for _, at := range l.pattern.Strays(l.Entry) {
			if seen[at] || text.Contains(at) {
				t.Fatalf("%s is where several jumps may lead, or the program's", at)
			}
			seen[at] = true
			b, err := g.bytes(at, 1)
			if _, code := r.arena(at); err == nil && code && b[0] != 0xcc {
				t.Errorf("at %s stands %#x", at, b[0])
			}
			for _, o := range all {
				if stretch(o.Detour, uint64(o.Size)).Contains(at) || stretch(o.Entry, 5).Contains(at) {
					t.Errorf("a changed jump leads into the landing of another at %s", at)
				}
			}
		}
	}
}

// others is what may be put at places that trap: a breakpoint, or any byte that stood there.
func others(rnd *rand.Rand, p arch.Pattern) (all [4]arch.ByteSet) {
	for k, set := range p.Byte {
		if set != arch.AnyByte {
			all[k] = arch.Bytes(0xcc, byte(rnd.Intn(256)))
		}
	}
	return all
}
