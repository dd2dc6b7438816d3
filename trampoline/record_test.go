package trampoline

import (
	"errors"
	"fmt"
	"math/rand"
	"reflect"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// detourAt is a detour at l for a site with n instructions of three bytes.
func detourAt(l Landing, site arch.Addr, n int) *arch.Detour {
	d := &arch.Detour{Addr: l.Detour, Code: make([]byte, l.Size), Switch: l.Detour + 1, On: 5, Off: 0}
	for i := range n {
		d.Pieces = append(d.Pieces, arch.Piece{
			Insn: arch.Insn{Addr: site + arch.Addr(3*i), Bytes: make([]byte, 3)},
			At:   l.Detour + 20 + arch.Addr(4*i), Len: 4,
		})
	}
	d.Back = l.Detour + 20 + arch.Addr(4*n)
	d.End = site + arch.Addr(3*n)
	return d
}

func (g *target) detours(r *Region) []DetourRecord {
	g.t.Helper()
	h, err := Inspect(g, g.base(r))
	if err != nil {
		g.t.Fatal(err)
	}
	x, err := h.Detours(g, NewAllowance(mostRecords))
	if err != nil {
		g.t.Fatal(err)
	}
	return all(g.t, g, x)
}

// all is what an index leads to.
func all(t *testing.T, mem arch.Memory, x *DetourIndex) (found []DetourRecord) {
	t.Helper()
	for _, p := range x.places {
		for _, ip := range []arch.Addr{p.code.Start, p.code.End - 1} {
			r, ok, err := x.Find(mem, ip)
			if !ok || err != nil || r.Detour.Range() != p.code {
				t.Fatalf("the detour at %s: %+v, %v, %v", ip, r, ok, err)
			}
			if ip == p.code.Start {
				found = append(found, r)
			}
		}
		if r, ok, err := x.Find(mem, p.code.End); ok && r.Detour.Addr != p.code.End || err != nil {
			t.Fatalf("the detour at %s: %+v, %v", p.code.End, r, err)
		}
	}
	return found
}

func TestAFinderLearnsOfAllDetours(t *testing.T) {
	g, r := newRegion(t, optimized)
	rnd := rand.New(rand.NewSource(1))
	want := map[arch.Addr]DetourRecord{} // by site
	landings := map[arch.Addr]Landing{}
	for i := range 6000 {
		site := text.Start + arch.Addr(rnd.Intn(int(text.Len())))
		l, ok := g.tryLand(r, text, patterns(rnd, site+5), 64)
		if !ok {
			continue
		}
		d := detourAt(l, site, 1+rnd.Intn(5))
		if _, twice := want[site]; twice || i%7 == 0 {
			continue // landed, never described
		}
		if err := r.Describe(l, d); err != nil {
			t.Fatal(err)
		}
		l.Option = 0
		d.Code = noCode[:l.Size]
		want[site], landings[site] = DetourRecord{arch.Range{Start: site, End: d.End}, l, *d}, l
		if i%5 == 0 {
			if err := r.FreeLanding(l); err != nil {
				t.Fatal(err)
			}
			delete(want, site)
		}
	}
	got := map[arch.Addr]DetourRecord{}
	for _, rec := range g.detours(r) {
		got[rec.Displaced.Start] = rec
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for site, rec := range got {
		if place, orig := rec.Detour.Locate(rec.Detour.Pieces[0].At + 1); place != arch.InCopy || orig != site {
			t.Fatalf("%+v: %v, %s", rec, place, orig)
		}
	}
}

// TestAReaderNeverSeesHalfADetour kills the tracer after every byte that it stores.
func TestAReaderNeverSeesHalfADetour(t *testing.T) {
	g, r := newRegion(t, optimized)
	var ls []Landing
	for i := range 3 {
		ls = append(ls, g.land(r, text, []arch.Pattern{anyPattern(text.Start + arch.Addr(16*i))}, 64))
	}
	a := r.landings[ls[0].Entry].record.arena
	log := &logStore{Store: a.data}
	a.ground.records.store = log
	data, _ := g.bytes(a.ext.Data.Start, int(a.ext.Data.Len()))
	steps := []func() error{
		func() error { return r.Describe(ls[0], detourAt(ls[0], text.Start, 3)) },
		func() error { return r.Describe(ls[1], detourAt(ls[1], text.Start+0x100, 2)) },
		func() error { return r.Describe(ls[0], detourAt(ls[0], text.Start, 5)) },
		func() error { return r.FreeLanding(ls[1]) },
		func() error {
			var err error
			ls[1], err = r.Land(text, []arch.Pattern{anyPattern(text.Start)}, 64)
			return err
		},
		func() error { return r.Describe(ls[1], detourAt(ls[1], text.Start+0x200, 1)) },
		func() error { return r.Describe(ls[2], detourAt(ls[2], text.Start+0x300, 4)) },
	}
	seen := func(b []byte) string {
		x := &DetourIndex{}
		if err := x.read(Bytes(b), a.ext, NewAllowance(mostRecords)); err != nil {
			t.Fatal(err)
		}
		var rs []DetourRecord
		for _, p := range x.places {
			r, _, _ := parseDetour(b[p.record-a.ext.Data.Start:][:detourRecordSize])
			rs = append(rs, r)
		}
		return fmt.Sprint(rs)
	}
	for i, step := range steps {
		b, before := append([]byte(nil), data[:a.ext.Records+a.ext.RecordsLen]...), seen(data)
		log.log = nil
		if err := step(); err != nil {
			t.Fatal(err)
		}
		after, between := seen(data), i == 2 // the record of ls[0] goes before it comes again
		for k, store := range log.log {
			store(b)
			if got := seen(b); got != before && got != after && !between {
				t.Fatalf("step %d, after %d stores: %s, want %s or %s", i, k, got, before, after)
			} else if between && len(got) > max(len(before), len(after)) {
				t.Fatalf("step %d, after %d stores: %s", i, k, got)
			}
		}
	}
}

func TestWhatCannotBeRecordedIsRefused(t *testing.T) {
	g, r := newRegion(t, optimized)
	l := g.land(r, text, []arch.Pattern{anyPattern(text.Start)}, 64)
	other := l
	other.Entry++
	long := detourAt(l, text.Start, 1)
	long.Code = make([]byte, maxDetour+1)
	for _, c := range []struct {
		l    Landing
		d    *arch.Detour
		want error
	}{
		{l, detourAt(l, text.Start, 0), ErrRecord},
		{l, detourAt(l, text.Start, maxPieces+1), ErrRecord},
		{l, long, ErrRecord},
		{other, detourAt(l, text.Start, 1), ErrNotAllocated},
		{l, detourAt(other, text.Start, 1), nil},
	} {
		if err := r.Describe(c.l, c.d); !errors.Is(err, c.want) {
			t.Errorf("%v, want %v", err, c.want)
		}
	}
	if err := r.Describe(l, detourAt(l, text.Start, maxPieces)); err != nil || len(g.detours(r)) != 1 {
		t.Error(err)
	}
}

func FuzzParseDetour(f *testing.F) {
	b, err := encodeDetour(Landing{Entry: 1}, detourAt(Landing{Detour: 0x1000, Size: 64}, 0x2000, 3))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		b = append(b, make([]byte, detourRecordSize)...)[:detourRecordSize]
		le.PutUint32(b, detourChecksum(b))
		r, ok, _ := parseDetour(b)
		if !ok {
			return
		}
		r.Detour.Code = make([]byte, r.Landing.Size)
		if place, _ := r.Detour.Locate(r.Detour.Back); place == arch.Outside || len(r.Detour.Pieces) == 0 {
			t.Fatalf("%+v", r)
		}
	})
}
