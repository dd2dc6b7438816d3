package kprobes

import (
	"encoding/binary"
	"math"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/records"
	"github.com/gokprobe/gokprobe/program"
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

	damaged bool // and that was said
}

// recorder is what a domain knows of records.
type recorder struct {
	d          *domain
	recordings map[uint32]*recording // by Program.ID; those of retired detours included
	rings      []*ring
	writers    records.Writers
	states     map[*SharedState]*programState
}

// ringNear is a ring that code near at reaches.
func (rc *recorder) ringNear(at arch.Addr) (*ring, error) {
	const near = 1 << 30 // half of what a displacement spans: the detour may lie on the other side
	for _, r := range rc.rings {
		if serves(arch.Range{Start: r.at, End: r.at + arch.Addr(8*len(r.words))}, at, near) {
			return r, nil
		}
	}
	m := program.Map{Kind: program.Ring, Size: ringSize}
	where, cells, err := rc.d.region.Cells(at, m.Len())
	if err != nil {
		return nil, err
	}
	r := &ring{at: where, size: ringSize, words: wordsOf(cells)}
	if r.reader, err = program.NewRingReader(m, r.words); err != nil {
		return nil, err
	}
	rc.rings = append(rc.rings, r)
	rc.d.session.records.startDraining()
	return r, nil
}

// How often the tracer looks for records: it waits longer each time that it finds none.
const (
	shortestLook = 2 * time.Millisecond
	longestLook  = 32 * time.Millisecond
)

// startDraining begins to look for records, until the session ends.
func (rk *recordKeeper) startDraining() {
	if rk.drains {
		return
	}
	rk.drains = true
	go func() {
		for wait := shortestLook; ; {
			select {
			case <-rk.s.done:
				return
			case <-time.After(wait):
			}
			n := 0
			if rk.s.do(func() error { n = rk.drain(); rk.noteFaults(); return nil }) != nil {
				return
			}
			if wait = min(2*wait, longestLook); n > 0 {
				wait = shortestLook
			}
		}
	}()
}

// noteFaults looks, now and then, whether the process has changed its actions for faults.
func (rk *recordKeeper) noteFaults() {
	if time.Since(rk.faultsNoted) < time.Second {
		return
	}
	rk.faultsNoted = time.Now()
	for d := range rk.s.settled() {
		for _, p := range d.space.Processes() {
			_ = p.NoteFaultActions(false) // without it a handler may be lost, if its signal is blocked
		}
	}
}

// FlushRecords hands on all records that the target has completed by now, which is otherwise done a few
// hundredths of a second later.
func (s *Session) FlushRecords() {
	_ = s.tracer.Do(func() {
		defer s.heirs.within()()
		if s.settled(); !s.closed {
			s.records.drainAll()
		}
	})
}

// written is a record that has been taken from a ring, or that the tracer has made.
type written struct {
	domain  *domain
	rec     *recording // nil if the tracer has made it
	kp      *Kprobe
	time    uint64
	thread  uint64 // what Thread returned
	payload []byte
	by      *HitRecord // whose it is, if the tracer has made it
}

// turn is how many records of a ring are taken at once. Handlers may be slower than the target, and
// the tracer has other work.
const turn = 4096

// mostTaken is the bytes of records that wait for older ones. There are more only if a
// ring is filled faster than it is read for long, or if the target writes false times
// into its records; then the order is given up.
const mostTaken = 32 << 20

// recordKeeper is the records that a session has taken, and that are not handed on yet.
type recordKeeper struct {
	s        *Session
	drains   bool                   // rings are looked into
	taken    records.Queue[written] // that are not handed on yet
	draining bool
	scratch  []uint64

	lastRecording uint32
	clockBegan    time.Time
	clockTicks    uint64
	lastRecord    time.Time // of the records that were handed on
	handed        time.Time // all records up to then were handed on
	faultsNoted   time.Time
}

// drain hands on records that are there, and returns how many. It does nothing in a
// RecordHandler.
//
// Another ring may get records while one is read. So records that are newer than this
// reading are kept for the next one, which finds all older ones.
func (rk *recordKeeper) drain() int {
	began, now := time.Now(), host.Ticks()
	until, whole := rk.takeSome(turn)
	if until == records.AllTimes || records.Later(until, now) || rk.taken.Size() > mostTaken {
		until = now
	}
	defer rk.noteHanded(began, whole)
	return rk.handOn(until)
}

