package trampoline

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"reflect"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// logStore remembers every byte that is stored, in order.
type logStore struct {
	Store
	log []func([]byte)
}

func (s *logStore) Write(off uint64, p []byte) error {
	for i, c := range bytes.Clone(p) {
		s.log = append(s.log, func(b []byte) { b[off+uint64(i)] = c })
	}
	return s.Store.Write(off, p)
}

type fixture struct {
	*target
	r   *Region
	j   *Journal
	log *logStore
	e   Extent
}

// newFixture returns a region with one arena whose data part's writes are logged.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{}
	f.target, f.r = newRegion(t, fake)
	e, err := f.r.place(&needArena{near: text, reach: fake.Reach(), slots: 1}, f.used, limits)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, e.Range().Len())
	f.maps[e.Range()] = b
	f.used = append(f.used, Mapping{Range: e.Range()})
	f.log, f.e, f.j = &logStore{Store: Bytes(b[:e.Data.Len()])}, e, f.r.Journal()
	if err := f.r.adopt(e, f.log, Bytes(b[e.Data.Len():])); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) records() []Record {
	f.t.Helper()
	h, err := Inspect(f, f.base(f.r))
	if err != nil {
		f.t.Fatal(err)
	}
	rs, err := h.Records(f, NewAllowance(mostRecords))
	if err != nil {
		f.t.Fatal(err)
	}
	return rs
}

func record(i int, n int) Record {
	r := Record{arch.Addr(0x1000 * (i + 1)), make([]byte, n), make([]byte, n)}
	rnd := rand.New(rand.NewSource(int64(i)))
	rnd.Read(r.Original)
	rnd.Read(r.Replacement)
	return r
}

