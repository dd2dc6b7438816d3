package trampoline

import (
	"bytes"
	"cmp"
	"errors"
	"math/rand"
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// anyPattern is a jump at from that may lead anywhere.
func anyPattern(from arch.Addr) arch.Pattern {
	return arch.Pattern{From: from, Byte: [4]arch.ByteSet{arch.AnyByte, arch.AnyByte, arch.AnyByte, arch.AnyByte}}
}

// patterns are what optimize asks for at a place with random instructions: each head
// inside of the jump traps, or the bytes from one on are kept.
func patterns(rnd *rand.Rand, from arch.Addr) (options []arch.Pattern) {
	code := make([]byte, 4)
	rnd.Read(code)
	heads := []int{}
	for at := 1 + rnd.Intn(5); at < 5; at += 1 + rnd.Intn(7) {
		heads = append(heads, at)
	}
	p := anyPattern(from)
	for _, h := range heads {
		p.Byte[h-1] = arch.Bytes(0xcc)
		if h == 4 {
			p.Byte[h-1] = trapBytes
		}
	}
	options = append(options, p)
	for i := len(heads) - 1; i >= 0; i-- {
		for k := heads[i] - 1; k < 4; k++ {
			p.Byte[k] = arch.Bytes(code[k])
		}
		options = append(options, p)
	}
	return options
}

// tryLand lands. ok is false if there is no place.
func (g *target) tryLand(r *Region, near arch.Range, options []arch.Pattern, size int, uses ...arch.Range) (Landing, bool) {
	g.t.Helper()
	l, err := r.Land(near, options, size, uses...)
	if err != nil && !errors.Is(err, ErrNoLanding) {
		g.t.Fatal(err)
	}
	return l, err == nil
}

func (g *target) land(r *Region, near arch.Range, options []arch.Pattern, size int) Landing {
	g.t.Helper()
	l, ok := g.tryLand(r, near, options, size)
	if !ok {
		g.t.Fatalf("no place for %+v", options)
	}
	return l
}

func (g *target) cells(r *Region, near arch.Addr, n int) (arch.Addr, []byte) {
	g.t.Helper()
	at, cell, err := r.Cells(near, n)
	if err != nil {
		g.t.Fatal(err)
	}
	return at, cell
}

var optimized = jumps{fakeArch: fake}

func TestAJumpLandsWhereItsPatternAllows(t *testing.T) {
	from := text.Start + 0x1239
	trap, kept := arch.Bytes(0xcc), arch.Bytes(0x48)
	free := arch.AnyByte
	for _, c := range []struct {
		name  string
		bytes [4]arch.ByteSet
		entry bool // a jump of its own leads to the detour
		none  bool
	}{
		{"anywhere", [4]arch.ByteSet{free, free, free, free}, false, false},
		{"the highest byte traps", [4]arch.ByteSet{free, free, free, trap}, false, false},
		{"or is no instruction", [4]arch.ByteSet{free, free, free, trapBytes}, false, false},
		{"one byte each", [4]arch.ByteSet{trap, trap, trap, trap}, false, false},
		{"the lowest traps", [4]arch.ByteSet{trap, free, free, free}, false, false},
		{"kept from the last byte on, above", [4]arch.ByteSet{free, free, free, kept}, false, false},
		{"all kept, just below", [4]arch.ByteSet{arch.Bytes(0x11), arch.Bytes(0x22), arch.Bytes(0x33), arch.Bytes(0xff)}, false, false},
		{"all kept, out of the detour's reach", [4]arch.ByteSet{arch.Bytes(0x40), arch.Bytes(0x00), arch.Bytes(0x01), arch.Bytes(0x80)}, true, false},
		{"in the module itself", [4]arch.ByteSet{kept, arch.Bytes(0), arch.Bytes(0), arch.Bytes(0)}, false, true},
		{"nothing", [4]arch.ByteSet{free, free, {}, free}, false, true},
	} {
		g, r := newRegion(t, optimized)
		p := arch.Pattern{From: from, Byte: c.bytes}
		l, ok := g.tryLand(r, text, []arch.Pattern{p}, 100)
		if ok == c.none {
			t.Errorf("%s: %+v, %v", c.name, l, ok)
		}
		if !ok {
			continue
		}
		if !p.Allows(l.Entry) || (l.Entry != l.Detour) != c.entry || l.Size != 100 || l.Option != 0 {
			t.Errorf("%s: %+v from %s, allowed %v", c.name, l, from, p.Allows(l.Entry))
		}
		if !inReach(stretch(l.Detour, 100), text, fake.Reach()) {
			t.Errorf("%s: %+v does not reach the code", c.name, l)
		}
	}
}

// chunksOf is what l occupies.
func chunksOf(l Landing) []arch.Range {
	d := stretch(l.Detour, uint64(l.Size))
	if l.Entry == l.Detour {
		return []arch.Range{d}
	}
	return []arch.Range{stretch(l.Entry, 5), d}
}

// TestAnySequenceOfLandingsKeepsThemApart compares the region with a plain list of what is in use.
func TestAnySequenceOfLandingsKeepsThemApart(t *testing.T) {
	for seed := range int64(10) {
		rnd := rand.New(rand.NewSource(seed))
		g, r := newRegion(t, optimized)
		var live, retired []Landing
		occupied := map[arch.Range]bool{}
		for range 1500 {
			switch k := rnd.Intn(10); {
			case k == 0 && len(live) > 0:
				i := rnd.Intn(len(live))
				if err := errors.Join(r.RetireLanding(live[i]), r.RetireLanding(live[i])); err != nil {
					t.Fatal(err)
				}
				retired = append(retired, live[i])
				live = slices.Delete(live, i, i+1)
			case k == 1 && len(live) > 0:
				i := rnd.Intn(len(live))
				if err := r.FreeLanding(live[i]); err != nil {
					t.Fatal(err)
				}
				forget(occupied, live[i])
				if err := r.FreeLanding(live[i]); !errors.Is(err, ErrNotAllocated) {
					t.Fatalf("freed twice: %v", err)
				}
				live = slices.Delete(live, i, i+1)
			case k == 2 && rnd.Intn(8) == 0:
				retired = collect(t, rnd, r, retired, occupied)
			default:
				from := text.Start + arch.Addr(rnd.Intn(int(text.Len())))
				options := patterns(rnd, from)
				size := 30 + rnd.Intn(100)
				l, ok := g.tryLand(r, text, options, size)
				if !ok {
					continue
				}
				if !options[l.Option].Allows(l.Entry) || l.Size != size || !inReach(stretch(l.Detour, uint64(size)), text, fake.Reach()) {
					t.Fatalf("%+v for %+v", l, options)
				}
				if d := int64(l.Detour - l.Entry - 5); d != int64(int32(d)) {
					t.Fatalf("no jump from %s to %s", l.Entry, l.Detour)
				}
				fill(t, g, r, l)
				for _, c := range chunksOf(l) {
					occupied[c] = true
				}
				live = append(live, l)
			}
		}
		if r.Detours() != len(live)+len(retired) {
			t.Errorf("%d landings, want %d", r.Detours(), len(live)+len(retired))
		}
		checkChunks(t, rnd, g, r, occupied)
	}
}

func forget(occupied map[arch.Range]bool, l Landing) {
	for _, c := range chunksOf(l) {
		delete(occupied, c)
	}
}

// collect lets threads be in a third of the retired landings.
func collect(t *testing.T, rnd *rand.Rand, r *Region, retired []Landing, occupied map[arch.Range]bool) (left []Landing) {
	t.Helper()
	threads := map[arch.Addr]bool{}
	for _, l := range retired {
		switch rnd.Intn(6) {
		case 0:
			threads[l.Entry] = true
		case 1:
			threads[l.Detour+arch.Addr(l.Size-1)] = true
		default:
			forget(occupied, l)
			continue
		}
		left = append(left, l)
	}
	n, err := r.CollectDetours(func(c arch.Range) bool {
		for at := range threads {
			if c.Contains(at) {
				return true
			}
		}
		return false
	})
	if err != nil || n != len(left) {
		t.Fatalf("%d left, want %d: %v", n, len(left), err)
	}
	return left
}

// fill finds breakpoints where l was placed and stores something else.
func fill(t *testing.T, g *target, r *Region, l Landing) {
	t.Helper()
	for _, c := range chunksOf(l) {
		b, err := g.bytes(c.Start, int(c.Len()))
		if err != nil || bytes.Count(b, []byte{0xcc}) != len(b) {
			t.Fatalf("new code at %s holds % x, %v", c, b, err)
		}
		if err := r.PutDetour(c.Start, bytes.Repeat([]byte{0x90}, len(b))); err != nil || bytes.Count(b, []byte{0x90}) != len(b) {
			t.Fatalf("%s holds % x, %v", c, b, err)
		}
	}
}

func checkChunks(t *testing.T, rnd *rand.Rand, g *target, r *Region, occupied map[arch.Range]bool) {
	t.Helper()
	var all []arch.Range
	for c := range occupied {
		all = append(all, c)
		for _, ip := range []arch.Addr{c.Start, c.Start + arch.Addr(rnd.Intn(int(c.Len()))), c.End - 1} {
			if start, ok := r.ChunkOf(ip); !ok || start != c.Start {
				t.Fatalf("the chunk of %s is %s, %v; want %s", ip, start, ok, c)
			}
		}
		if b, _ := g.bytes(c.Start, int(c.Len())); bytes.Count(b, []byte{0x90}) != len(b) {
			t.Fatalf("%s was changed: % x", c, b)
		}
	}
	slices.SortFunc(all, func(a, b arch.Range) int { return cmp.Compare(a.Start, b.Start) })
	for i := 1; i < len(all); i++ {
		if all[i-1].Overlaps(all[i]) {
			t.Fatalf("%s and %s overlap", all[i-1], all[i])
		}
		if gap := rng(all[i-1].End, all[i].Start); gap.Len() > 0 {
			for _, ip := range []arch.Addr{gap.Start, gap.End - 1} {
				if start, ok := r.ChunkOf(ip); ok {
					t.Fatalf("%s is in the chunk %s, though free", ip, start)
				}
			}
		}
	}
}

func TestMisuseOfLandingsIsRefused(t *testing.T) {
	g, r := newRegion(t, optimized)
	if _, err := r.Land(text, nil, 10); !errors.Is(err, ErrNoLanding) {
		t.Error(err)
	}
	l := g.land(r, text, []arch.Pattern{anyPattern(text.Start)}, 40)
	for at, n := range map[arch.Addr]int{l.Detour - 1: 1, l.Detour + 40: 1, text.Start: 1, 0: 1} {
		if err := r.PutDetour(at, make([]byte, n)); !errors.Is(err, ErrNotAllocated) {
			t.Errorf("%d bytes at %s: %v", n, at, err)
		}
	}
	if err := r.PutDetour(l.Detour+39, make([]byte, 2)); !errors.Is(err, ErrSlotSize) {
		t.Error(err)
	}
	none := Landing{Entry: 1, Detour: 1}
	if err := r.RetireLanding(none); !errors.Is(err, ErrNotAllocated) {
		t.Error(err)
	}
	g.private = true
	if err := r.grow(needCells(text, 1, fake.Reach())); !errors.Is(err, ErrNotShared) || len(g.taken) != 1 {
		t.Error(err, g.taken)
	}
}

func TestADetourReachesWhatItUses(t *testing.T) {
	g, r := newRegion(t, optimized)
	at, _ := g.cells(r, text.Start, 64)
	if at >= text.Start {
		t.Fatalf("cells at %s: this test wants them below", at)
	}
	p := anyPattern(text.Start + 5)
	p.Byte[3] = arch.Bytes(0x70)
	use := stretch(at, 64)
	l, ok := g.tryLand(r, text, []arch.Pattern{p}, 50, use)
	if !ok || l.Entry == l.Detour || !p.Allows(l.Entry) {
		t.Fatalf("%+v, %v", l, ok)
	}
	if !inReach(stretch(l.Detour, 50), hull(text, use), fake.Reach()) {
		t.Errorf("%+v does not reach %s", l, use)
	}
}
