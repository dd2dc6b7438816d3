package trampoline

import (
	"errors"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// TestWhereAChangedJumpLeadsNothingElseIs: landings come and go at random places. Whatever bytes of a jump others change, it leads to a breakpoint that belongs to
// its landing, or to where no code is.
func TestWhereAChangedJumpLeadsNothingElseIs(t *testing.T) {
	rnd := rand.New(rand.NewSource(5))
	g, r := newRegion(t, jumps{fakeArch: fake})
	r.Avoid(func(at arch.Addr) arch.Addr {
		if text.Contains(at) {
			return text.End
		}
		return 0
	})
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

// TestAProgramHasAllItsLandingsWhereverItIsMapped: wherever the kernel maps a program, sites whose jumps have a breakpoint in the third byte of
// the displacement get a landing. It may be one of 64 KiB in 16 MiB, and a changed jump leads elsewhere in the same 16 MiB.
func TestAProgramHasAllItsLandingsWhereverItIsMapped(t *testing.T) {
	for base := range 32 {
		rnd := rand.New(rand.NewSource(int64(base)))
		program := stretch(0x5555_5500_0000+arch.Addr(base)*tileSize/8, 10<<20)
		g := newTarget(t)
		g.used = []Mapping{{Range: program}}
		r := New(jumps{fakeArch: fake}, owner, g)
		r.Avoid(func(at arch.Addr) arch.Addr {
			if program.Contains(at) {
				return program.End
			}
			return 0
		})
		const sites = 200
		for i := range sites {
			p := anyPattern(program.Start + arch.Addr(i)*(10<<20/sites) + 5)
			p.Byte[2] = arch.Bytes(0xcc)
			p.Others[2] = arch.Bytes(0xcc, byte(rnd.Intn(256)))
			if _, err := r.Land(program, []arch.Pattern{p}, 80); err != nil {
				t.Fatalf("program %s, site %d of %d: %v", program, i, sites, err)
			}
		}
		if n := len(g.mapped); n > 8 {
			t.Errorf("program %s: %d arenas", program, n)
		}
	}
}

// TestAStrayInLongCodeIsPassedOverAtOnce has a megabyte of detours in the way of strays, without a byte between them.
func TestAStrayInLongCodeIsPassedOverAtOnce(t *testing.T) {
	g, r := newRegion(t, optimized)
	from := text.Start + 5
	home := anyPattern(from)
	home.Byte[3] = arch.Bytes(0xcc)
	first := g.land(r, text, []arch.Pattern{home}, 1<<20)
	p := home
	third := byte((first.Detour - from) >> 16)
	p.Byte[2] = arch.Bytes(third+1, third+0x20) // next to the detour in the lower bytes, and behind it
	p.Byte[3] = arch.Bytes(0x06)
	p.Others[3] = arch.Bytes(0xcc)
	l := g.land(r, text, []arch.Pattern{p}, 80)
	for _, at := range p.Strays(l.Entry) {
		if stretch(first.Detour, 1<<20).Contains(at) {
			t.Errorf("%+v has a stray in %+v", l, first)
		}
	}
}

// TestSearchesForStraysEnd has code wherever changed jumps lead: there is no landing, and after some sites nothing is searched any more.
func TestSearchesForStraysEnd(t *testing.T) {
	g, r := newRegion(t, optimized)
	g.land(r, text, []arch.Pattern{anyPattern(text.Start + 5)}, 80)
	r.Avoid(func(arch.Addr) arch.Addr { return ^arch.Addr(0) })
	for i := range 2 * mostVain {
		p := anyPattern(text.Start + arch.Addr(16*i) + 5)
		p.Byte[3], p.Others[3] = arch.Bytes(0xcc), arch.Bytes(0x0f)
		_, err := r.Land(text, []arch.Pattern{p}, 80)
		if !errors.Is(err, ErrNoLanding) || !strings.Contains(err.Error(), "if somebody changed a byte") {
			t.Fatal(err)
		}
	}
	if r.vain != mostVain {
		t.Errorf("%d searches, want %d", r.vain, mostVain)
	}
}

// TestSlotsDoNotComeWhereAChangedJumpLeads has a jump with a stray just below the program, where the next slots would be.
func TestSlotsDoNotComeWhereAChangedJumpLeads(t *testing.T) {
	g, r := newRegion(t, optimized)
	stray := text.Start - 3*PageSize
	p := anyPattern(text.Start + 5)
	d := uint32(stray - p.From)
	for k := range 3 {
		p.Byte[k] = arch.Bytes(byte(d >> (8 * k)))
	}
	p.Byte[3], p.Others[3] = arch.Bytes(0xcc), arch.Bytes(byte(d>>24))
	l := g.land(r, text, []arch.Pattern{p}, 80)
	if strays := p.Strays(l.Entry); !slices.Equal(strays, []arch.Addr{stray}) {
		t.Fatalf("strays %v, this test wants %s", strays, stray)
	}
	if at := g.alloc(r, text); !inReach(stretch(at, 64), text, 64<<20) {
		t.Errorf("a slot at %s", at)
	}
	for _, a := range r.Arenas() {
		if a.Range().Contains(stray) {
			t.Errorf("the arena %s comes where a changed jump leads, %s", a.Range(), stray)
		}
	}
}
