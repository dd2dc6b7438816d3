package kprobes

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/program"
	"github.com/gokprobe/gokprobe/trampoline"
)

// Records that programs in the target write. The tracer looks for them now and then: nothing in the
// target can tell it that there are some.

// ringSize is the bytes of a ring: about 100,000 records of two arguments.
const ringSize = 4 << 20

// ring is shared by the detours of a neighbourhood.
type ring struct {
	at     arch.Addr
	size   int
	words  []uint64
	reader *program.RingReader
}

// recorder is what a domain knows of records.
type recorder struct {
	recordings map[uint32]*recording // by Program.ID; those of retired detours included
	rings      []*ring
	taken      []written // not handed on yet
	draining   bool
	tids       map[uint64]*identity // by what the helper Thread returns
	noted      map[int]uint64       // by thread ID: what it returns in those that have been looked at
}

func (r *recorder) init() {
	r.recordings, r.tids, r.noted = map[uint32]*recording{}, map[uint64]*identity{}, map[int]uint64{}
}

// cells is Region.Cells, mapping memory in the target if need be.
func (d *domain) cells(near arch.Addr, n int) (arch.Addr, []byte, error) {
	for range maxGrowths {
		at, cells, err := d.region.Cells(near, n)
		var need *trampoline.NeedArena
		if !errors.As(err, &need) {
			return at, cells, err
		}
		if err := d.growShared(need); err != nil {
			return 0, nil, err
		}
	}
	return 0, nil, trampoline.ErrTooManyArenas
}

// ringNear is a ring that code near at reaches.
func (d *domain) ringNear(at arch.Addr) (*ring, error) {
	const near = 1 << 30 // half of what a displacement spans: the detour may lie on the other side
	for _, r := range d.rings {
		if at.Add(-near) < r.at && r.at.Add(int64(8*len(r.words))) < at.Add(near) {
			return r, nil
		}
	}
	m := program.Map{Kind: program.Ring, Size: ringSize}
	where, cells, err := d.cells(at, m.Len())
	if err != nil {
		return nil, err
	}
	r := &ring{at: where, size: ringSize, words: wordsOf(cells)}
	if r.reader, err = program.NewRingReader(m, r.words); err != nil {
		return nil, err
	}
	d.rings = append(d.rings, r)
	d.session.startDraining()
	return r, nil
}

// How often the tracer looks for records: it waits longer each time that it finds none.
const (
	shortestLook = 2 * time.Millisecond
	longestLook  = 32 * time.Millisecond
)

// startDraining begins to look for records, until the session ends.
func (s *Session) startDraining() {
	if s.drains {
		return
	}
	s.drains, s.clockBegan, s.clockTicks = true, time.Now(), tsc()
	go func() {
		for wait := shortestLook; ; {
			select {
			case <-s.done:
				return
			case <-time.After(wait):
			}
			n := 0
			if s.do(func() error { n = s.drainAll(); return nil }) != nil {
				return
			}
			if wait = min(2*wait, longestLook); n > 0 {
				wait = shortestLook
			}
		}
	}()
}

func (s *Session) drainAll() (n int) {
	for d := range s.domains {
		n += d.drain()
	}
	return n
}

// written is a record that has been taken from a ring.
type written struct {
	rec     *recording
	time    uint64
	thread  uint64 // what Thread returned
	by      *identity
	payload []byte
}

// drain hands on the records that are there, and returns how many. It does nothing in a
// RecordHandler.
func (d *domain) drain() int {
	d.fetch(complete)
	return d.handOn()
}

// complete is what fetch takes while programs run.
func complete(r *program.RingReader, f func(program.Record)) error {
	_, err := r.Read(f)
	return err
}

// drainLast is drain when no thread is in a program, nor will be. Records that are not complete stay
// so: their threads were killed.
func (d *domain) drainLast() {
	d.fetch(func(r *program.RingReader, f func(program.Record)) error {
		_, err := r.Abandon(f, func(id uint32, ok bool) {
			if rec := d.recordings[id]; ok && rec != nil {
				rec.lose()
			}
		})
		return err
	})
	d.handOn()
}

// fetch takes records from the rings.
func (d *domain) fetch(read func(*program.RingReader, func(program.Record)) error) {
	for _, r := range d.rings {
		if err := read(r.reader, d.take); err != nil {
			d.session.warn("%v; it is emptied", err)
			r.reader.Reset()
		}
	}
}

// recordHead is the bytes in front of every record: what Time and Thread have returned.
const recordHead = 16

// take keeps a record of a ring.
func (d *domain) take(r program.Record) {
	rec := d.recordings[r.Program]
	if rec == nil || len(r.Payload) < recordHead {
		return
	}
	w := written{rec: rec, time: binary.LittleEndian.Uint64(r.Payload), thread: binary.LittleEndian.Uint64(r.Payload[8:])}
	w.by, w.payload = d.tids[w.thread], slices.Clone(r.Payload)
	d.taken = append(d.taken, w)
}

// handOn calls the handlers for the records that were taken.
func (d *domain) handOn() int {
	if d.draining || len(d.taken) == 0 {
		return 0
	}
	d.draining = true
	defer func() { d.draining = false }()
	if slices.ContainsFunc(d.taken, func(w written) bool { return w.by == nil }) {
		d.lookAtThreads()
	}
	all := d.taken
	d.taken = nil
	if len(d.rings) > 1 {
		slices.SortStableFunc(all, func(a, b written) int { return int(int64(a.time - b.time)) })
	}
	clock := d.session.clock()
	for _, w := range all {
		if w.by == nil {
			w.by = d.tids[w.thread]
		}
		d.handOver(w, time.Unix(0, clock.UnixNano(w.time)))
	}
	return len(all)
}

func (d *domain) handOver(w written, at time.Time) {
	s, kp := d.session, w.rec.kp
	if kp.session == nil { // it was unregistered while this hit was under way
		w.rec.lose()
		return
	}
	r := &HitRecord{Payload: w.payload, Time: at, PID: s.pid, TID: s.pid}
	if w.by != nil {
		r.PID, r.TID, r.Comm = w.by.pid, w.by.tid, w.by.comm(at)
	}
	s.deliver(kp, r)
}

// lose counts a record that was never finished.
func (rec *recording) lose() {
	for _, i := range rec.checked.Code {
		if c := i.Call; c != nil && c.Func == program.RingReserve {
			atomic.AddUint64(&rec.maps[c.Lost].words[0], 1)
		}
	}
}

// lastRecords silences those of kps that record, and hands on what they have recorded.
func (s *Session) lastRecords(kps []*Kprobe) {
	kps = slices.DeleteFunc(slices.Clone(kps), func(kp *Kprobe) bool { return kp.session != s || kp.Program == nil })
	if len(kps) == 0 {
		return
	}
	if err := s.changeDisabled(kps, true); err != nil {
		s.warn("silencing probes: %v", err)
	}
	s.drainAll()
}

// clock shows the time that tsc's results belong to. It is set by the time of day whenever
// it is asked for, and goes as fast as it has gone since there are rings.
func (s *Session) clock() program.Clock {
	now, ticks := time.Now(), tsc()
	elapsed := now.Sub(s.clockBegan) // by the monotonic clock
	c, ok := program.ClockBetween(s.clockTicks, now.UnixNano()-int64(elapsed), ticks, now.UnixNano())
	if !ok {
		c = program.Clock{TSC: ticks, Nanos: now.UnixNano()}
	}
	return c
}
