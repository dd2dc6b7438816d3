package trampoline

import (
	"bytes"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// TestADetourBehindAnEntryOfItsOwn has its jump lead to the far end of what it reaches, where
// the detour can't be.
func TestADetourBehindAnEntryOfItsOwn(t *testing.T) {
	g, r := newRegion(t, optimized)
	far := anyPattern(text.Start + 5)
	far.Byte[3], far.Byte[2], far.Byte[1] = arch.Bytes(0x80), arch.Bytes(0), arch.Bytes(0xff)
	l := g.land(r, text, []arch.Pattern{far}, 64)
	if l.Entry == l.Detour || !far.Allows(l.Entry) {
		t.Fatalf("%+v", l)
	}
	if !inReach(hull(stretch(l.Entry, 5), stretch(l.Detour, 64)), stretch(l.Entry, 5), fake.Reach()) {
		t.Errorf("%+v: the entry does not reach the detour", l)
	}
	fill(t, g, r, l)
	if err := r.RetireLanding(l); err != nil {
		t.Fatal(err)
	}
	for _, thread := range []arch.Addr{l.Entry, l.Entry + 4, l.Detour, l.Detour + 63} {
		left, err := r.CollectDetours(func(c arch.Range) bool { return c.Contains(thread) })
		if _, ok := r.ChunkOf(thread); !ok || left != 1 || err != nil {
			t.Errorf("a thread at %s of %+v: %d left, %v", thread, l, left, err)
		}
	}
	if left, err := r.CollectDetours(func(arch.Range) bool { return false }); left != 0 || err != nil || r.Detours() != 0 {
		t.Error(left, err)
	}
	for _, at := range chunksOf(l) {
		if b, _ := g.bytes(at.Start, int(at.Len())); bytes.Count(b, []byte{0xcc}) != len(b) {
			t.Errorf("%s holds % x", at, b)
		}
	}
}

// TestAnEntryIsNotFarFromItsDetour has room for the detour only where the entry does not reach.
func TestAnEntryIsNotFarFromItsDetour(t *testing.T) {
	g, r := newRegion(t, optimized)
	above := anyPattern(text.Start + 5)
	above.Byte[3] = arch.Bytes(0x7e)
	g.land(r, text, []arch.Pattern{above}, 64)
	below := anyPattern(text.Start + 5)
	below.Byte[3], below.Byte[2], below.Byte[1] = arch.Bytes(0x80), arch.Bytes(0), arch.Bytes(0xff)
	if err := r.FreeLanding(g.land(r, text, []arch.Pattern{below}, 64)); err != nil {
		t.Fatal(err)
	}
	entries := stretch(below.From.Add(-1<<31+0xff00), 256)
	for _, a := range r.Arenas() {
		if a.code.Start < text.Start {
			occupy(t, a, entries)
		}
	}
	l := g.land(r, text, []arch.Pattern{below}, 64)
	if d := int64(l.Detour - l.Entry - 5); d != int64(int32(d)) || l.Entry == l.Detour {
		t.Errorf("%+v: no jump leads there", l)
	}
}

// occupy leaves free only what a has of hole.
func occupy(t *testing.T, a *Arena, hole arch.Range) {
	t.Helper()
	hole.Start = min(max(hole.Start, a.code.Start), a.code.End)
	hole.End = max(min(hole.End, a.code.End), hole.Start)
	for _, rest := range []arch.Range{rng(a.code.Start, hole.Start), rng(hole.End, a.code.End)} {
		if rest.Len() == 0 {
			continue
		}
		if err := a.take(rest, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestARecordMayLieAnywhere fills all address space in reach with other arenas.
func TestARecordMayLieAnywhere(t *testing.T) {
	g, r := newRegion(t, optimized)
	options := []arch.Pattern{anyPattern(text.Start + 5)}
	g.land(r, text, options, 64)
	g.used = append(g.used, Mapping{Range: rng(text.Start-3<<30, text.Start)}, Mapping{Range: rng(text.End, text.End+3<<30)})
	records := &r.Arenas()[0].ground.records
	records.n = records.used
	l := g.land(r, text, options, 64)
	if id := r.landings[l.Entry].record; inReach(id.arena.span, text, fake.Reach()) {
		t.Errorf("the record lies at %s", id.arena.span)
	}
	for id := range 1000 {
		if err := r.SetResume(arch.Addr(id+1), 1); err != nil {
			t.Fatal(err)
		}
	}
}
