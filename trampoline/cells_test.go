package trampoline

import (
	"bytes"
	"errors"
	"math/rand"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

func TestCellsAreZeroAlignedSharedAndInReach(t *testing.T) {
	g, r := newRegion(t, optimized)
	rnd := rand.New(rand.NewSource(3))
	sizes := []int{1, 64, 256, 512, 5000, 1 << 20, 4 << 20}
	type cell struct {
		at arch.Range
		b  []byte
	}
	var live []cell
	for i := range 3000 {
		if len(live) > 0 && rnd.Intn(3) == 0 {
			k := rnd.Intn(len(live))
			if err := r.FreeCells(live[k].at.Start); err != nil {
				t.Fatal(err)
			}
			live[k] = live[len(live)-1]
			live = live[:len(live)-1]
			continue
		}
		n := sizes[rnd.Intn(4)]
		if i%500 == 0 {
			n = sizes[4+rnd.Intn(3)]
		}
		at, b := g.cells(r, text.Start+arch.Addr(i), n)
		c := cell{stretch(at, uint64(n)), b}
		in, err := g.bytes(at, n)
		if err != nil || len(b) != n || &in[0] != &b[0] || at%64 != 0 || !inReach(c.at, text, fake.Reach()) {
			t.Fatalf("%d bytes at %s, %v", n, at, err)
		}
		if bytes.Count(b, []byte{0}) != n {
			t.Fatalf("cells at %s hold % x", at, b)
		}
		for _, o := range live {
			if o.at.Overlaps(c.at) {
				t.Fatalf("%s and %s overlap", o.at, c.at)
			}
		}
		for k := range b {
			b[k] = 0xff
		}
		live = append(live, c)
	}
	for _, c := range live {
		if bytes.Count(c.b, []byte{0xff}) != len(c.b) {
			t.Fatalf("the cells at %s were changed", c.at)
		}
	}
	for _, bad := range []arch.Addr{0, live[0].at.Start + 1, text.Start} {
		if err := r.FreeCells(bad); !errors.Is(err, ErrNotAllocated) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, n := range []int{0, -1} {
		if _, _, err := r.Cells(text.Start, n); !errors.Is(err, ErrBounds) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestDetoursAndCellsShareTheHomeOfTheirCode(t *testing.T) {
	g, r := newRegion(t, optimized)
	at, _ := g.cells(r, text.Start, 256)
	l := g.land(r, text, []arch.Pattern{anyPattern(text.Start + 5)}, 60)
	if len(r.Arenas()) != 1 || !r.Arenas()[0].Range().Contains(at) || !r.Arenas()[0].Range().Contains(l.Entry) {
		t.Errorf("%d arenas, cells at %s, landing %+v", len(r.Arenas()), at, l)
	}
}
