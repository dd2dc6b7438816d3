package patch

import (
	"bytes"
	"math/rand"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// kernel does to a memory what Linux does for uprobes on the file that is mapped there.
type kernel struct {
	m        *memory
	file     []byte
	stands   map[int]bool
	shadowed map[int]bool // a breakpoint of ours was there while it stood, or it came while we wrote: it may be gone
	writing  bool
}

func (k *kernel) register(i int) {
	k.stands[i], k.shadowed[i] = true, k.m.b[i] == 0xcc || k.writing
	k.m.b[i] = 0xcc
}

func (k *kernel) unregister(i int) {
	delete(k.stands, i)
	if k.m.b[i] == 0xcc {
		k.m.b[i] = k.file[i]
	}
}

// undisturbed is what the file says.
func (k *kernel) undisturbed(at arch.Addr, b []byte) {
	for i := range b {
		if b[i] == 0xcc {
			b[i] = k.file[int(at-base)+i]
		}
	}
}

// check: what stands is the file, and the breakpoints of uprobes that stand.
func (k *kernel) check(t *testing.T, seed int64) {
	t.Helper()
	for i, b := range k.m.b {
		switch {
		case k.stands[i] && b == 0xcc, b == k.file[i] && (!k.stands[i] || k.shadowed[i]):
		default:
			t.Fatalf("seed %d: byte %d is %#x, the file has %#x, a uprobe stands: %v", seed, i, b, k.file[i], k.stands[i])
		}
	}
}

// TestPatchesBesideUprobesThatComeAndGo: whatever uprobes do between our changes and in the middle of them, all code is the program's
// in the end, with the breakpoints of those that stand, and meanwhile it is shown as the program's.
func TestPatchesBesideUprobesThatComeAndGo(t *testing.T) {
	for seed := range int64(3000) {
		r := rand.New(rand.NewSource(seed))
		m := newMemory(64)
		k := &kernel{m: m, file: bytes.Clone(m.b), stands: map[int]bool{}, shadowed: map[int]bool{}}
		x := newStill(m, nil)
		x.Beside(Judge{Trap: []byte{0xcc}}, k.undisturbed)
		turn := func() {
			if i := r.Intn(24); k.stands[i] {
				k.unregister(i)
			} else {
				k.register(i)
			}
		}
		var live []*Patch
		for step := range 60 {
			m.access, m.foreign = 0, map[int]func(*memory){}
			for range r.Intn(3) {
				m.foreign[1+r.Intn(4)] = func(*memory) { turn() }
			}
			op := r.Intn(8)
			k.writing = op >= 3
			switch {
			case !k.writing:
				turn()
			case op < 5 || len(live) == 0:
				at, ours := r.Intn(19), []byte{0xcc}
				if r.Intn(2) == 0 {
					ours = []byte{0xe9, byte(r.Intn(256)), 0xcc, byte(r.Intn(256)), byte(r.Intn(256))}
				}
				if p, err := x.Install(base+arch.Addr(at), k.file[at:at+len(ours)], ours); err == nil {
					live = append(live, p)
				}
			case op == 5:
				if p := live[r.Intn(len(live))]; len(p.original) == 1 {
					_ = x.Arm(p)
				}
			case op == 6:
				_ = x.Disarm(live[r.Intn(len(live))])
			default:
				i := r.Intn(len(live))
				if err := x.Remove(live[i]); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
				live = append(live[:i], live[i+1:]...)
			}
			noteShadows(k, x)
			view := make([]byte, len(m.b))
			m.foreign = nil
			if err := x.Original(base, view); err != nil || !bytes.Equal(view, k.file) {
				t.Fatalf("seed %d, step %d: the original view is % x, the file has % x (%v)", seed, step, view[:24], k.file[:24], err)
			}
		}
		m.foreign = nil
		if err := x.RestoreAll(nil); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		k.check(t, seed)
	}
}

// noteShadows notes where breakpoints of ours stand together with uprobes'.
func noteShadows(k *kernel, x still) {
	for _, p := range x.Patches() {
		for i, b := range p.replacement {
			if b == 0xcc {
				k.shadowed[int(p.at-base)+i] = true
			}
		}
	}
}

// TestWhatStandsIsClassified, by the program's code, ours and what stands there.
func TestWhatStandsIsClassified(t *testing.T) {
	original, jump := []byte{0x55, 0x48, 0x89, 0xe5, 0x41}, []byte{0xe9, 0xcc, 0x20, 0x30, 0x41}
	for _, c := range []struct {
		now  []byte
		want Standing
	}{
		{[]byte{0x55, 0x48, 0x89, 0xe5, 0x41}, Clean},
		{[]byte{0xe9, 0xcc, 0x20, 0x30, 0x41}, Ours},
		{[]byte{0xcc, 0xcc, 0x20, 0x30, 0x41}, Covered}, // a uprobe came to the site
		{[]byte{0x55, 0xcc, 0x20, 0x30, 0x41}, Torn},    // and went
		{[]byte{0xe9, 0x48, 0x20, 0x30, 0x41}, Torn},    // one inside went
		{[]byte{0xcc, 0x48, 0x20, 0x30, 0xcc}, Torn},
		{[]byte{0xe9, 0xcc, 0x20, 0x30, 0xcc}, Covered},
		{[]byte{0xcc, 0x48, 0x89, 0xe5, 0x41}, Watched},
		{[]byte{0x0f, 0x1f, 0x44, 0x00, 0x00}, Foreign},
		{[]byte{0x55, 0x48, 0x89, 0xe5, 0x42}, Foreign},
	} {
		if got := Classify(original, jump, c.now, []byte{0xcc}); got != c.want {
			t.Errorf("% x: %s, want %s", c.now, got, c.want)
		}
	}
	if got := Classify(original, jump, []byte{0x55, 0x48, 0x89, 0xcc, 0x41}, nil); got != Foreign {
		t.Errorf("without breakpoints of others: %s", got)
	}
}

// TestRestoreTakesBackWhatIsLeftOfAJump, and leaves the breakpoints of others.
func TestRestoreTakesBackWhatIsLeftOfAJump(t *testing.T) {
	original, jump := []byte{0x55, 0x48, 0x89, 0xe5, 0x41}, []byte{0xe9, 0xcc, 0x20, 0x30, 0x99}
	for mask := range 1 << 10 {
		m := newMemory(5)
		want := bytes.Clone(original)
		for i := range m.b {
			switch mask >> (2 * i) & 3 {
			case 0:
				m.b[i] = jump[i]
			case 1:
				m.b[i] = original[i]
			default:
				if m.b[i] = 0xcc; jump[i] != 0xcc {
					want[i] = 0xcc
				}
			}
		}
		before := bytes.Clone(m.b)
		if err := Restore(held(true), m, Judge{Trap: []byte{0xcc}}, []Entry{{base, original, jump}}); err != nil || !bytes.Equal(m.b, want) {
			t.Errorf("% x: % x instead of % x (%v)", before, m.b, want, err)
		}
	}
}

// TestSharesTellsOfOthersBreakpoints: that one was found there, and that it has gone.
func TestSharesTellsOfOthersBreakpoints(t *testing.T) {
	m := newMemory(8)
	own, trap := bytes.Clone(m.b), []byte{0xcc}
	x := NewText(m, nil)
	x.Beside(Judge{Trap: trap}, func(at arch.Addr, b []byte) { copy(b, own[at-base:]) })
	seen := map[uint64]bool{x.Shares(): true}
	changes := func(what string, want bool) {
		t.Helper()
		if seen[x.Shares()] == want {
			t.Errorf("%s: changed is not %v", what, want)
		}
		seen[x.Shares()] = true
	}
	if _, err := x.Install(base, own[:1], trap); err != nil {
		t.Fatal(err)
	}
	changes("ours alone", false)
	m.b[3] = 0xcc
	p, err := x.Install(base+3, own[3:4], trap)
	if err != nil || !p.Shared() {
		t.Fatal(err, p.Shared())
	}
	changes("somebody's, too", true)
	if err := x.Disarm(p); err != nil {
		t.Fatal(err)
	}
	changes("disarmed", false)
	m.b[3] = own[3]
	if err := x.Arm(p); err != nil || p.Shared() {
		t.Fatal(err, p.Shared())
	}
	changes("ours alone again", true)
}
