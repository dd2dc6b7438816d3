package trampoline

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

func (g *target) setResume(r *Region, at, to arch.Addr) {
	g.t.Helper()
	if err := r.SetResume(at, to); err != nil {
		g.t.Fatal(err)
	}
}

// guard looks up as the guard's machine code does, from the pointer on.
func (g *target) guard(r *Region, at arch.Addr) arch.Addr {
	g.t.Helper()
	word := func(a arch.Addr) uint64 {
		b, err := g.bytes(a, 8)
		if err != nil {
			g.t.Fatal(err)
		}
		return le.Uint64(b)
	}
	pointer, ok := r.ResumePointer()
	if !ok {
		g.t.Fatal("no resume table")
	}
	table := arch.Addr(word(pointer))
	shift, mask := word(table), word(table+8)
	for i := uint64(at) * 0x9e3779b97f4a7c15 >> shift; ; i = (i + 1) & mask {
		switch arch.Addr(word(table + 64 + arch.Addr(16*i))) {
		case 0:
			return 0
		case at:
			return arch.Addr(word(table + 64 + arch.Addr(16*i) + 8))
		}
	}
}

// TestTheGuardFindsWhereToGoOn compares the table with a map.
func TestTheGuardFindsWhereToGoOn(t *testing.T) {
	g, r := newRegion(t, optimized)
	g.alloc(r, text)
	rnd := rand.New(rand.NewSource(1))
	want := map[arch.Addr]arch.Addr{}
	first, _ := r.ResumePointer()
	for i := range 20_000 {
		at := text.Start + arch.Addr(rnd.Intn(30_000))
		if i > 10_000 && rnd.Intn(3) > 0 {
			at += arch.Addr(i) << 16
		}
		if rnd.Intn(3) == 0 {
			if err := r.ClearResume(at); err != nil {
				t.Fatal(err)
			}
			delete(want, at)
		} else {
			want[at] = arch.Addr(rnd.Uint64() | 1)
			g.setResume(r, at, want[at])
		}
		if got := g.guard(r, at); got != want[at] {
			t.Fatalf("after %d changes: %s resumes at %s, want %s", i, at, got, want[at])
		}
	}
	h, err := Inspect(g, g.base(r))
	if err != nil {
		t.Fatal(err)
	}
	for at, to := range want {
		got, ok, err := h.ResumeAt(g, at)
		if got != to || !ok || err != nil || g.guard(r, at) != to {
			t.Fatalf("%s resumes at %s, %v, %v; want %s", at, got, ok, err, to)
		}
	}
	for range 1000 {
		at := arch.Addr(rnd.Uint64())
		if got, ok, err := h.ResumeAt(g, at); ok || err != nil {
			t.Fatalf("%s, which was never set, resumes at %s, %v", at, got, err)
		}
	}
	if now, _ := r.ResumePointer(); now != first {
		t.Errorf("the pointer moved from %s to %s", first, now)
	}
}

func TestTogglingASiteTakesNoMemory(t *testing.T) {
	g, r := newRegion(t, optimized)
	g.alloc(r, text)
	for range 20_000 {
		if err := errors.Join(r.SetResume(text.Start, 1), r.ClearResume(text.Start), r.ClearResume(text.Start)); err != nil {
			t.Fatal(err)
		}
	}
	if r.resume.used != 1 || len(r.resume.keys) != firstEntries {
		t.Errorf("%d of %d entries", r.resume.used, len(r.resume.keys))
	}
}

// TestAReaderNeverSeesHalfAnEntry looks up between all the stores of a change.
func TestAReaderNeverSeesHalfAnEntry(t *testing.T) {
	f := newFixture(t)
	h, err := Inspect(f, f.base(f.r))
	if err != nil {
		t.Fatal(err)
	}
	const at = 0x1234_5678_9abc
	for _, c := range []struct {
		name   string
		do     func() error
		before arch.Addr
		after  arch.Addr
	}{
		{"new", func() error { return f.r.SetResume(at, 0x1111) }, 0, 0x1111},
		{"changed", func() error { return f.r.SetResume(at, 0x2222) }, 0x1111, 0x2222},
		{"cleared", func() error { return f.r.ClearResume(at) }, 0x2222, 0},
		{"new again", func() error { return f.r.SetResume(at, 0x3333) }, 0, 0x3333},
	} {
		s := &watchedStore{Store: f.log, check: func() {
			got, _, err := h.ResumeAt(f, at)
			if err != nil || got != c.before && got != c.after {
				t.Errorf("%s: a reader sees %s, %v; want %s or %s", c.name, got, err, c.before, c.after)
			}
		}}
		f.r.resume.store = s
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := h.ResumeAt(f, at); got != c.after || s.n == 0 {
			t.Errorf("%s: %s after %d stores", c.name, got, s.n)
		}
	}
}

// watchedStore calls check after each write, all of which are single stores of a word.
type watchedStore struct {
	Store
	check func()
	n     int
}

func (s *watchedStore) Write(off uint64, p []byte) error {
	if len(p) != 8 || off%8 != 0 {
		return fmt.Errorf("%d bytes at %#x are not one store", len(p), off)
	}
	err := s.Store.Write(off, p)
	s.n++
	s.check()
	return err
}

