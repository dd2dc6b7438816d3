package trampoline

import (
	"math/rand"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// model is a space as a plain slice.
type model []bool

func (m model) next(off, n uint64) (uint64, bool) {
	run := uint64(0)
	for i := off; i < uint64(len(m)); i++ {
		if run++; m[i] {
			run = 0
		}
		if run == n && n > 0 {
			return i + 1 - n, true
		}
	}
	return 0, false
}

// TestASpaceIsWhatAPlainSliceIs does the same with both, in few and nearly full pages.
func TestASpaceIsWhatAPlainSliceIs(t *testing.T) {
	for seed := range int64(30) {
		rnd := rand.New(rand.NewSource(seed))
		pages := uint64(1 + rnd.Intn(4))
		s, m := newSpace(pages*PageSize), make(model, pages*PageSize)
		var taken [][2]uint64
		fresh := map[uint64]bool{}
		for range 3000 {
			n := uint64(1 + rnd.Intn([]int{8, 200, 9000}[rnd.Intn(3)]))
			from := uint64(rnd.Intn(len(m)))
			if rnd.Intn(2) == 0 {
				from = 0
			}
			off, ok := s.next(from, n)
			if want, wok := m.next(from, n); off != want || ok != wok {
				t.Fatalf("seed %d: %d bytes from %#x: %#x, %v; want %#x, %v", seed, n, from, off, ok, want, wok)
			}
			if k := len(taken); k > 0 && (!ok || rnd.Intn(3) == 0) {
				i := rnd.Intn(k)
				set(m, taken[i], false)
				s.give(taken[i][0], taken[i][1])
				taken[i] = taken[k-1]
				taken = taken[:k-1]
				continue
			}
			if !ok {
				continue
			}
			err := s.take(off, n, func(p uint64) error {
				if fresh[p] {
					t.Fatalf("page %d is touched for the first time twice", p)
				}
				fresh[p] = true
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			set(m, [2]uint64{off, n}, true)
			taken = append(taken, [2]uint64{off, n})
		}
		if s.touched() != len(fresh) {
			t.Errorf("%d pages touched, want %d", s.touched(), len(fresh))
		}
	}
}

func set(m model, at [2]uint64, v bool) {
	for i := range at[1] {
		m[at[0]+i] = v
	}
}

func TestNextAllowedIsTheLowestThatAllows(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for range 3000 {
		p := arch.Pattern{From: arch.Addr(rnd.Uint64() >> (17 + rnd.Intn(16)))}
		for k := range p.Byte {
			switch rnd.Intn(4) {
			case 0:
				p.Byte[k] = arch.AnyByte
			case 1:
				p.Byte[k] = trapBytes
			case 2:
				p.Byte[k] = arch.Bytes(byte(rnd.Intn(256)))
			default:
				p.Byte[k] = arch.Bytes(byte(rnd.Intn(256)), byte(rnd.Intn(256)))
			}
		}
		at := p.From.Add(int64(int32(rnd.Uint32())) * 9 / 8)
		if at > 1<<63 {
			at = 0
		}
		checkNext(t, rnd, p, at)
	}
}

// checkNext tries what could contradict: the addresses just below the answer, and random ones
// between.
func checkNext(t *testing.T, rnd *rand.Rand, p arch.Pattern, at arch.Addr) {
	t.Helper()
	got, ok := nextAllowed(p, at)
	end := p.From + 1<<31
	if ok {
		end = got
		if got < at || !p.Allows(got) {
			t.Fatalf("%+v from %s on: %s, allowed %v", p, at, got, p.Allows(got))
		}
	}
	for i := range arch.Addr(300) {
		for _, a := range []arch.Addr{at + i, end - 1 - i, at + arch.Addr(rnd.Uint64())%(end-at+1)} {
			if a >= at && a < end && p.Allows(a) {
				t.Fatalf("%+v from %s on: %s, %v; but %s is allowed", p, at, got, ok, a)
			}
		}
	}
	// One made of allowed bytes.
	var d [4]byte
	for k := range d {
		d[k] = byte(rnd.Intn(256))
		for !p.Byte[k].Has(d[k]) {
			d[k]++ // none of the sets is empty
		}
	}
	a := p.From.Add(int64(int32(le.Uint32(d[:]))))
	if p.Allows(a) && a >= at && a < 1<<63 && (!ok || got > a) {
		t.Fatalf("%+v from %s on: %s, %v; but %s is allowed", p, at, got, ok, a)
	}
}

func FuzzNextAllowed(f *testing.F) {
	f.Add(uint64(0x40_0000), uint64(0x1234), int64(1))
	f.Fuzz(func(t *testing.T, from, at uint64, seed int64) {
		rnd := rand.New(rand.NewSource(seed))
		p := anyPattern(arch.Addr(from >> 16))
		for k := range p.Byte {
			if rnd.Intn(3) > 0 {
				p.Byte[k] = arch.Bytes(byte(rnd.Intn(256)), byte(rnd.Intn(256)))
			}
		}
		checkNext(t, rnd, p, arch.Addr(at>>16))
	})
}
