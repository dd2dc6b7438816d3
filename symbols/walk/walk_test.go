package walk

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// image is memory from 0x1000 on.
type image struct {
	bytes []byte
	reads int
}

var errFault = errors.New("fault")

func (m *image) ReadMemory(at arch.Addr, p []byte) error {
	m.reads++
	if at < 0x1000 || at-0x1000 > arch.Addr(len(m.bytes)) || len(m.bytes)-int(at-0x1000) < len(p) {
		return errFault
	}
	copy(p, m.bytes[at-0x1000:])
	return nil
}

func (m *image) WriteMemory(arch.Addr, []byte) error { return errFault }

func (m *image) alloc(n int64) arch.Addr {
	at := arch.Addr(0x1000 + len(m.bytes))
	m.bytes = append(m.bytes, make([]byte, n)...)
	return at
}

func (m *image) put(at arch.Addr, v arch.Addr) {
	binary.LittleEndian.PutUint64(m.bytes[at-0x1000:], uint64(v))
}

func (m *image) reader() *Reader { return &Reader{Mem: m, Left: Most} }

func keys(all []Entry) (out []arch.Addr) {
	for _, e := range all {
		out = append(out, e.Key)
	}
	return out
}

// TestTreesAreWalkedInOrder: random trees without any balance, and chains, against lists that are sorted.
func TestTreesAreWalkedInOrder(t *testing.T) {
	l := Links{Parent: 0, Left: 8, Right: 16}
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		m := &image{}
		head := m.alloc(32)
		byKey := map[uint64]arch.Addr{}
		for range 1 + rnd.IntN(40) {
			key := rnd.Uint64N(1000)
			if byKey[key] != 0 {
				continue
			}
			n := m.alloc(32)
			byKey[key] = n
			m.put(n+24, arch.Addr(key))
			up, side := head, arch.Addr(l.Left)
			for {
				next := arch.Addr(binary.LittleEndian.Uint64(m.bytes[up+side-0x1000:]))
				if next == 0 {
					break
				}
				up, side = next, arch.Addr(l.Left)
				if key > binary.LittleEndian.Uint64(m.bytes[up+24-0x1000:]) {
					side = arch.Addr(l.Right)
				}
			}
			m.put(up+side, n)
			m.put(n, up)
		}
		var sorted []uint64
		for k := range byKey {
			sorted = append(sorted, k)
		}
		slices.Sort(sorted)
		want := min(len(sorted), 8)
		var expected []arch.Addr
		for _, k := range sorted[:want] {
			expected = append(expected, byKey[k])
		}
		got, err := m.reader().Tree(expected[0], l, int64(want))
		if err != nil || !slices.Equal(keys(got), expected) {
			t.Fatalf("seed %d: %v, %v, not %v", seed, keys(got), err, expected)
		}
	}
}

// TestTornContainersAreTold: a cycle, an end before the length, and what lies nowhere.
func TestTornContainersAreTold(t *testing.T) {
	m := &image{}
	a, b := m.alloc(32), m.alloc(32)
	m.put(a, b)
	if got, err := m.reader().Chain(a, 0, 3); !errors.Is(err, ErrTorn) {
		t.Errorf("a chain that ends early: %v, %v", got, err)
	}
	m.put(b, a)
	if got, err := m.reader().Chain(a, 0, 8); !errors.Is(err, ErrTorn) {
		t.Errorf("a chain that is a ring: %v, %v", got, err)
	}
	if _, _, err := m.reader().Open(a, 0, 8); !errors.Is(err, ErrTorn) {
		t.Errorf("an open chain that is a ring: %v", err)
	}
	m.put(b, 0x999999)
	if _, err := m.reader().Chain(a, 0, 4); !errors.Is(err, errFault) {
		t.Errorf("a chain that leads nowhere: %v", err)
	}
	if _, err := m.reader().Brown(a, 6, 8, 2); !errors.Is(err, ErrTorn) {
		t.Errorf("a mask that is none: %v", err)
	}
	if _, err := Ring(a, 9, 8, 4, 1); !errors.Is(err, ErrTorn) {
		t.Errorf("a ring that begins outside: %v", err)
	}
}

// hostile is memory in which all addresses lead somewhere, as data says.
type hostile struct {
	data  []byte
	reads int
}

func (m *hostile) ReadMemory(at arch.Addr, p []byte) error {
	m.reads++
	for i := range p {
		x := (uint64(at) + uint64(i)) * 0x9e3779b97f4a7c15
		p[i] = m.data[x%uint64(len(m.data))]
	}
	if len(p) == 8 && p[0]&1 != 0 { // near addresses, so that links meet again
		copy(p[1:], []byte{0, 0, 0, 0, 0, 0, 0})
	}
	if p[0] == 0xee {
		return errFault
	}
	return nil
}

func (m *hostile) WriteMemory(arch.Addr, []byte) error { return errFault }

// FuzzWalks: whatever memory says, a walk ends after as many reads as its reader has, and finds no more than was wanted.
func FuzzWalks(f *testing.F) {
	f.Add([]byte{1}, uint64(8), uint64(7), int64(8))
	f.Add([]byte("\x00\x80\xff\x01\x03abcdefgh"), uint64(0x1000), uint64(255), int64(8))
	f.Fuzz(func(t *testing.T, data []byte, first, number uint64, want int64) {
		if len(data) == 0 || want < 0 || want > 9 {
			return
		}
		at, size := arch.Addr(first), int64(number%4097)
		slots := Slots{Size: size, Key: int64(number % 97), KeyStep: size, Val: 8, ValueStep: size}
		for i, walk := range []func(r *Reader) ([]Entry, error){
			func(r *Reader) ([]Entry, error) { return r.Chain(at, int64(number%64), want) },
			func(r *Reader) ([]Entry, error) {
				all, _, err := r.Open(at, int64(number%64), want)
				return all, err
			},
			func(r *Reader) ([]Entry, error) { return r.Tree(at, Links{0, 8, 16}, want) },
			func(r *Reader) ([]Entry, error) { return r.Blocks(at, at+arch.Addr(size), at, size*8, size, want) },
			func(r *Reader) ([]Entry, error) { return r.Brown(at, number, size, want) },
			func(r *Reader) ([]Entry, error) { return r.Brown(at, 1<<(number%50)-1, size, want) },
			func(r *Reader) ([]Entry, error) {
				return BTree{Len: 8, Keys: 16, Vals: 64, Edges: 128, Key: size, Val: 8}.In(r, at, number%80, want)
			},
			func(r *Reader) ([]Entry, error) {
				return Swiss{Slots: slots, Data: 16, Mask: 24}.In(r, at, int64(number), want)
			},
			func(r *Reader) ([]Entry, error) {
				return Buckets{Slots: slots, Overflow: 8}.In(r, at, at+8, uint8(number), number%2 == 0, want)
			},
			func(*Reader) ([]Entry, error) { return Ring(at, int64(number), int64(first), size, want) },
		} {
			m := &hostile{data: data}
			all, err := walk(&Reader{Mem: m, Left: Most})
			if m.reads > Most || int64(len(all)) > max(want, 1) || err == nil && i != 1 && m.reads < Most && int64(len(all)) != want {
				t.Errorf("walk %d: %d of %d elements, %d reads, %v", i, len(all), want, m.reads, err)
			}
		}
	})
}
