package program

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func newRing(t *testing.T, size int) (Map, []uint64, *RingReader) {
	t.Helper()
	m := Map{Kind: Ring, Size: size}
	mem := make([]uint64, m.Len()/8)
	r, err := NewRingReader(m, mem)
	if err != nil {
		t.Fatal(err)
	}
	return m, mem, r
}

// put writes a record of n bytes that all are b.
func put(m Map, mem []uint64, id uint32, n int, b byte) bool {
	r, ok := reserve(mem, m.Size, RecordLen(n), id)
	if ok {
		p := make([]byte, n)
		for i := range p {
			p[i] = b
		}
		r.commit(p)
	}
	return ok
}

func TestRingKeepsOrderAndWraps(t *testing.T) {
	m, mem, r := newRing(t, MinRingSize)
	var want, got byte
	for round := range 500 {
		for i := range 5 {
			if !put(m, mem, uint32(want), 8*(1+(round*7+i*13)%60), want) {
				t.Fatalf("round %d: full", round)
			}
			want++
		}
		n, err := r.Read(func(rec Record) {
			if byte(rec.Program) != got {
				t.Fatalf("record of %d, want %d", rec.Program, got)
			}
			for _, b := range rec.Payload {
				if b != got {
					t.Fatalf("record %d holds %d", got, b)
				}
			}
			got++
		})
		if n != 5 || err != nil {
			t.Fatalf("round %d: %d records, %v", round, n, err)
		}
	}
	if r.Unread() != 0 {
		t.Errorf("%d bytes unread", r.Unread())
	}
	for i, w := range mem[RingData/8:] {
		if w != 0 {
			t.Fatalf("word %d is not zero after reading", i)
		}
	}
}

func TestRingIsFullExactlyWhenItIs(t *testing.T) {
	m, mem, r := newRing(t, MinRingSize)
	n := 0
	for put(m, mem, 1, 56, 1) {
		n++
	}
	if n != MinRingSize/64 {
		t.Errorf("%d records of 64 bytes in %d", n, MinRingSize)
	}
	read := 0
	if _, err := r.Read(func(Record) { read++ }); err != nil || read != n {
		t.Errorf("%d of %d read, %v", read, n, err)
	}
	if !put(m, mem, 1, 56, 1) {
		t.Error("still full after reading")
	}
}