func (f *fixture) record(r Record) int {
	f.t.Helper()
	id, err := f.j.Record(r.At, r.Original, r.Replacement)
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

func TestAFinderReadsWhatWasRecordedNewestFirst(t *testing.T) {
	f := newFixture(t)
	var ids []int
	var want []Record
	for i := range 100 {
		r := record(i, 1+i%20)
		ids = append(ids, f.record(r))
		want = append([]Record{r}, want...)
	}
	if got := f.records(); !reflect.DeepEqual(got, want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i, id := range ids {
		if err := f.j.Erase(id); err != nil {
			t.Fatal(err)
		}
		if err := f.j.Erase(id); !errors.Is(err, ErrRecord) {
			t.Fatalf("erasing twice: %v", err)
		}
		want = want[:len(want)-1]
		if got := f.records(); len(got) != len(want) {
			t.Fatalf("%d records after erasing %d", len(got), i+1)
		}
	}
	again := record(7, 3)
	f.record(again)
	if got := f.records(); !reflect.DeepEqual(got, []Record{again}) {
		t.Errorf("after reuse: %v", got)
	}
}

func TestALongPatchTakesSeveralRecords(t *testing.T) {
	for _, n := range []int{20, 21, 40, 41, 1000} {
		f := newFixture(t)
		r := record(1, n)
		id := f.record(r)
		original, replacement := make([]byte, n), make([]byte, n)
		got := f.records()
		for _, p := range got {
			copy(original[p.At-r.At:], p.Original)
			copy(replacement[p.At-r.At:], p.Replacement)
		}
		if len(got) != (n+19)/20 || !bytes.Equal(original, r.Original) || !bytes.Equal(replacement, r.Replacement) {
			t.Errorf("%d bytes: %d records", n, len(got))
		}
		if err := f.j.Erase(id); err != nil || len(f.records()) != 0 {
			t.Errorf("%d bytes: %v, %d left", n, err, len(f.records()))
		}
	}
	f := newFixture(t)
	for _, r := range []Record{{0x1000, nil, nil}, {0x1000, []byte{1}, []byte{1, 2}}} {
		if _, err := f.j.Record(r.At, r.Original, r.Replacement); !errors.Is(err, ErrRecord) {
			t.Error(err)
		}
	}
}

func TestAFullJournalGoesOnInAnotherArena(t *testing.T) {
	f := newFixture(t)
	var ids []int
	n := int(f.e.JournalLen / recordSize)
	for i := range n - 1 {
		ids = append(ids, f.record(record(i, 5)))
	}
	long := record(n, 25)
	f.refuses = errors.New("refused")
	if _, err := f.j.Record(long.At, long.Original, long.Replacement); !errors.Is(err, f.refuses) || len(f.records()) != n-1 {
		t.Fatalf("%v, %d records", err, len(f.records()))
	}
	f.refuses = nil
	ids = append(ids, f.record(long))
	for i := range n {
		ids = append(ids, f.record(record(i, 5)))
	}
	if got := len(f.records()); got != 2*n+1 {
		t.Errorf("%d records, want %d", got, 2*n+1)
	}
	want := f.records()
	want = append(want[:n-3], want[n-2:]...) // the third that went to the second arena
	k := len(ids) - n + 2
	if err := f.j.Erase(ids[k]); err != nil || !reflect.DeepEqual(f.records(), want) {
		t.Errorf("erasing record %d of the second arena erased another one: %v", ids[k], err)
	}
	for i, id := range ids {
		if err := f.j.Erase(id); (err != nil) != (i == k) {
			t.Fatal(err)
		}
	}
	if got := len(f.records()); got != 0 {
		t.Errorf("%d records left", got)
	}
}

// TestAReaderAtAnyMomentSeesWholeRecordsOrNone kills the tracer after every
// single byte that it ever stored. What a finder then sees is what was there before
// the operation or after it.
func TestAReaderAtAnyMomentSeesWholeRecordsOrNone(t *testing.T) {
	for seed := range int64(20) {
		f := newFixture(t)
		states := []string{fmt.Sprint([]Record{})} // after each operation
		after := []int{len(f.log.log)}             // stores until then
		rnd := rand.New(rand.NewSource(seed))
		var ids []int
		for i := range 12 {
			if len(ids) > 0 && rnd.Intn(3) == 0 {
				k := rnd.Intn(len(ids))
				if err := f.j.Erase(ids[k]); err != nil {
					t.Fatal(err)
				}
				ids = append(ids[:k], ids[k+1:]...)
			} else {
				ids = append(ids, f.record(record(i, 1+rnd.Intn(pieceLen))))
			}
			states, after = append(states, fmt.Sprint(f.records())), append(after, len(f.log.log))
		}
		replay(t, f, states, after)
	}
}

func replay(t *testing.T, f *fixture, states []string, after []int) {
	t.Helper()
	b := make([]byte, f.e.Data.Len())
	op := 0
	for i, store := range f.log.log {
		if i < after[0] {
			if _, err := ParseHeader(b); err == nil {
				t.Fatalf("a header is seen after %d of %d stores", i, after[0])
			}
		} else {
			for op+1 < len(after) && after[op+1] <= i {
				op++
			}
			got := fmt.Sprint(recordsOf(t, b, f.e))
			if got != states[op] && got != states[op+1] {
				t.Fatalf("after %d stores a reader sees %v, want %v or %v", i, got, states[op], states[op+1])
			}
		}
		store(b)
	}
	if got := fmt.Sprint(recordsOf(t, b, f.e)); got != states[len(states)-1] {
		t.Errorf("at the end: %v", got)
	}
}

func recordsOf(t *testing.T, data []byte, e Extent) []Record {
	t.Helper()
	g := &target{t: t, maps: map[arch.Range][]byte{e.Data: data}}
	h, err := Inspect(g, e.Data.Start)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := h.Records(g, NewAllowance(mostRecords))
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

// failingStore fails the n-th write from now on after storing half of it.
type failingStore struct {
	Store
	n int
}

func (s *failingStore) Write(off uint64, p []byte) error {
	s.n--
	if s.n != 0 {
		return s.Store.Write(off, p)
	}
	return errors.Join(s.Store.Write(off, p[:len(p)/2]), errors.New("injected"))
}

func TestAFailedWriteLeavesNoRecord(t *testing.T) {
	const pieces = 3 // of two writes each
	for n := 1; n <= 2*pieces; n++ {
		f := newFixture(t)
		kept, r := record(1, 4), record(2, 50)
		f.record(kept)
		f.j.parts[0].store = &failingStore{f.j.parts[0].store, n}
		if _, err := f.j.Record(r.At, r.Original, r.Replacement); err == nil {
			t.Errorf("failure at write %d is not reported", n)
		}
		if got := f.records(); !reflect.DeepEqual(got, []Record{kept}) {
			t.Errorf("failure at write %d leaves %v", n, got)
		}
		f.record(r)
		if got := len(f.records()); got != 1+pieces {
			t.Errorf("failure at write %d: %d records after the next", n, got)
		}
	}
}

func TestAFailedErasureCanBeRepeated(t *testing.T) {
	for n := 1; n <= 3; n++ {
		f := newFixture(t)
		id := f.record(record(2, 50))
		f.j.parts[0].store = &failingStore{f.j.parts[0].store, n}
		if err := f.j.Erase(id); err == nil || errors.Is(err, ErrRecord) {
			t.Fatal(err)
		}
		if err := f.j.Erase(id); err != nil {
			t.Error(err)
		}
		if got := f.records(); len(got) != 0 {
			t.Errorf("failure at write %d leaves %v", n, got)
		}
	}
}

func TestARecordWithAnImpossibleLengthIsNoRecord(t *testing.T) {
	for _, n := range []uint16{0, pieceLen + 1, 0xffff} {
		b := encodeRecord(record(1, 5), 1)
		le.PutUint16(b[offLength:], n)
		le.PutUint32(b[offState:], checksum(b))
		if r, ok, blank := parseRecord(b); ok || blank {
			t.Errorf("length %d: %v", n, r)
		}
	}
}

// lengthMemory adds up what is read.
type lengthMemory struct {
	arch.Memory
	n int
}

func (m *lengthMemory) ReadMemory(at arch.Addr, p []byte) error {
	m.n += len(p)
	return m.Memory.ReadMemory(at, p)
}

func TestAFinderDoesNotReadPagesThatWereNeverWritten(t *testing.T) {
	f := newFixture(t)
	for i := range 10 {
		f.record(record(i, 5))
	}
	h, err := Inspect(f, f.base(f.r))
	if err != nil {
		t.Fatal(err)
	}
	m := &lengthMemory{Memory: f}
	if rs, err := h.Records(m, NewAllowance(mostRecords)); err != nil || len(rs) != 10 || m.n > PageSize {
		t.Errorf("%d records, %d bytes read, %v", len(rs), m.n, err)
	}
}
