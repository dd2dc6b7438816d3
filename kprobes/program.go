package kprobes

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/halts"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/program"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Programs: what a probe does without a handler, or before it (program_decide.go). Where its site is optimized, the program runs in
// the target, compiled; elsewhere the tracer interprets it. Both write to the same maps.

// HitRecord is a record that a Program has written.
type HitRecord struct {
	// Payload is what the Program's Fields describe. It is valid until the handler returns.
	Payload []byte
	PID     int
	TID     int
	Comm    string
	Time    time.Time
	// Foreign tells that a followed child has recorded the hit which executes another program, where types may be others.
	Foreign bool

	domain *domain

	took  *Took      // of a call, if the tracer has made the record
	halts *halts.Log // of the thread, if the target has
	ended uint64     // ticks
}

// RecordHandler is called on the session's tracer thread, for one record after the other: those of a
// thread in the order of its hits, those of one program nearly so, and all of them before the
// session has ended. The target does not wait for it.
type RecordHandler func(kp *Kprobe, r *HitRecord)

// scratchSize is the bytes of the ring that the tracer's own hits write their records to.
const scratchSize = 1 << 16

// checkProgram prepares kp's Program. The tracer's own hits have maps of one shard.
func (kp *Kprobe) checkProgram() error {
	var values [][]uint64
	if kp.hasProgram(nil, nil, nil); kp.Program == nil {
		return nil
	}
	var state *SharedState
	if kp.Program.Decides && (kp.ret != nil || kp.jprobe != nil) {
		return errDecides
	}
	checked, err := program.Check(kp.Program)
	if err != nil {
		return err
	}
	for _, i := range checked.Code {
		if c := i.Call; c != nil && c.Func == program.RingReserve && c.Size < recordHead {
			return fmt.Errorf("%w: it has %s", ErrShortRecord, escape.Count(c.Size, "byte"))
		}
	}
	own := *kp.Program
	own.Maps = slices.Clone(own.Maps)
	for i := range own.Maps {
		m := &own.Maps[i]
		var cells []uint64
		switch m.Kind {
		case program.Ring:
			m.Size = scratchSize
		case program.State:
			if state = kp.SharedState; state == nil {
				state = &SharedState{}
			}
			if err := state.reserve(m.Cells); err != nil {
				return err
			}
		default:
			m.Shards = 1
			cells = make([]uint64, m.Len()/8)
		}
		values = append(values, cells)
	}
	checked, err = program.Check(&own)
	kp.hasProgram(checked, values, state)
	return err
}

// hasProgram begins to count anew. What programs of former registrations still count, in detours that nobody comes to, is theirs.
func (kp *Kprobe) hasProgram(checked *program.Checked, values [][]uint64, state *SharedState) {
	counting.Lock()
	defer counting.Unlock()
	kp.checked, kp.values, kp.state, kp.recordings = checked, values, state, nil
}

// Values is what counter or histogram i of the Program's Maps holds, cell by cell; nil for a
// ring, for a state (see State) and for a probe that was never registered. Safe for concurrent use; hits that are under way may or may not be in.
func (kp *Kprobe) Values(i int) (sum []uint64) {
	counted(func() { sum = kp.valuesOf(i) })
	return sum
}

func (kp *Kprobe) valuesOf(i int) []uint64 {
	if i >= len(kp.values) || kp.values[i] == nil {
		return nil
	}
	sum, err := kp.checked.Maps[i].Values(kp.values[i])
	if err != nil {
		return nil
	}
	for _, rec := range kp.recordings {
		rec.addTo(sum, i)
	}
	return sum
}

// recording is a Program in a detour.
type recording struct {
	kp      *Kprobe
	id      uint32 // stands in its records
	checked *program.Checked
	values  [][]uint64 // kp's, of the registration that it belongs to
	maps    []mapMemory
}

// mapMemory is where a map lies in the target, and here.
type mapMemory struct {
	at    arch.Addr
	words []uint64
	ring  *ring         // whose memory it is; nil if it is the recording's own
	state *programState // the same
	far   bool          // it may be out of a displacement's reach
}

