package recovery

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/patch"
)

// fakeMemory is mappings of whole pages, and counts what is read. Where it repeats, all addresses show the same.
type fakeMemory struct {
	maps   map[arch.Addr][]byte // by the first address
	repeat []byte               // one page
	reads  int
}

func (m *fakeMemory) ReadMemory(at arch.Addr, p []byte) error {
	m.reads++
	for start, b := range m.maps {
		if at >= start && uint64(at-start)+uint64(len(p)) <= uint64(len(b)) {
			copy(p, b[at-start:])
			return nil
		}
	}
	if m.repeat == nil {
		return &arch.FaultError{Addr: at}
	}
	for i := range p {
		p[i] = m.repeat[(uint64(at)+uint64(i))%uint64(len(m.repeat))]
	}
	return nil
}

func (m *fakeMemory) WriteMemory(at arch.Addr, _ []byte) error {
	return &arch.FaultError{Addr: at, Write: true}
}

// TestTheRecordIndexAnswersAsAllRecordsDo compares it with looking at all of them, in the order of their writing.
func TestTheRecordIndexAnswersAsAllRecordsDo(t *testing.T) {
	const base = 0x1000
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 2000 {
		var records []patch.Entry // the newest first
		for range rnd.IntN(40) {
			e := patch.Entry{At: arch.Addr(base + rnd.IntN(1+round%100)), Original: make([]byte, 1+rnd.IntN(20))}
			for i := range e.Original {
				e.Original[i] = byte(rnd.Uint32())
			}
			records = append(records, e)
		}
		x := indexRecords(records)
		at, n := arch.Addr(base-25+rnd.IntN(150)), 1+rnd.IntN(15)
		want, got := make([]byte, n), make([]byte, n)
		for _, r := range records {
			for i, b := range r.Original {
				if k := int(r.At) + i - int(at); k >= 0 && k < n {
					want[k] = b
				}
			}
		}
		if x.undo(at, got); !bytes.Equal(got, want) {
			t.Fatalf("round %d: % x at %s, want % x", round, got, at, want)
		}
		for _, e := range records {
			others := 0
			for _, r := range records {
				if r.At < e.At+arch.Addr(len(e.Original)) && e.At < r.At+arch.Addr(len(r.Original)) {
					others++
				}
			}
			if x.alone(e) != (others == 1) {
				t.Fatalf("round %d: the record of %s is alone: %v, there are %d", round, e.At, x.alone(e), others)
			}
		}
	}
}

// TestManyRecordsOfOnePlaceAreFewToLookAt: however a target piles them up.
func TestManyRecordsOfOnePlaceAreFewToLookAt(t *testing.T) {
	const most = 20 // bytes of a record
	var records []patch.Entry
	for i := range 100_000 {
		records = append(records, patch.Entry{At: arch.Addr(0x1000 + i%7), Original: make([]byte, 1+i%most)})
	}
	x := indexRecords(records)
	for at := arch.Addr(0xff0); at < 0x1020; at++ {
		if n := len(x.about(at, 15)); n > 7*most {
			t.Errorf("%d records about %s", n, at)
		}
	}
}

// putContext writes what a signal saves on a stack.
func putContext(b []byte, off int, sp, ip arch.Addr, alternate arch.Range) {
	le := binary.LittleEndian
	for i, v := range []uint64{uint64(sp), uint64(ip), 0x202, 0x002b_0000_0000_0033} {
		le.PutUint64(b[off+8*i:], v)
	}
	if off >= beforeContext {
		le.PutUint64(b[off-beforeAlternate:], uint64(alternate.Start))
		le.PutUint64(b[off-beforeAlternate+16:], alternate.Len())
	}
}

// naively finds what stackSearch finds, reading each stack again.
func naively(mem *fakeMemory, sp arch.Addr) (ips []arch.Addr) {
	seen := map[arch.Addr]bool{}
	for todo := []arch.Addr{sp}; len(todo) > 0; todo = todo[1:] {
		sp := todo[0] &^ 7
		if seen[sp] {
			continue
		}
		seen[sp] = true
		for start, b := range mem.maps {
			if sp < start || sp >= start+arch.Addr(len(b)) {
				continue
			}
			stack := b[sp-start:]
			for off := 0; off+contextLen <= len(stack); off += 8 {
				if !savedContext(stack[off:][:contextLen]).is() {
					continue
				}
				f := signalFrame{at: sp + arch.Addr(off)}
				f.sp, f.ip = arch.Addr(binary.LittleEndian.Uint64(stack[off:])), arch.Addr(binary.LittleEndian.Uint64(stack[off+8:]))
				if off >= beforeAlternate {
					f.alternate.Start = arch.Addr(binary.LittleEndian.Uint64(stack[off-beforeAlternate:]))
					f.alternate.End = f.alternate.Start + arch.Addr(binary.LittleEndian.Uint64(stack[off-beforeAlternate+16:]))
				}
				if f.sameStack(sp) {
					todo, ips = append(todo, f.sp), append(ips, f.ip)
				}
			}
		}
	}
	return ips
}