// drainAll is drain of all that is there.
func (rk *recordKeeper) drainAll() {
	began := time.Now()
	_, whole := rk.takeSome(math.MaxInt)
	defer rk.noteHanded(began, whole)
	rk.handOn(records.AllTimes)
}

// noteHanded is called behind a drain that began at began. In a ring that was not read to its end there may be older records, behind one that is not complete.
func (rk *recordKeeper) noteHanded(began time.Time, whole bool) {
	if whole && !rk.draining {
		rk.handed = began
	}
}

// takeSome takes at most so many records from each ring. No more records exist from
// before the time that is returned. whole says that all rings were read to their ends.
func (rk *recordKeeper) takeSome(most int) (until uint64, whole bool) {
	until, whole = records.AllTimes, true
	for d := range rk.s.settled() {
		d.recorder.fetch(func(r *program.RingReader, take func(program.Record) uint64) error {
			last := uint64(0)
			n, err := r.ReadSome(most, func(rec program.Record) { last = max(last, take(rec)) })
			if n == most {
				until = min(until, last)
			}
			whole = whole && n < most && r.Whole()
			return err
		})
	}
	return until, whole
}

// drainLast is drain when no thread is in a program of d's, and none will come. Records
// that are not complete stay so: their threads were killed.
func (rc *recorder) drainLast() {
	rc.fetch(func(r *program.RingReader, take func(program.Record) uint64) error {
		_, err := r.Abandon(func(rec program.Record) { take(rec) }, func(id uint32, ok bool) {
			if rec := rc.recordings[id]; ok && rec != nil {
				rec.lose()
			}
		})
		return err
	})
	if len(rc.rings) > 0 { // else nobody has written anything
		rc.noteAll()
	}
	now := host.Ticks()
	rc.d.session.records.takeSome(math.MaxInt) // of the other domains: records older than d's last ones
	rc.d.session.records.handOn(now)
}

// fetch takes records from the rings.
func (rc *recorder) fetch(read func(*program.RingReader, func(program.Record) uint64) error) {
	for _, r := range rc.rings {
		if err := read(r.reader, rc.take); err != nil {
			if !r.damaged {
				rc.d.session.warn("%v; it is emptied, now and whenever that is so", err)
			}
			r.damaged = true
			r.reader.Reset()
		}
	}
}

// recordHead is the bytes in front of every record: what Time and Thread have returned.
const recordHead = 16

// take keeps a record of a ring, and returns its time. That is the target's word: it lies between the session's beginning and
// now, so that no record waits for a time that has not come.
func (rc *recorder) take(r program.Record) (ticks uint64) {
	rec := rc.recordings[r.Program]
	if rec == nil {
		return 0 // its detour has ended
	}
	if len(r.Payload) < recordHead { // checkProgram has refused such a program: the target itself has written there
		rec.lose()
		return 0
	}
	ticks, thread := binary.LittleEndian.Uint64(r.Payload), binary.LittleEndian.Uint64(r.Payload[8:])
	s := rc.d.session
	ticks = records.Within(ticks, s.records.clockTicks, host.Ticks())
	s.records.keep(written{domain: rc.d, rec: rec, kp: rec.kp, time: ticks, thread: thread, payload: slices.Clone(r.Payload)})
	return ticks
}

// keep keeps a record until it is handed on.
func (rk *recordKeeper) keep(w written) {
	rk.taken.Add(w.time, int(unsafe.Sizeof(w))+len(w.payload), w) // about so many bytes
}

