package patch

import (
	"bytes"
	"errors"
	"math/rand"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// model is what memory should show: the pristine bytes and, per byte, the patch
// that owns it.
type model struct {
	pristine []byte
	owner    []*Patch
}

func (d *model) want() []byte {
	b := bytes.Clone(d.pristine)
	for i, p := range d.owner {
		if p != nil && p.Armed() {
			b[i] = p.replacement[base+arch.Addr(i)-p.at]
		}
	}
	return b
}

func (d *model) own(p *Patch, by *Patch) {
	for i := range p.original {
		d.owner[int(p.at-base)+i] = by
	}
}

// run interprets script as operations, four bytes each, and checks memory
// against the model after every one.
func run(t *testing.T, script []byte, failures bool) {
	m := newMemory(300)
	j := newFakeJournal(m)
	x := newStill(m, j)
	d := &model{bytes.Clone(m.b), make([]*Patch, len(m.b))}
	var live []*Patch
	for ; len(script) >= 4; script = script[4:] {
		op, a, b, f := script[0], int(script[1]), int(script[2]), int(script[3])
		m.inject()
		if failures && f < 64 {
			m.short = f / 8
			m.inject(f%8, f%8+f/32)
		}
		var pick *Patch
		if len(live) > 0 {
			pick = live[a%len(live)]
		}
		switch {
		case op%5 < 2 || pick == nil:
			n := b%8 + 1
			free := true
			for i := a; i < a+n; i++ {
				free = free && d.owner[i] == nil
			}
			p, err := x.Install(base+arch.Addr(a), d.pristine[a:a+n], bytes.Repeat([]byte{0xcc}, n))
			if errors.Is(err, ErrOverlap) == free {
				t.Fatalf("install of %d at %d: %v, free=%v", n, a, err, free)
			}
			if errors.Is(err, ErrTorn) {
				p, _ = x.Find(base + arch.Addr(a))
			}
			if p != nil {
				d.own(p, p)
				live = append(live, p)
			}
		case op%5 == 2:
			x.Arm(pick)
		case op%5 == 3:
			x.Disarm(pick)
		default:
			if x.Remove(pick) == nil {
				d.own(pick, nil)
				live = append(live[:a%len(live)], live[a%len(live)+1:]...)
			}
		}
		m.inject()
		check(t, x, m, d, len(live))
	}
	killed := *m
	killed.b = bytes.Clone(m.b)
	if err := Restore(held(true), &killed, Judge{}, j.entries()); err != nil || !bytes.Equal(killed.b, d.pristine) {
		t.Fatalf("restoring from the journal: %v", err)
	}
	if err := Restore(held(true), &killed, Judge{}, x.Entries()); err != nil || !bytes.Equal(killed.b, d.pristine) {
		t.Fatalf("restoring twice: %v", err)
	}
	if err := x.RestoreAll(nil); err != nil || !bytes.Equal(m.b, d.pristine) || len(j.records) != 0 {
		t.Fatalf("restoring all: %v, %d records left", err, len(j.records))
	}
}

func check(t *testing.T, x still, m *memory, d *model, live int) {
	t.Helper()
	if len(x.Patches()) != live {
		t.Fatalf("%d patches, want %d", len(x.Patches()), live)
	}
	want := d.want()
	for i, p := range d.owner {
		if q, _ := x.Find(base + arch.Addr(i)); q != p {
			t.Fatalf("byte %d belongs to %v, want %v", i, q, p)
		}
		if m.b[i] != want[i] && (p == nil || !p.torn) {
			t.Fatalf("byte %d is %#x, want %#x", i, m.b[i], want[i])
		}
	}
	view := make([]byte, len(m.b))
	if err := x.Original(base, view); err != nil || !bytes.Equal(view, d.pristine) {
		t.Fatalf("the original view differs: %v", err)
	}
}

func TestAnySequenceOfChangesEndsWithTheSameBytes(t *testing.T) {
	for seed := range int64(300) {
		script := make([]byte, 400)
		rand.New(rand.NewSource(seed)).Read(script)
		run(t, script, seed%2 == 1)
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte{0, 10, 4, 255, 3, 0, 0, 255, 2, 0, 0, 255, 4, 0, 0, 255}, false)
	f.Add([]byte{0, 10, 4, 3, 0, 12, 4, 255, 3, 0, 0, 33, 4, 0, 0, 2}, true)
	f.Fuzz(func(t *testing.T, script []byte, failures bool) {
		run(t, script[:min(len(script), 1600)], failures)
	})
}

func BenchmarkArmDisarm(b *testing.B) {
	m := newMemory(1 << 20)
	x := newStill(m, nil)
	var p *Patch
	for i := 0; i < len(m.b); i += 16 {
		var err error
		if p, err = x.Install(base+arch.Addr(i), m.b[i:i+1], []byte{0xcc}); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for b.Loop() {
		if err := errors.Join(x.Disarm(p), x.Arm(p)); err != nil {
			b.Fatal(err)
		}
	}
}