// own tells whether the memory is the recording's.
func (m mapMemory) own() bool { return m.ring == nil && m.state == nil }

func (m mapMemory) span() arch.Range {
	return arch.Range{Start: m.at, End: m.at + arch.Addr(8*len(m.words))}
}

// addTo adds what map i holds to sum.
func (rec *recording) addTo(sum []uint64, i int) {
	if !rec.maps[i].own() {
		return
	}
	if v, err := rec.checked.Maps[i].Values(rec.maps[i].words); err == nil {
		for cell, n := range v {
			sum[cell] += n
		}
	}
}

// newRecording places kp's Program's maps near at.
func (rc *recorder) newRecording(kp *Kprobe, at arch.Addr) (*recording, error) {
	return rc.newRecordingOf(kp, at, func(p program.Program) program.Program {
		p.Decides = kp.decides()
		return p
	})
}

// newRecordingOf is newRecording of what change makes of the Program.
func (rc *recorder) newRecordingOf(kp *Kprobe, at arch.Addr, change func(program.Program) program.Program) (*recording, error) {
	s := rc.d.session
	s.records.lastRecording++
	p := change(*kp.Program)
	p.ID, p.Maps = s.records.lastRecording, slices.Clone(p.Maps)
	rec := &recording{kp: kp, id: p.ID, values: kp.values}
	for i, m := range p.Maps {
		mem, err := rc.placeMap(kp, m, at)
		if err != nil {
			rc.freeMaps(rec)
			return nil, err
		}
		if mem.ring != nil {
			p.Maps[i].Size = mem.ring.size
		}
		rec.maps = append(rec.maps, mem)
	}
	var err error
	if rec.checked, err = program.Check(&p); err != nil {
		rc.freeMaps(rec)
		return nil, err
	}
	counting.Lock()
	kp.recordings = append(slices.Clone(kp.recordings), rec)
	counting.Unlock()
	rc.recordings[rec.id] = rec
	return rec, nil
}

func (rc *recorder) placeMap(kp *Kprobe, m program.Map, at arch.Addr) (mapMemory, error) {
	if m.Kind == program.State {
		return rc.useState(kp, at)
	}
	if m.Kind == program.Ring {
		r, err := rc.ringNear(at)
		if err != nil {
			return mapMemory{}, err
		}
		return mapMemory{at: r.at, words: r.words, ring: r}, nil
	}
	where, cells, err := rc.d.region.Cells(at, m.Len())
	return mapMemory{at: where, words: wordsOf(cells)}, err
}

// wordsOf is shared memory, which is aligned, as numbers.
func wordsOf(b []byte) []uint64 {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), len(b)/8)
}

func (rc *recorder) freeMaps(rec *recording) {
	for _, m := range rec.maps {
		rc.unuseState(m.state)
		if m.own() {
			if err := rc.d.region.FreeCells(m.at); err != nil {
				rc.d.session.warn("freeing a map: %v", err)
			}
		}
	}
}

// endRecording takes rec's memory back, when no thread can use it any more. Its values
// are kept.
func (rc *recorder) endRecording(rec *recording) {
	if rec == nil {
		return
	}
	rc.d.session.records.drainAll()
	rc.keep(rec)
	rc.freeMaps(rec)
	rec.maps = nil
}

// keep copies the values that rec has counted in the target into its probe, before the
// shared memory goes.
func (rc *recorder) keep(rec *recording) {
	counting.Lock()
	defer counting.Unlock()
	for i, v := range rec.values {
		rec.addTo(v, i) // no hit is handled meanwhile
	}
	rec.kp.recordings = slices.DeleteFunc(slices.Clone(rec.kp.recordings), func(o *recording) bool { return o == rec })
	delete(rc.recordings, rec.id)
}

// spans is the memory that rec's code must reach.
func (rec *recording) spans() (all []arch.Range) {
	if rec != nil {
		for _, m := range rec.maps {
			if !m.far {
				all = append(all, m.span())
			}
		}
	}
	return all
}

// sequence is bodies that run one after the other.
type sequence []arch.Body

