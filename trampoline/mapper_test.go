package trampoline

import (
	"errors"
	"os"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// allocations are all that a region grows for.
func allocations(r *Region, near arch.Range) map[string]func() error {
	return map[string]func() error{
		"Alloc":   func() error { _, err := r.Alloc(near); return err },
		"Reserve": func() error { return r.Reserve(near, 1) },
		"Cells":   func() error { _, _, err := r.Cells(near.Start, 64); return err },
		"Land": func() error {
			_, err := r.Land(near, []arch.Pattern{anyPattern(near.Start + 5)}, 64)
			return err
		},
		"SetResume": func() error { return r.SetResume(near.Start, 1) },
		"Record":    func() error { _, err := r.Journal().Record(near.Start, []byte{1}, []byte{2}); return err },
	}
}

func TestARefusalOfTheMapperIsReturnedAndLeavesNothing(t *testing.T) {
	for name := range allocations(nil, text) {
		for _, refusal := range []error{errors.New("refused"), ErrCantMap} {
			g, r := newRegion(t, optimized)
			allocate := allocations(r, text)[name]
			g.refuses = refusal
			for range 2 {
				if err := allocate(); !errors.Is(err, refusal) || len(r.Arenas()) != 0 || r.fileEnd != 0 || r.Live() != 0 || r.Detours() != 0 {
					t.Errorf("%s: %v, %d arenas", name, err, len(r.Arenas()))
				}
			}
			if len(g.mapped) != 2 || len(g.taken) != 0 {
				t.Errorf("%s: %d arenas were mapped and %d unmapped for two refusals", name, len(g.mapped), len(g.taken))
			}
			g.refuses = nil
			if err := allocate(); err != nil || len(r.Arenas()) == 0 {
				t.Errorf("%s after a refusal: %v", name, err)
			}
		}
	}
}

func TestOnlySlotsLieInPadding(t *testing.T) {
	for name := range allocations(nil, text) {
		g, r := newRegion(t, optimized)
		g.refuses, g.padding = ErrCantMap, text.Start+0x1e1d
		g.maps[text] = make([]byte, text.Len())
		err := allocations(r, text)[name]()
		if slots := name == "Alloc" || name == "Reserve"; slots != (err == nil) || slots != (len(r.Arenas()) == 1) {
			t.Errorf("%s: %v, %d arenas", name, err, len(r.Arenas()))
		}
	}
}

// TestMemoryOutOfReachIsOnlyForWhatNoCodeRefersTo has nothing free near the code.
func TestMemoryOutOfReachIsOnlyForWhatNoCodeRefersTo(t *testing.T) {
	for name := range allocations(nil, text) {
		g, r := newRegion(t, optimized)
		g.used = []Mapping{{Range: rng(text.Start-4<<30, text.End+4<<30)}}
		err := allocations(r, text)[name]()
		if name == "SetResume" || name == "Record" {
			if err != nil || inReach(r.Arenas()[0].Range(), text, fake.Reach()) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, ErrNoGap) || len(g.mapped) != 0 {
			t.Errorf("%s: %v, %d arenas mapped", name, err, len(g.mapped))
		}
	}
}

// checkListed reads the header as a finder does.
func checkListed(t *testing.T, g *target, r *Region) {
	t.Helper()
	h, err := Inspect(g, g.base(r))
	if err != nil || len(h.Arenas) != len(r.Arenas()) {
		t.Fatalf("%v, %+v", err, h)
	}
	end := uint64(0)
	for _, e := range h.Arenas {
		if e.Offset != end || g.maps[e.Range()] == nil {
			t.Errorf("%+v is listed, behind %#x", e, end)
		}
		end = e.FileEnd()
	}
	if len(g.maps) != len(h.Arenas) {
		t.Errorf("%d arenas are mapped, %d are listed", len(g.maps), len(h.Arenas))
	}
}

// TestARegionMayBeUsedFromInsideItsMapper allocates from inside Map: near the same code, so that the inner
// arena takes the outer one's place, and elsewhere.
func TestARegionMayBeUsedFromInsideItsMapper(t *testing.T) {
	elsewhere := rng(0x7f00_0000_0000, 0x7f00_0010_0000)
	for outer := range allocations(nil, text) {
		for inner := range allocations(nil, text) {
			for _, near := range []arch.Range{text, elsewhere} {
				g, r := newRegion(t, optimized)
				g.used = append(g.used, Mapping{Range: elsewhere})
				g.within = func() {
					if err := allocations(r, near)[inner](); err != nil {
						t.Errorf("%s near %s in %s: %v", inner, near, outer, err)
					}
				}
				if err := allocations(r, text)[outer](); err != nil {
					t.Errorf("%s around %s near %s: %v", outer, inner, near, err)
				}
				checkListed(t, g, r)
			}
		}
	}
}

func TestAnOvertakenArenaIsUnmapped(t *testing.T) {
	elsewhere := rng(0x7f00_0000_0000, 0x7f00_0010_0000)
	g, r := newRegion(t, fake)
	g.used = append(g.used, Mapping{Range: elsewhere})
	var inside arch.Addr
	g.within = func() { inside = g.alloc(r, elsewhere) }
	at := g.alloc(r, text)
	if len(g.taken) != 1 || g.taken[0] != g.mapped[0].Range() || len(r.Arenas()) != 2 {
		t.Errorf("of %+v, %v was unmapped", g.mapped, g.taken)
	}
	if !inReach(stretch(inside, 64), elsewhere, fake.Reach()) || !inReach(stretch(at, 64), text, fake.Reach()) {
		t.Errorf("slots at %s and %s", inside, at)
	}
}

// TestAnAllocationThatIsAlwaysOvertakenGivesUp has the address space fill up with other arenas.
func TestAnAllocationThatIsAlwaysOvertakenGivesUp(t *testing.T) {
	g, r := newRegion(t, fake)
	busy := true
	var again func()
	again = func() {
		if !busy {
			return
		}
		busy = false
		g.grow(r, &needArena{near: rng(1<<40, 1<<40+1), reach: fake.Reach(), slots: 1})
		busy, g.within = true, again
	}
	g.within = again
	if _, err := r.Alloc(text); !errors.Is(err, ErrTooManyArenas) || r.Live() != 0 {
		t.Error(err)
	}
	if len(g.taken) != maxGrowths || len(r.Arenas()) != maxGrowths {
		t.Errorf("%d arenas unmapped, %d in the region", len(g.taken), len(r.Arenas()))
	}
	checkListed(t, g, r)
}

// TestAnErrorOfAnOvertakenMappingIsNotTheLast: the inner arena lies where the outer one was to.
func TestAnErrorOfAnOvertakenMappingIsNotTheLast(t *testing.T) {
	g, r := newRegion(t, fake)
	g.within = func() { g.grow(r, &needArena{near: text, reach: fake.Reach(), slots: 1}) }
	at := g.alloc(r, text)
	if len(r.Arenas()) != 1 || !r.Contains(at) || len(g.taken) != 0 {
		t.Errorf("%d arenas, slot at %s", len(r.Arenas()), at)
	}
	// Without another arena it is.
	r = New(fake, owner, occupied{g})
	if _, err := r.Alloc(text); !errors.Is(err, os.ErrExist) {
		t.Error(err)
	}
}

// occupied is a target whose mappings are not all listed.
type occupied struct{ *target }

func (o occupied) Mappings() ([]Mapping, arch.Range, error) { return o.used[:1], limits, nil }

func TestStoresThatAreTooShortAreNotAdopted(t *testing.T) {
	for name := range allocations(nil, text) {
		g := newTarget(t)
		r := New(optimized, owner, short{g})
		if err := allocations(r, text)[name](); !errors.Is(err, ErrBounds) || len(r.Arenas()) != 0 {
			t.Errorf("%s: %v", name, err)
		}
		if len(g.maps) != 0 || len(g.taken) != len(g.mapped) {
			t.Errorf("%s: %d of %d arenas unmapped", name, len(g.taken), len(g.mapped))
		}
	}
}

// short is a target of which the tracer has not mapped the code.
type short struct{ *target }

func (s short) Map(e Extent) (data, code Store, err error) {
	data, _, err = s.target.Map(e)
	return data, Bytes(nil), err
}
