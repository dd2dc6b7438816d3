package trampoline

import (
	"errors"
	"math"
	"math/rand"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// countingMemory counts what is asked of it.
type countingMemory struct {
	arch.Memory
	reads int
}

func (m *countingMemory) ReadMemory(at arch.Addr, p []byte) error {
	m.reads++
	return m.Memory.ReadMemory(at, p)
}

// TestResumeTablesHaveNoLongRuns: a finder gives up after mostProbes entries, of which our own tables never have a tenth in a row.
func TestResumeTablesHaveNoLongRuns(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	spaced := func(step int) func(i int) arch.Addr {
		return func(i int) arch.Addr { return text.Start + arch.Addr(i*step) }
	}
	at := text.Start
	kinds := map[string]func(i int) arch.Addr{
		"every byte": spaced(1), "functions": spaced(16), "slots": spaced(64), "pages": spaced(PageSize), "detours": spaced(192),
		"instructions": func(int) arch.Addr { at += arch.Addr(1 + rnd.Intn(8)); return at },
		"anywhere":     func(int) arch.Addr { return text.Start + arch.Addr(rnd.Int63n(1<<31)) },
		"sites and slots": func(i int) arch.Addr {
			return text.Start + arch.Addr(i/2*5) + arch.Addr(i%2)<<30
		},
	}
	for name, next := range kinds {
		for _, n := range []int{firstEntries, 1 << 18} {
			r := resumes{store: Bytes(make([]byte, offEntries+n*entrySize)), to: map[arch.Addr]arch.Addr{}}
			if err := r.lay(n); err != nil {
				t.Fatal(err)
			}
			for i := 0; 2*r.used < n; i++ {
				if err := r.set(next(i), 1); err != nil {
					t.Fatal(err)
				}
			}
			longest, run := 0, 0
			for _, k := range append(r.keys, r.keys...) {
				if run++; k == 0 {
					run = 0
				}
				longest = max(longest, run)
			}
			if longest > mostProbes/10 {
				t.Errorf("%s, %d entries: %d in a row", name, n, longest)
			}
		}
	}
}

// TestAForgedResumeTableIsNotFollowedForEver: it is full, so a search for what is not there ends nowhere.
func TestAForgedResumeTableIsNotFollowedForEver(t *testing.T) {
	const at, n = 0x10000, 1 << 16
	b := make([]byte, offEntries+n*entrySize)
	le.PutUint64(b[offShift:], 48)
	le.PutUint64(b[offMask:], n-1)
	for i := range n {
		le.PutUint64(b[offEntries+i*entrySize:], 1)
	}
	m := &countingMemory{Memory: &target{t: t, maps: map[arch.Range][]byte{stretch(at, uint64(len(b))): b}}}
	h := &Header{Resume: at}
	for ip := range arch.Addr(200) {
		m.reads = 0
		if to, ok, err := h.ResumeAt(m, 2+ip*0x1234567); ok || !errors.Is(err, ErrTooMuch) {
			t.Errorf("found %s, %v", to, err)
		}
		if m.reads > 2+mostProbes/probesRead+1 {
			t.Errorf("%d reads", m.reads)
		}
	}
}

// TestForgedArenasShareOneAllowance: all arenas are the same memory, full of records.
func TestForgedArenasShareOneAllowance(t *testing.T) {
	const at, size = 0x100000, 64 * PageSize
	b := make([]byte, size)
	for off := 0; off < size/2; off += recordSize {
		copy(b[off:], encodeRecord(record(off, 5), uint64(off+1)))
	}
	for off := size / 2; off < size; off += detourRecordSize {
		d, err := encodeDetour(Landing{Entry: 1}, detourAt(Landing{Detour: arch.Addr(at + off), Size: 100}, 0x2000, 3))
		if err != nil {
			t.Fatal(err)
		}
		copy(b[off:], d)
	}
	m := &countingMemory{Memory: &target{t: t, maps: map[arch.Range][]byte{stretch(at, size): b}}}
	h := &Header{}
	for range MaxArenas {
		h.Arenas = append(h.Arenas, Extent{Data: stretch(at, size), JournalLen: size / 2, Records: size / 2, RecordsLen: size / 2})
	}
	const most = 5000
	a := NewAllowance(most)
	var records, detours, refused int
	for range 16 {
		rs, err := h.Records(m, a)
		x, err2 := h.Detours(m, a)
		if errors.Is(err, ErrTooMuch) && errors.Is(err2, ErrTooMuch) {
			refused++
		}
		records, detours = records+len(rs), detours+x.Len()
	}
	if records > most || records < most-PageSize/recordSize || detours > most || detours < most-PageSize/detourRecordSize || refused != 16 {
		t.Errorf("%d records, %d detours, refused %d times", records, detours, refused)
	}
	if m.reads > most/(PageSize/recordSize)+most/(PageSize/detourRecordSize)+4 || a.Used() != most {
		t.Errorf("%d reads, %d are used", m.reads, a.Used())
	}
	if a := NewAllowance(math.MaxInt); a.most != mostRecords || a.Used() != 0 {
		t.Errorf("%+v", a)
	}
}