func TestReaderWaitsForRecordsThatAreNotComplete(t *testing.T) {
	m, mem, r := newRing(t, MinRingSize)
	count := func() int {
		n, err := r.Read(func(Record) {})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	put(m, mem, 1, 8, 1)
	late, _ := reserve(mem, m.Size, RecordLen(8), 2)
	put(m, mem, 3, 8, 3)
	if n := count(); n != 1 || r.Unread() != 2*RecordLen(8) {
		t.Fatalf("%d records, %d bytes unread", n, r.Unread())
	}
	late.commit(make([]byte, 8))
	if n := count(); n != 2 {
		t.Fatalf("%d records after the commit", n)
	}
}

func TestAbandonedRecords(t *testing.T) {
	m, mem, r := newRing(t, MinRingSize)
	type loss struct {
		id uint32
		ok bool
	}
	abandon := func() (ids []uint32, lost []loss) {
		if _, err := r.Abandon(func(rec Record) { ids = append(ids, rec.Program) },
			func(id uint32, ok bool) { lost = append(lost, loss{id, ok}) }); err != nil {
			t.Fatal(err)
		}
		return ids, lost
	}
	put(m, mem, 1, 8, 1)
	reserve(mem, m.Size, RecordLen(24), 2)
	put(m, mem, 3, 8, 3)
	if ids, lost := abandon(); len(ids) != 2 || ids[1] != 3 || len(lost) != 1 || lost[0] != (loss{2, true}) {
		t.Errorf("records %v, lost %v", ids, lost)
	}
	// A writer that got no further than its compare-and-swap.
	put(m, mem, 4, 8, 4)
	atomic.AddUint64(&mem[RingHead/8], 32)
	put(m, mem, 5, 8, 5)
	if ids, lost := abandon(); len(ids) != 1 || ids[0] != 4 || len(lost) != 1 || lost[0] != (loss{}) {
		t.Errorf("records %v, lost %v", ids, lost)
	}
	put(m, mem, 6, 8, 6)
	if ids, _ := abandon(); len(ids) != 1 || ids[0] != 6 {
		t.Errorf("after that: records %v", ids)
	}
}

func TestReaderSurvivesADamagedRing(t *testing.T) {
	for name, damage := range map[string]func(mem []uint64){
		"length 0":         func(mem []uint64) { mem[RingData/8] = StateDone },
		"beyond the head":  func(mem []uint64) { mem[RingData/8] = 64 | StateDone },
		"beyond the end":   func(mem []uint64) { mem[RingData/8] = 2*MinRingSize | StateDone },
		"a strange state":  func(mem []uint64) { mem[RingData/8] = 16 | 7 },
		"a pad in between": func(mem []uint64) { mem[RingData/8] = 16 | StateDone | StatePad },
		"a head behind":    func(mem []uint64) { mem[RingHead/8] = 1 << 60 },
		"an odd head":      func(mem []uint64) { mem[RingHead/8]++ },
	} {
		m, mem, r := newRing(t, MinRingSize)
		put(m, mem, 1, 8, 1)
		damage(mem)
		if _, err := r.Read(func(Record) {}); !errors.Is(err, ErrRing) {
			t.Errorf("%s: error %v", name, err)
		}
		r.Reset()
		put(m, mem, 1, 8, 1)
		if n, err := r.Read(func(Record) {}); n != 1 || err != nil {
			t.Errorf("%s: after Reset %d records, %v", name, n, err)
		}
	}
}

// Records of all writers come whole, those of one writer in order, and none is lost
// without being counted.
func TestManyWritersAndAReader(t *testing.T) {
	m, mem, r := newRing(t, MinRingSize)
	const writers, each = 8, 5000
	var lost [writers]int
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				p := binary.LittleEndian.AppendUint64(nil, uint64(i))
				p = append(p, make([]byte, 8*(i%9))...)
				if r, ok := reserve(mem, m.Size, RecordLen(len(p)), uint32(w)); ok {
					r.commit(p)
				} else {
					lost[w]++
					runtime.Gosched()
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	var got [writers]int
	last := [writers]int{}
	read := func() {
		if _, err := r.Read(func(rec Record) {
			i := int(uintOf(rec.Payload)) + 1
			if i <= last[rec.Program] || len(rec.Payload) != 8+8*((i-1)%9) {
				t.Fatalf("writer %d: record %d of %d bytes after %d", rec.Program, i, len(rec.Payload), last[rec.Program])
			}
			last[rec.Program] = i
			got[rec.Program]++
		}); err != nil {
			t.Fatal(err)
		}
	}
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		read()
	}
	for w := range writers {
		if got[w]+lost[w] != each {
			t.Errorf("writer %d: %d read and %d lost of %d", w, got[w], lost[w], each)
		}
	}
}

// TestAReadThatEndsEarlySaysSo: in front of a record that is not complete, and behind so many as it was to read.
func TestAReadThatEndsEarlySaysSo(t *testing.T) {
	m, mem, r := newRing(t, MinRingSize)
	for range 3 {
		put(m, mem, 1, 8, 1)
	}
	for _, want := range []bool{false, true} {
		if n, err := r.ReadSome(2, func(Record) {}); err != nil || r.Whole() != want {
			t.Errorf("%d records, %v; read to the end: %t, want %t", n, err, r.Whole(), want)
		}
	}
	at := mem[RingHead/8]
	put(m, mem, 1, 8, 1)
	mem[(RingData+at)/8] ^= StateDone ^ StateBusy
	if n, err := r.Read(func(Record) {}); n != 0 || err != nil || r.Whole() {
		t.Errorf("one that is not complete: %d records, %v; read to the end: %t", n, err, r.Whole())
	}
	mem[(RingData+at)/8] ^= StateDone ^ StateBusy
	if n, err := r.Read(func(Record) {}); n != 1 || err != nil || !r.Whole() {
		t.Errorf("complete: %d records, %v; read to the end: %t", n, err, r.Whole())
	}
}
