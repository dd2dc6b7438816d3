package patch

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// Whatever stands in a copied memory (patches as written, halves of them, others' breakpoints, others' code), it is restored as if
// each place were restored alone; what can't be is told.
func TestACopyIsRestoredAsPlaceByPlace(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		one := newMemory(3 * pageSize)
		var entries []Entry
		for at := r.IntN(40); at < 3*pageSize-8; at += 5 + r.IntN(1+r.IntN(300)) {
			n := 1 + 4*r.IntN(2) // a breakpoint or a jump
			e := Entry{At: base + arch.Addr(at), Original: bytes.Clone(one.b[at : at+n]), Replacement: []byte{0xcc}}
			if n > 1 {
				e.Replacement = []byte{0xe9, byte(r.Uint32()), byte(r.Uint32()), 0xcc, 0xcc}
			}
			entries = append(entries, e)
			switch put := e.Replacement; r.IntN(40) {
			case 0: // it is not there
			case 1: // somebody else's code
				_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(one.b[at : at+n])
			case 2: // half
				copy(one.b[at:], put[:(n+1)/2])
			case 3: // with somebody's breakpoint
				copy(one.b[at:], put)
				one.b[at+n-1] = 0xcc
			default:
				copy(one.b[at:], put)
			}
			if n > 1 && r.IntN(3) == 0 { // one that stood at its end, and looks as if it were there
				inside := Entry{At: e.At + 4, Original: e.Original[4:], Replacement: []byte{0xcc}}
				entries = append(entries, inside)
			}
		}
		all := *one
		all.b = bytes.Clone(one.b)
		j := Judge{Trap: []byte{0xcc}}
		err := Restore(held(true), one, j, entries)
		errAll := RestoreCopy(held(true), &all, j, entries)
		if !bytes.Equal(one.b, all.b) || (err == nil) != (errAll == nil) || err != nil && err.Error() != errAll.Error() {
			t.Fatalf("seed %d: memory is the same: %v; place by place: %v; together: %v", seed, bytes.Equal(one.b, all.b), err, errAll)
		}
	}
}

// A page costs three accesses, however many places it has.
func TestACopyIsRestoredPageByPage(t *testing.T) {
	m := newMemory(2 * pageSize)
	pristine := bytes.Clone(m.b)
	var entries []Entry
	for at := 0; at < 2*pageSize; at += 16 {
		entries = append(entries, Entry{base + arch.Addr(at), []byte{m.b[at]}, []byte{0xcc}})
		m.b[at] = 0xcc
	}
	if err := RestoreCopy(held(true), m, Judge{}, entries); err != nil || !bytes.Equal(m.b, pristine) || m.access != 2*3 {
		t.Fatalf("%v, restored %v, %d accesses for two pages", err, bytes.Equal(m.b, pristine), m.access)
	}
}

// Where a write of a page fails, or does not last, each place is tried alone.
func TestACopyIsRestoredInSpiteOfFailures(t *testing.T) {
	for fails := 1; fails <= 3; fails++ {
		m := newMemory(pageSize)
		pristine := bytes.Clone(m.b)
		var entries []Entry
		for at := 8; at < pageSize; at += 100 {
			entries = append(entries, Entry{base + arch.Addr(at), []byte{m.b[at]}, []byte{0xcc}})
			m.b[at] = 0xcc
		}
		m.short = 300
		m.inject(fails)
		if err := RestoreCopy(held(true), m, Judge{}, entries); err != nil || !bytes.Equal(m.b, pristine) {
			t.Fatalf("access %d fails: %v, restored %v", fails, err, bytes.Equal(m.b, pristine))
		}
	}
	if err := RestoreCopy(held(false), newMemory(1), Judge{}, nil); err == nil {
		t.Fatal("restored while threads run")
	}
}

// A breakpoint of somebody else's that goes between the look at a page and the write does not come back, and one that comes stays.
func TestOthersBreakpointsInACopyAreTheirs(t *testing.T) {
	for access, others := range map[int]byte{1: 0xcc, 2: 0x90} {
		m := newMemory(pageSize)
		m.b[100], m.b[8] = others, 0xcc
		want := bytes.Clone(m.b)
		entries := []Entry{{base + 8, []byte{0x55}, []byte{0xcc}}, {base + 200, []byte{m.b[200]}, []byte{0xcc}}}
		m.b[200], want[8] = 0xcc, 0x55
		m.foreign = map[int]func(*memory){access: func(m *memory) { m.b[100] ^= 0xcc ^ 0x90 }} // the look; the write
		want[100] ^= 0xcc ^ 0x90
		if err := RestoreCopy(held(true), m, Judge{Trap: []byte{0xcc}}, entries); err != nil || !bytes.Equal(m.b, want) {
			t.Errorf("%v, the other's byte is %#x instead of %#x", err, m.b[100], want[100])
		}
	}
}
