package trampoline

import (
	"bytes"
	"errors"
	"math/rand"
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// twin is a region that random work is done on. Two that had the same work from the same seed have the same bytes.
type twin struct {
	*testing.T
	*rand.Rand
	target  *target
	region  *Region
	slots   []arch.Addr
	landed  []Landing
	cells   []arch.Addr
	records []int
	resumed []arch.Addr
}

func (w *twin) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// pick takes one of list out of it.
func pick[T any](w *twin, list *[]T) (x T, ok bool) {
	if len(*list) == 0 {
		return x, false
	}
	i := w.Intn(len(*list))
	x = (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return x, true
}

func (w *twin) work(steps int) {
	w.Helper()
	r := w.region
	inside := func(c arch.Range) bool { return c.Start%256 == 0 }
	for range steps {
		near := text.Start + arch.Addr(w.Intn(int(text.Len())))
		switch w.Intn(14) {
		case 0, 1:
			at := w.target.alloc(r, text)
			w.check(r.Put(&arch.Slot{Addr: at, Insn: arch.Insn{Addr: near}, Code: []byte{0x90, byte(w.Int())}}))
			w.slots = append(w.slots, at)
		case 2:
			if at, ok := pick(w, &w.slots); ok {
				w.check(r.Free(at))
			}
		case 3:
			if at, ok := pick(w, &w.slots); ok {
				w.check(r.Retire(at))
			}
		case 4, 5, 6:
			if l, ok := w.target.tryLand(r, text, patterns(w.Rand, near), 30+w.Intn(100)); ok {
				w.check(r.PutDetour(l.Detour, bytes.Repeat([]byte{0x90}, l.Size)))
				w.landed = append(w.landed, l)
			}
		case 7:
			if l, ok := pick(w, &w.landed); ok {
				w.check(r.FreeLanding(l))
			}
		case 8:
			if l, ok := pick(w, &w.landed); ok {
				w.check(r.RetireLanding(l))
			}
		case 9:
			at, cell := w.target.cells(r, near, 1+w.Intn(300))
			cell[0] = byte(1 + w.Intn(255))
			w.cells = append(w.cells, at)
		case 10:
			if at, ok := pick(w, &w.cells); ok {
				cell, err := r.Cell(at, 1)
				w.check(err)
				cell[0] = 0 // what nobody has is not copied
				w.check(r.FreeCells(at))
			}
		case 11:
			id, err := r.Journal().Record(near, bytes.Repeat([]byte{1}, 1+w.Intn(50))[:1], []byte{0xcc})
			w.check(err)
			w.records = append(w.records, id)
			if id, ok := pick(w, &w.records); ok && w.Intn(2) == 0 {
				w.check(r.Journal().Erase(id))
			} else if ok {
				w.records = append(w.records, id)
			}
		case 12:
			for i := range arch.Addr(20) {
				w.check(r.SetResume(near+i, near+1))
			}
			w.resumed = append(w.resumed, near)
		default:
			if at, ok := pick(w, &w.resumed); ok {
				w.check(r.ClearResume(at))
			}
			if w.Intn(10) == 0 {
				_, err1 := r.Collect(inside)
				_, err2 := r.CollectDetours(inside)
				w.check(errors.Join(err1, err2))
			}
		}
	}
}

// copyOf is a twin with a copy of w's region, whose further work is w's.
func (w *twin) copyOf(seed int64) *twin {
	w.Helper()
	for at := range w.region.resume.former { // which is not copied: nobody in the child reads there
		for _, a := range w.region.arenas {
			if a.ground != nil && a.ground.cells.taken[at] > 0 {
				clear(a.ground.cells.bytes[at-a.ground.cells.at:][:a.ground.cells.taken[at]])
			}
		}
	}
	own := newTarget(w.T)
	child := New(optimized, owner, own)
	w.check(child.CopyOf(w.region, nil, func(e Extent) (data, code Store) {
		data, code, err := own.Map(e)
		w.check(err)
		return data, code
	}))
	return &twin{w.T, rand.New(rand.NewSource(seed)), own, child, slices.Clone(w.slots), slices.Clone(w.landed), slices.Clone(w.cells), slices.Clone(w.records), slices.Clone(w.resumed)}
}

func (w *twin) same(o *twin, when string) {
	w.Helper()
	if len(w.target.maps) != len(o.target.maps) {
		w.Fatalf("%s: %d arenas, %d in the copy", when, len(w.target.maps), len(o.target.maps))
	}
	for r, b := range w.target.maps {
		if c := o.target.maps[r]; !bytes.Equal(b, c) {
			i := 0
			for len(c) == len(b) && b[i] == c[i] {
				i++
			}
			w.Fatalf("%s: the arena at %s differs from its copy, first at %#x", when, r, i)
		}
	}
	if w.region.Live() != o.region.Live() || w.region.Detours() != o.region.Detours() {
		w.Fatalf("%s: %d slots and %d detours, %d and %d in the copy", when, w.region.Live(), w.region.Detours(), o.region.Live(), o.region.Detours())
	}
}

// TestACopyBehavesAsItsOriginal: a copy has the same bytes, and the same work leads to the same bytes again, in either region without any in the other.
func TestACopyBehavesAsItsOriginal(t *testing.T) {
	for seed := range int64(12) {
		g, r := newRegion(t, optimized)
		w := &twin{T: t, Rand: rand.New(rand.NewSource(seed)), target: g, region: r}
		w.target.alloc(r, text) // an arena with slots comes first, as in a target
		w.work(int(200 * (seed + 1)))
		again := w.copyOf(seed + 100)
		w.same(again, "the copy")
		w.Rand = rand.New(rand.NewSource(seed + 100))
		w.work(600)
		still := again.copyOf(0) // what is done to the one is not done to the other
		again.same(still, "the copy's copy")
		again.work(600)
		w.same(again, "after the same work")
	}
}

// TestNoMasksOfThreadsAreCopied: a held mask is a thread's of the parent.
func TestNoMasksOfThreadsAreCopied(t *testing.T) {
	g, r := newRegion(t, optimized)
	g.alloc(r, text)
	if err := errors.Join(r.NoteHeldMask(0, HeldMask{TID: 7, Own: 1, Instead: 2}), r.NoteUnblocked(1, 0xfe)); err != nil {
		t.Fatal(err)
	}
	w := (&twin{T: t, target: g, region: r}).copyOf(0)
	h := must(Inspect(w.target, w.target.base(w.region)))(t)
	if held := must(h.HeldMasks(w.target))(t); len(held) > 0 {
		t.Errorf("the child has masks of its parent's threads: %v", held)
	}
	if sets := must(h.Unblocked(w.target))(t); !slices.Equal(sets, []uint64{0xfe}) {
		t.Errorf("sets noted: %x", sets)
	}
}

// TestACaveIsNotCopied: it is memory of the program's.
func TestACaveIsNotCopied(t *testing.T) {
	g, r := newRegion(t, fake)
	g.alloc(r, text)
	for r.Room(text) > 0 {
		g.alloc(r, text)
	}
	g.refuses, g.padding = ErrCantMap, text.Start+0x1e1d
	g.maps[rng(text.Start+0x1e40, text.Start+0x2000)] = make([]byte, 0x1c0)
	g.alloc(r, text)
	own := newTarget(t)
	err := New(fake, owner, own).CopyOf(r, nil, func(e Extent) (data, code Store) {
		data, code, _ = own.Map(e)
		return data, code
	})
	if !errors.Is(err, ErrNotShared) {
		t.Errorf("copied a region with a cave: %v", err)
	}
}

// TestCellsOfACopyBeginAsTold: with zero, or with what they have.
func TestCellsOfACopyBeginAsTold(t *testing.T) {
	g, r := newRegion(t, optimized)
	g.alloc(r, text)
	counter, cell1 := g.cells(r, text.Start, 64)
	kept, cell2 := g.cells(r, text.Start, 64)
	cell1[3], cell2[3] = 1, 2
	own := newTarget(t)
	child := New(optimized, owner, own)
	if err := child.CopyOf(r, map[arch.Addr]bool{counter: true}, func(e Extent) (data, code Store) {
		data, code, err := own.Map(e)
		if err != nil {
			t.Fatal(err)
		}
		return data, code
	}); err != nil {
		t.Fatal(err)
	}
	if a, b := must(child.Cell(counter, 64))(t), must(child.Cell(kept, 64))(t); a[3] != 0 || b[3] != 2 || cell1[3] != 1 {
		t.Errorf("a counter is %d, the other cell %d; want 0, 2", a[3], b[3])
	}
}