// Assemble implements arch.Body. A part out of reach still has a length.
func (s sequence) Assemble(at arch.Addr) (all arch.BodyCode, far error) {
	for _, b := range s {
		code, err := b.Assemble(at + arch.Addr(len(all.Code)))
		if err != nil && (!errors.Is(err, arch.ErrReach) || code.Code == nil) {
			return arch.BodyCode{}, err
		}
		far = cmp.Or(far, err)
		all.Code = append(all.Code, code.Code...)
		all.Stops = append(all.Stops, code.Stops...)
	}
	return all, far
}

var errNoCompiler = errors.New("programs can't run in the target on this architecture")

// compile makes the body that runs rec's program.
func (rc *recorder) compile(rec *recording, t program.Target) (arch.Body, error) {
	if host.Compiler == nil {
		return nil, errNoCompiler
	}
	for _, m := range rec.maps {
		t.Maps, t.Far = append(t.Maps, m.at), append(t.Far, m.far)
	}
	t.HWCAP2, t.ThreadPointer = rc.threadAccess()
	body, err := host.Compiler.Compile(rec.checked, t)
	if err != nil {
		return nil, fmt.Errorf("compiling the program: %w", err)
	}
	return body, nil
}

// callRegs is the registers at the return of a call.
type callRegs struct {
	*Regs
	duration uint64
	took     *Took
}

// Get implements what a program's Env asks for.
func (r callRegs) Get(name string) (uint64, bool) {
	if name == "duration" {
		return r.duration, true
	}
	return r.Regs.Get(name)
}

// getter is registers by their names.
type getter interface {
	Get(name string) (uint64, bool)
}

// interpret runs kp's program for a thread that has stopped. It hands on the records,
// and returns the program's decision, if it makes one.
func (rk *recordKeeper) interpret(ts *threadState, kp *Kprobe, context getter) (chosen bool) {
	regs := &ts.regs
	if rk.scratch == nil {
		rk.scratch = make([]uint64, program.Map{Kind: program.Ring, Size: scratchSize}.Len()/8)
	}
	e := &program.Env{Regs: context, Memory: rawMemory{regs}, Time: host.Ticks, Thread: uint64(regs.ThreadPointer()), Processor: regs.processor}
	for i, m := range kp.checked.Maps {
		switch m.Kind {
		case program.Ring:
			e.Maps = append(e.Maps, rk.scratch)
		case program.State:
			e.Maps = append(e.Maps, regs.domain.recorder.stateOf(kp))
		default:
			e.Maps = append(e.Maps, kp.values[i])
		}
	}
	chosen, err := kp.checked.Decide(e)
	if err != nil {
		rk.s.warn("program of %s: %v", kp.name(), err)
		return false
	}
	if r, err := program.NewRingReader(program.Map{Kind: program.Ring, Size: scratchSize}, rk.scratch); err == nil {
		call, _ := context.(callRegs)
		_, _ = r.Read(func(rec program.Record) { rk.wrote(kp, regs, rec.Payload, call.took) })
	}
	return chosen
}

// wrote keeps a record that the tracer has made until those are handed on that the target made before.
func (rk *recordKeeper) wrote(kp *Kprobe, regs *Regs, payload []byte, took *Took) {
	w := written{domain: regs.domain, kp: kp, time: host.Ticks(), payload: slices.Clone(payload)}
	w.by = &HitRecord{PID: regs.PID(), TID: regs.TID(), Comm: regs.Comm(), Foreign: regs.domain.foreign(), domain: regs.domain, took: took}
	rk.keep(w)
	if rk.startDraining(); rk.taken.Len() >= turn {
		rk.drain()
	}
}

// deliver calls kp's RecordHandler, whose panic is kept from the target.
func (rk *recordKeeper) deliver(kp *Kprobe, r *HitRecord) {
	defer func() {
		if p := recover(); p != nil {
			if ptrace.Faulted(p) {
				panic(p)
			}
			rk.s.warn("%v in a handler, probe %s is disabled now: %v", ErrPanic, kp.name(), p)
			_ = rk.s.DisableKprobe(kp)
		}
	}()
	if kp.RecordHandler != nil {
		rk.s.tracer.LetAllIdle() // it may wait for another thread
		kp.RecordHandler(kp, r)
	}
}