// TestStacksAreSearchedAsOneByOne compares contexts that are found, on stacks and alternate stacks, at the ends of pages and mappings, of threads whose stacks lie in
// one another.
func TestStacksAreSearchedAsOneByOne(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	total := 0
	for round := range 300 {
		mem := &fakeMemory{maps: map[arch.Addr][]byte{}}
		var starts []arch.Addr
		for i := range 4 {
			at := arch.Addr(0x10_0000 + i*0x10_0000)
			mem.maps[at] = make([]byte, (1+rnd.IntN(4))*stackPage)
			starts = append(starts, at)
		}
		somewhere := func() arch.Addr {
			at := starts[rnd.IntN(len(starts))]
			return at + arch.Addr(rnd.IntN(len(mem.maps[at]))&^7)
		}
		for range rnd.IntN(30) {
			at := starts[rnd.IntN(len(starts))]
			b := mem.maps[at]
			off := rnd.IntN(len(b)-contextLen) &^ 7
			if rnd.IntN(3) == 0 { // across two pages
				off = min(off|(stackPage-8), len(b)-contextLen) &^ 7
			}
			alternate := arch.Range{}
			if rnd.IntN(2) == 0 {
				alternate.Start = starts[rnd.IntN(len(starts))]
				alternate.End = alternate.Start + 2*stackPage
			}
			putContext(b, off, somewhere(), arch.Addr(rnd.Uint32()|1), alternate)
		}
		var got, want []arch.Addr
		s := newStackSearch(mem, newEffort(1<<20))
		for range 3 {
			sp := somewhere()
			if !s.stack(sp, func(_ arch.Addr, f *signalFrame) { got = append(got, f.ip) }) {
				t.Fatal("too much work")
			}
			want = append(want, naively(mem, sp)...)
		}
		for _, l := range []*[]arch.Addr{&got, &want} {
			slices.Sort(*l)
			*l = slices.Compact(*l)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: %v, want %v", round, got, want)
		}
		total += len(got)
	}
	if total < 1000 {
		t.Errorf("%d contexts in all", total)
	}
}

// TestTheSearchOfStacksEnds: everywhere is a page full of contexts, of which each tells of another stack.
func TestTheSearchOfStacksEnds(t *testing.T) {
	mem := &fakeMemory{repeat: make([]byte, stackPage)}
	for off := 0; off+contextLen <= stackPage; off += contextLen {
		putContext(mem.repeat[:off+contextLen], off, arch.Addr(rand.Uint64()>>17), 0x1234, arch.Range{})
	}
	const given = 100_000
	work := newEffort(given)
	s := newStackSearch(mem, work)
	visits := 0
	if s.stack(0x7000_0000_0000, func(arch.Addr, *signalFrame) { visits++ }) || !work.over() {
		t.Error("it ended before the work did")
	}
	kept := 0
	for _, l := range s.lists {
		kept += len(l)
	}
	if mem.reads > given || visits > given || kept > given/newContextWork || visits == 0 {
		t.Errorf("%d reads, %d visits, %d contexts kept", mem.reads, visits, kept)
	}
	if s.stack(0x6000_0000_0000, func(arch.Addr, *signalFrame) { t.Error("it goes on") }) {
		t.Error("it goes on")
	}
}

// TestStacksCostAsMuchAsTheyAre: twice the threads, twice the reads; several threads on one stack, no more than one.
func TestStacksCostAsMuchAsTheyAre(t *testing.T) {
	cost := func(threads int, apart arch.Addr) (reads, work int) {
		mem := &fakeMemory{repeat: make([]byte, stackPage)}
		e := newEffort(1 << 40)
		s := newStackSearch(mem, e)
		for i := range threads {
			if !s.stack(0x7000_0000_0000+arch.Addr(i)*apart, func(arch.Addr, *signalFrame) {}) {
				t.Fatal("too much work")
			}
		}
		return mem.reads, e.given - e.left
	}
	r1, w1 := cost(10, 2*stackScan)
	r2, w2 := cost(20, 2*stackScan)
	if r2 != 2*r1 || w2 != 2*w1 || w1 > 10*effortPerThread {
		t.Errorf("10 threads: %d reads, %d units; 20 threads: %d, %d", r1, w1, r2, w2)
	}
	if r, _ := cost(20, 8); r > r1/10+1 {
		t.Errorf("20 threads on one stack: %d reads, one has %d", r, r1/10)
	}
}

func TestTurns(t *testing.T) {
	turns := newTurns(3, time.Hour)
	var now, most atomic.Int32
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			done := turns.take()
			n := now.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			now.Add(-1)
			done()
			done() // twice is as once
		})
	}
	wg.Wait()
	if most.Load() > 3 || len(turns.slots) != 0 {
		t.Errorf("%d at once, %d are taken", most.Load(), len(turns.slots))
	}
	turns = newTurns(1, time.Nanosecond)
	for range 3 { // who never ends keeps nobody
		turns.take()
	}
}

func TestAPurseHasTheLeastForEverybody(t *testing.T) {
	p := NewPurse()
	if work, records := p.draw(1000); work != effortFor(1000) || records < 1<<20 || p.empty() {
		t.Errorf("a full purse gives %d, %d", work, records)
	}
	p.pay(purseEffort+5, purseRecords+5)
	if work, records := p.draw(1000); work != leastEffort || records != leastRecords || !p.empty() {
		t.Errorf("an empty purse gives %d, %d", work, records)
	}
	var none *Purse
	none.pay(1, 1)
	if work, _ := none.draw(1 << 30); work != mostEffort || none.empty() {
		t.Errorf("no purse gives %d", work)
	}
}