func TestMisuseOfTheResumeTable(t *testing.T) {
	g, r := newRegion(t, optimized)
	if _, ok := r.ResumePointer(); ok {
		t.Error("an empty region has a resume table")
	}
	if err := r.ClearResume(1); err != nil {
		t.Error(err)
	}
	g.setResume(r, 1, 2)
	for _, bad := range [][2]arch.Addr{{0, 1}, {1, 0}} {
		if err := r.SetResume(bad[0], bad[1]); !errors.Is(err, ErrNotAllocated) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if got := g.guard(r, 1); got != 2 {
		t.Errorf("1 resumes at %s", got)
	}
}

func TestAHostileResumeTableIsRefused(t *testing.T) {
	g, r := newRegion(t, optimized)
	g.setResume(r, 1, 2)
	h, err := Inspect(g, g.base(r))
	if err != nil {
		t.Fatal(err)
	}
	table, _ := g.bytes(h.Resume, offEntries)
	good := bytes.Clone(table)
	for off, v := range map[int]uint64{offShift: 0, offMask: 5} {
		copy(table, good)
		le.PutUint64(table[off:], v)
		if _, _, err := h.ResumeAt(g, 1); !errors.Is(err, ErrHeader) {
			t.Errorf("%d at %d: %v", v, off, err)
		}
	}
	le.PutUint64(table[offShift:], 70)
	if _, _, err := h.ResumeAt(g, 1); !errors.Is(err, ErrHeader) {
		t.Error(err)
	}
	h.Resume = 0x10
	if _, _, err := h.ResumeAt(g, 1); err == nil {
		t.Error("unmapped memory is a resume table")
	}
}

func TestTheGuardsDataIsFoundAgain(t *testing.T) {
	g, r := newRegion(t, optimized)
	if _, ok := r.GuardData(); ok || r.PutGuardData(0, []byte{1}) == nil {
		t.Error("an empty region has data")
	}
	g.alloc(r, text)
	want := bytes.Repeat([]byte{7}, GuardLen)
	if err := r.PutGuardData(0, want); err != nil {
		t.Fatal(err)
	}
	at, ok := r.GuardData()
	got, err := g.bytes(at.Start, int(at.Len()))
	if !ok || err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v, %v", ok, err)
	}
	h, err := Inspect(g, g.base(r))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := h.GuardData(g); err != nil || !bytes.Equal(b, want) {
		t.Errorf("% x, %v", b, err)
	}
	for _, c := range [][2]int{{-1, 1}, {GuardLen, 1}, {1, GuardLen}, {GuardLen + 1, 0}} {
		if err := r.PutGuardData(c[0], make([]byte, c[1])); !errors.Is(err, ErrBounds) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// TestReservedEntriesTakeNoNewTable: who has asked for room beforehand sets entries in the table that is there then; what it had before is kept.
func TestReservedEntriesTakeNoNewTable(t *testing.T) {
	g, r := newRegion(t, optimized)
	g.alloc(r, text)
	const before, more = firstEntries / 4, 3 * firstEntries
	for i := range arch.Addr(before) {
		g.setResume(r, text.Start+i, 0x1000+i)
	}
	for i := range arch.Addr(before / 2) { // these are not taken along
		if err := r.ClearResume(text.Start + 2*i); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.ReserveResume(text.Start, more); err != nil {
		t.Fatal(err)
	}
	n := len(r.resume.keys)
	if n < 2*(before/2+more) || r.resume.used != before/2 {
		t.Errorf("%d entries, %d of them used", n, r.resume.used)
	}
	for i := range arch.Addr(more) {
		g.setResume(r, text.Start+before+i, 0x2000+i)
	}
	if len(r.resume.keys) != n {
		t.Errorf("the table has grown from %d entries to %d", n, len(r.resume.keys))
	}
	h, err := Inspect(g, g.base(r))
	if err != nil {
		t.Fatal(err)
	}
	for i := range arch.Addr(before + more) {
		want := 0x1000 + i
		switch {
		case i >= before:
			want = 0x2000 + i - before
		case i%2 == 0:
			want = 0
		}
		got, _, err := h.ResumeAt(g, text.Start+i)
		if err != nil || got != want || g.guard(r, text.Start+i) != want {
			t.Fatalf("%s resumes at %s, %v; want %s", text.Start+i, got, err, want)
		}
	}
}

// TestATableOfManyLiesAmongSlotsWhereNoMemoryIsShared: a target that can't have a memfd is guarded at all sites, not at the first thousand. The slots beside
// the table stay as they are.
func TestATableOfManyLiesAmongSlotsWhereNoMemoryIsShared(t *testing.T) {
	for _, late := range []bool{false, true} { // it may have had a memfd at first
		g, r := newRegion(t, optimized)
		g.private = !late
		slot := g.alloc(r, text)
		g.private = true
		before, err := g.bytes(slot, int(r.slotSize()))
		if err != nil {
			t.Fatal(err)
		}
		before = bytes.Clone(before)
		if err := r.ReserveResume(text.Start, 700); err != nil {
			t.Fatal(err)
		}
		for i := range arch.Addr(20_000) {
			g.setResume(r, text.Start+i, slot+i)
			if i%97 == 0 {
				if at := g.alloc(r, text); g.guard(r, at) != 0 {
					t.Fatalf("a slot at %s is in the table", at)
				}
			}
		}
		if after, err := g.bytes(slot, len(before)); err != nil || !bytes.Equal(after, before) {
			t.Errorf("the slot at %s has changed: %x, %v; want %x", slot, after, err, before)
		}
		h, err := Inspect(g, g.base(r))
		if err != nil {
			t.Fatal(err)
		}
		for i := range arch.Addr(20_000) {
			if to, ok, err := h.ResumeAt(g, text.Start+i); to != slot+i || !ok || err != nil || g.guard(r, text.Start+i) != to {
				t.Fatalf("%s resumes at %s, %v, %v; want %s", text.Start+i, to, ok, err, slot+i)
			}
		}
	}
}