// handOn calls the handlers for the records that were taken, in the order of their times, up to one of
// these.
func (rk *recordKeeper) handOn(until uint64) int {
	if rk.draining || rk.taken.Len() == 0 {
		return 0
	}
	rk.draining = true
	defer func() { rk.draining = false }()
	all := rk.taken.Take(until)
	timeOf := rk.times()
	rk.knowThreads(all, timeOf)
	now := time.Now()
	for _, w := range all {
		at := timeOf(w.time)
		if w.by != nil {
			w.by.Payload, w.by.Time = w.payload, rk.inOrder(at)
			rk.deliver(w.kp, w.by)
			continue
		}
		if w.kp.session == nil { // it was unregistered while this hit was under way
			w.rec.lose()
			continue
		}
		r := &HitRecord{Payload: w.payload, Time: rk.inOrder(at), PID: rk.s.pid, TID: rk.s.pid, Foreign: w.domain.foreign(), domain: w.domain, ended: w.time}
		if by := w.domain.recorder.writers.Whose(w.thread, at); by != nil {
			r.PID, r.TID, r.Comm, r.halts = by.PID, by.TID, by.Comm(now), by.Halts
		}
		rk.deliver(w.kp, r)
	}
	return len(all)
}

// inOrder is at, or the time of the record before if that is later. The clock is set anew for
// each batch, by some nanoseconds: without this a later record could have an earlier time.
func (rk *recordKeeper) inOrder(at time.Time) time.Time {
	if at.After(rk.lastRecord) {
		rk.lastRecord = at
	}
	return rk.lastRecord
}

// knowThreads makes sure that it is known who has recorded all.
func (rk *recordKeeper) knowThreads(all []written, timeOf func(ticks uint64) time.Time) {
	unknown := map[*domain]bool{}
	for _, w := range all {
		d := w.domain
		if w.by != nil {
			continue
		}
		if _, seen := unknown[d]; !seen {
			unknown[d] = !d.recorder.noteAll()
		}
		unknown[d] = unknown[d] || d.recorder.writers.Whose(w.thread, timeOf(w.time)) == nil
	}
	for d, look := range unknown {
		if look {
			d.recorder.lookAtThreads()
		}
	}
}

// lose counts a record that was never finished.
func (rec *recording) lose() {
	rec.kp.torn.Add(1)
	for _, i := range rec.checked.Code {
		c := i.Call
		switch {
		case c == nil || c.Func != program.RingReserve:
		case rec.maps == nil: // its memory is given back
			atomic.AddUint64(&rec.values[c.Lost][0], 1)
		default:
			atomic.AddUint64(&rec.maps[c.Lost].words[0], 1)
		}
	}
}

// lastRecords silences those of kps that record, and hands on their records.
func (rk *recordKeeper) lastRecords(kps []*Kprobe) {
	kps = slices.DeleteFunc(slices.Clone(kps), func(kp *Kprobe) bool { return kp.session != rk.s || kp.Program == nil })
	if len(kps) == 0 {
		return
	}
	if err := rk.s.registry.changeDisabled(kps, true); err != nil {
		rk.s.warn("silencing probes: %v", err)
	}
	rk.drainAll()
}

// moment is one on both clocks. The tracer may lose its processor between looking at the one
// and at the other, so it looks several times.
func moment() (now time.Time, ticks uint64) {
	least := ^uint64(0)
	for range 5 {
		before := host.Ticks()
		at := time.Now()
		if took := host.Ticks() - before; took < least {
			least, now, ticks = took, at, before+took/2
		}
	}
	return now, ticks
}

// Elapsed is the time that so many ticks of the program helper Time take. Safe for concurrent use.
func (s *Session) Elapsed(ticks uint64) time.Duration {
	c, _ := s.records.clock()
	return c.Duration(ticks)
}

// clock shows the time that tsc's results belong to. It is set by the time of day whenever
// it is asked for, at now, and goes as fast as it has gone since the session began.
func (rk *recordKeeper) clock() (c program.Clock, now time.Time) {
	now, ticks := moment()
	elapsed := now.Sub(rk.clockBegan) // by the monotonic clock
	c, ok := program.ClockBetween(rk.clockTicks, now.UnixNano()-int64(elapsed), ticks, now.UnixNano())
	if !ok {
		c = program.Clock{TSC: ticks, Nanos: now.UnixNano()}
	}
	return c, now
}

// times tells the time that so many ticks belong to, on both clocks of time.Time. All are told from one moment: the two clocks of a time.Now are read one
// after the other, and who loses its processor in between has a record written too late on the one by as much, as if after its thread's end.
func (rk *recordKeeper) times() func(ticks uint64) time.Time {
	clock, now := rk.clock()
	return func(ticks uint64) time.Time { return now.Add(time.Duration(clock.UnixNano(ticks) - now.UnixNano())) }
}
