package trampoline

import (
	"bytes"
	"errors"
	"math/rand"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

func TestAnEmptyRegionMapsAnArenaWithinReach(t *testing.T) {
	g, r := newRegion(t, fake)
	if _, ok := r.Stub(); ok || r.Contains(text.Start) || r.Room(text) != 0 {
		t.Error("an empty region has a stub or contains something")
	}
	if at := g.alloc(r, text); len(g.mapped) != 1 || !g.mapped[0].Code.Contains(at) {
		t.Errorf("a slot at %s in %v", at, g.mapped)
	}
	if a := r.Arenas()[0].Range(); !inReach(a, text, fake.Reach()) {
		t.Errorf("arena %s does not reach %s", a, text)
	}
}

func TestTheStubIsASystemCallAndABreakpoint(t *testing.T) {
	for _, slot := range []int{2, 64, 8192} {
		g, r := newRegion(t, fakeArch{slot: slot, breakpoint: fake.breakpoint})
		at := g.alloc(r, text)
		stub, ok := r.Stub()
		b := make([]byte, 3)
		if err := g.ReadMemory(stub, b); err != nil || !ok || !bytes.Equal(b, []byte{0x0f, 0x05, 0xcc}) {
			t.Errorf("slots of %d: stub % x, %v", slot, b, err)
		}
		if at < stub+3 {
			t.Errorf("slots of %d: the slot at %s overlaps the stub at %s", slot, at, stub)
		}
		if _, ok := r.SlotOf(stub); ok {
			t.Errorf("slots of %d: the stub counts as a slot", slot)
		}
	}
}

func TestASlotHoldsBreakpointsUntilPutAndAfterFree(t *testing.T) {
	for _, bp := range [][]byte{{0xcc}, {0x00, 0x00, 0x20, 0xd4}} {
		f := fakeArch{slot: 64, breakpoint: bp}
		g, r := newRegion(t, f)
		empty := bytes.Repeat(bp, 64/len(bp))
		code := bytes.Repeat([]byte{0x90}, 64)
		for range 200 {
			at := g.alloc(r, text)
			s := &arch.Slot{Addr: at, Insn: arch.Insn{Addr: text.Start + 5}, Code: code}
			got, _ := g.bytes(at, 64)
			if !bytes.Equal(got, empty) {
				t.Fatalf("new slot holds % x", got)
			}
			if err := r.Put(s); err != nil || !bytes.Equal(got, code) {
				t.Fatalf("after put: % x, %v", got, err)
			}
			h, err := Inspect(g, g.base(r))
			if err != nil {
				t.Fatal(err)
			}
			slot, site, ok, err := h.Site(g, at+17)
			if slot != at || site != s.Insn.Addr || !ok || err != nil {
				t.Fatalf("site of %s: %s %s %v %v", at, slot, site, ok, err)
			}
			if at%3 == 0 {
				continue
			}
			if err := r.Free(at); err != nil || !bytes.Equal(got, empty) {
				t.Fatalf("after free: % x, %v", got, err)
			}
			if _, _, ok, _ := h.Site(g, at); ok {
				t.Fatal("a free slot has a site")
			}
		}
	}
}

func TestMisuseIsRefused(t *testing.T) {
	g, r := newRegion(t, fake)
	at := g.alloc(r, text)
	stub, _ := r.Stub()
	if err := r.Put(&arch.Slot{Addr: at, Code: make([]byte, 65)}); !errors.Is(err, ErrSlotSize) {
		t.Error(err)
	}
	if err := r.Free(at); err != nil {
		t.Error(err)
	}
	for _, bad := range []arch.Addr{0, at, at + 1, stub, text.Start, ^arch.Addr(0)} {
		for _, err := range []error{r.Free(bad), r.Retire(bad), r.Put(&arch.Slot{Addr: bad})} {
			if !errors.Is(err, ErrNotAllocated) {
				t.Errorf("%s: %v", bad, err)
			}
		}
	}
	e := r.Arenas()[0].Extent()
	if err := r.adopt(e, Bytes(nil), Bytes(nil)); !errors.Is(err, ErrHeader) {
		t.Errorf("adopting an arena twice: %v", err)
	}
	e.Offset = r.fileEnd
	if err := r.adopt(e, Bytes(nil), Bytes(nil)); !errors.Is(err, ErrBounds) || len(r.Arenas()) != 1 {
		t.Errorf("adopting an arena without memory: %v", err)
	}
}

func TestARetiredSlotKeepsItsCodeUntilNoThreadIsInside(t *testing.T) {
	g, r := newRegion(t, fake)
	a, b := g.alloc(r, text), g.alloc(r, text)
	code := bytes.Repeat([]byte{0x90}, 64)
	for _, at := range []arch.Addr{a, b} {
		if err := errors.Join(r.Put(&arch.Slot{Addr: at, Code: code}), r.Retire(at), r.Retire(at)); err != nil {
			t.Fatal(err)
		}
	}
	thread := a + 7
	inside := func(s arch.Range) bool { return s.Len() == 64 && s.Contains(thread) }
	if left, err := r.Collect(inside); left != 1 || err != nil {
		t.Error(left, err)
	}
	got, _ := g.bytes(a, 64)
	if slot, ok := r.SlotOf(thread); !ok || slot != a || !bytes.Equal(got, code) {
		t.Error("the slot with a thread inside was freed")
	}
	if _, ok := r.SlotOf(b); ok || r.Live() != 1 {
		t.Error("the slot without a thread was not freed")
	}
	thread = 0
	if left, err := r.Collect(inside); left != 0 || err != nil || r.Live() != 0 {
		t.Error(left, err)
	}
	if left, err := r.Collect(func(arch.Range) bool { t.Error("nothing is retired"); return true }); left != 0 || err != nil {
		t.Error(left, err)
	}
}

func TestReserveMapsRoomForABatchAtOnce(t *testing.T) {
	g, r := newRegion(t, fake)
	for range 3 {
		g.alloc(r, text)
	}
	if err := r.Reserve(text, 100); err != nil || len(g.mapped) != 1 {
		t.Fatal(err, g.mapped)
	}
	if err := r.Reserve(text, 10000); err != nil || len(g.mapped) != 2 || r.Room(text) < 10000 {
		t.Fatal(err, g.mapped)
	}
	for range 10000 {
		g.alloc(r, text)
	}
	if len(g.mapped) != 2 {
		t.Errorf("%d arenas", len(g.mapped))
	}
}

func TestEachArenaForTheSameCodeIsLarger(t *testing.T) {
	g, r := newRegion(t, fake)
	far := arch.Range{Start: 0x7f00_0000_0000, End: 0x7f00_0010_0000}
	before := 0
	for range 4 {
		need := r.need(text, 1)
		if need.slots < 2*before {
			t.Errorf("%d slots after %d", need.slots, before)
		}
		before = need.slots
		g.grow(r, need)
	}
	if got := r.need(far, 1).slots; got != minSlots {
		t.Errorf("the first arena for other code has %d slots", got)
	}
	for range 10 {
		g.grow(r, &needArena{near: text, reach: fake.Reach(), slots: 1})
	}
	if got := r.need(text, 1).slots; got != maxSlots {
		t.Errorf("%d slots, more than %d", got, maxSlots)
	}
}

func TestPlaceTakesASmallerArenaWhereTheWishedOneDoesNotFit(t *testing.T) {
	_, r := newRegion(t, fake)
	need := &needArena{near: text, reach: fake.Reach(), slots: 1 << 15}
	free := arch.Range{Start: text.End + 1<<20, End: text.End + 2<<20}
	used := []Mapping{
		{Range: arch.Range{Start: 0x1000, End: free.Start}},
		{Range: arch.Range{Start: free.End, End: limits.End}},
	}
	e, err := r.place(need, used, limits)
	if err != nil || !(free.Start < e.Data.Start && e.Code.End < free.End) {
		t.Fatalf("%v in %s: %v", e, free, err)
	}
	used[0].Range.End = free.End
	var gap *NoGapError
	if _, err = r.place(need, used, limits); !errors.Is(err, ErrNoGap) || !errors.As(err, &gap) {
		t.Error(err)
	}
}

func TestTheHeaderListsEveryArenaAndIsFull(t *testing.T) {
	g, r := newRegion(t, fake)
	for range MaxArenas {
		g.grow(r, &needArena{near: text, reach: fake.Reach(), slots: 1})
	}
	if _, err := r.place(&needArena{near: text}, nil, limits); !errors.Is(err, ErrTooManyArenas) {
		t.Error(err)
	}
	h, err := Inspect(g, g.base(r))
	if err != nil {
		t.Fatal(err)
	}
	if h.Arch != "fake" || h.Owner != owner || h.SlotSize != 64 || len(h.Arenas) != MaxArenas {
		t.Errorf("%+v", h)
	}
	end := uint64(0)
	for i, e := range h.Arenas {
		if e.Offset != end {
			t.Errorf("arena %d lies at file offset %#x, want %#x", i, e.Offset, end)
		}
		end = e.FileEnd()
		if _, ok := g.maps[e.Range()]; !ok {
			t.Errorf("arena %d at %s was not mapped", i, e.Range())
		}
	}
}

// TestAnySequenceOfAllocationsKeepsSlotsApart compares the region with a plain
// map of what is allocated.
func TestAnySequenceOfAllocationsKeepsSlotsApart(t *testing.T) {
	modules := []arch.Range{text, {Start: 0x7f00_0000_0000, End: 0x7f00_0010_0000}, {Start: 0x40_0000, End: 0x50_0000}}
	for seed := range int64(20) {
		rnd := rand.New(rand.NewSource(seed))
		g, r := newRegion(t, fake)
		for _, m := range modules[1:] {
			g.used = append(g.used, Mapping{Range: m})
		}
		live := map[arch.Addr]arch.Range{}
		var order []arch.Addr
		for range 4000 {
			if len(order) > 0 && rnd.Intn(5) < 2 {
				i := rnd.Intn(len(order))
				at := order[i]
				if err := r.Free(at); err != nil {
					t.Fatal(err)
				}
				order = append(order[:i], order[i+1:]...)
				delete(live, at)
				continue
			}
			near := modules[rnd.Intn(len(modules))]
			at := g.alloc(r, near)
			if _, twice := live[at]; twice || at%64 != 0 {
				t.Fatalf("slot %s was given out twice or is misaligned", at)
			}
			if !inReach(arch.Range{Start: at, End: at + 64}, near, fake.Reach()) {
				t.Fatalf("slot %s is out of reach of %s", at, near)
			}
			live[at] = near
			order = append(order, at)
		}
		if r.Live() != len(live) {
			t.Fatalf("%d live, want %d", r.Live(), len(live))
		}
		for _, a := range r.Arenas() {
			for ip := a.Range().Start; ip < a.Range().End; ip += 16 {
				_, want := live[ip&^63]
				if slot, ok := r.SlotOf(ip + 3); ok != want || ok && slot != ip&^63 {
					t.Fatalf("slot of %s: %s %v, want %v", ip+3, slot, ok, want)
				}
				if r.Contains(ip) != a.Code().Contains(ip) {
					t.Fatalf("contains %s is wrong", ip)
				}
			}
		}
	}
}

func TestACaveServesSlotsAndIsZeroAgainAfterwards(t *testing.T) {
	g, r := newRegion(t, fake)
	g.refuses, g.padding = ErrCantMap, text.Start+0x1e1d
	cave := rng(text.Start+0x1e40, text.Start+0x2000)
	b := make([]byte, cave.Len())
	g.maps[cave] = b
	if err := r.Reserve(text, 1); err != nil || !bytes.Equal(b, make([]byte, len(b))) {
		t.Errorf("the cave was changed when it was found: %v", err)
	}
	for i := range int(cave.Len() / 64) {
		at, err := r.Alloc(text)
		if err != nil || at != cave.Start+arch.Addr(64*i) || b[64*i] != 0xcc {
			t.Fatal(at, err)
		}
		if err := r.Put(&arch.Slot{Addr: at, Code: []byte{1, 2, 3}}); err != nil {
			t.Fatal(err)
		}
		for _, c := range b[64*(i+1):] {
			if c != 0 {
				t.Fatal("bytes behind the slot were changed")
			}
		}
	}
	far := rng(1<<40, 1<<40+1)
	for _, near := range []arch.Range{text, far} { // the cave is full, or out of reach
		if _, err := r.Alloc(near); !errors.Is(err, ErrCaveUsed) || !errors.Is(err, ErrCantMap) {
			t.Errorf("%s: %v", near, err)
		}
	}
	if err := r.Free(cave.Start); err != nil {
		t.Error(err)
	}
	if err := r.Wipe(); err != nil || !bytes.Equal(b, make([]byte, len(b))) || r.Live() != 0 {
		t.Errorf("after wiping: % x, %v", b, err)
	}
	if _, ok := r.Stub(); ok {
		t.Error("a cave has a stub")
	}
	b[100] = 1
	if _, err := New(fake, owner, g).Alloc(text); !errors.Is(err, ErrCaveUsed) {
		t.Error(err)
	}
	for _, full := range []arch.Addr{0x2000, 0x1fc1, 0x1fff} {
		if r, err := findCave(full, 64); !errors.Is(err, ErrCaveSize) {
			t.Errorf("padding behind %s: %s", full, r)
		}
	}
}

func BenchmarkAllocPutFree(b *testing.B) {
	r := New(fake, owner, &target{maps: map[arch.Range][]byte{}})
	code := make([]byte, 64)
	for b.Loop() {
		at, _ := r.Alloc(text)
		if err := errors.Join(r.Put(&arch.Slot{Addr: at, Code: code}), r.Free(at)); err != nil {
			b.Fatal(err)
		}
	}
}
