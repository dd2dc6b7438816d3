package kprobes

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/optimize"
	"github.com/gokprobe/gokprobe/program"
	"github.com/gokprobe/gokprobe/trampoline"
)

// detour is the code that an optimized site jumps to (the kernel's optimized_kprobe). It is
// made for what its site's probes want, and replaced when they want something else.
type detour struct {
	*arch.Detour
	site     *site
	landing  trampoline.Landing
	work     work
	jump     []byte       // what stands at the site
	original []byte       // what stood there
	heads    []arch.Addr  // inner heads that trap
	strays   []arch.Addr  // where the jump leads when others have changed it
	count    *counter     // nil if the tracer counts
	record   *recording   // nil if there is no program
	returned []*recording // programs of calls that end there
	upcall   *upcaller    // nil if there is no handler

	atHeads  headHits   // of threads that came to one of heads
	inUpcall upcallHits // of threads that called the tracer
	retired  bool       // no thread will enter it any more
	beside   bool       // others have written over the jump
	beset    bool       // others are in the same file
}

// region is the bytes that must not change while d is in use: what the jump covers and what
// was displaced.
func (det *detour) region() arch.Range {
	end := max(det.End, det.site.addr+arch.Addr(len(det.jump)))
	return arch.Range{Start: det.site.addr, End: end}
}

// displaced is what the detour stands for: what the jump covers, and the rest of the instructions there.
func (det *detour) displaced() []byte {
	code := bytes.Clone(det.original)
	for _, p := range det.Pieces {
		if n := int(p.Insn.Addr - det.site.addr); n+p.Insn.Len() > len(code) && n <= len(code) {
			code = append(code[:n], p.Insn.Bytes...)
		}
	}
	return code
}

// work is what a detour's body does.
type work struct {
	upcall    bool           // the tracer does it all
	notes     arch.StackWord // and looks at this
	follows   *Kretprobe     // whose calls begin there, to be followed in the target
	of        uint64         // its registration
	returns   bool           // calls that are followed end there
	recounted uint64         // with these programs
	counts    bool           // hits of other probes
	program   *Kprobe        // whose Program runs; nil if hits are only counted
	since     uint64         // its registration
	unblocks  bool           // threads do not block SIGTRAP behind it: it has a tail
}

// detours is what a domain knows of its detours.
type detours struct {
	d        *domain
	at       map[arch.Addr]*detour  // by where their code begins, and the ways to it
	heads    map[arch.Addr]*detour  // trapping heads of armed jumps
	counters map[arch.Addr]*counter // by where their cells are
	sorted   []*counter             // they, in order, when d.still was sortedAt; for the ends of heirs
	sortedAt uint64
	retired  int
	callsOut int       // threads in functions that handlers have called
	landing  arch.Addr // where such functions return to; 0 if there is none yet
}

// make builds what st's jump is to lead to. Nothing leads there yet. The error says why
// st can't be optimized.
func (ds *detours) make(st *site, w work) (*detour, error) {
	choice, err := ds.analysed(st)
	if err != nil {
		return nil, err
	}
	if w.unblocks {
		if choice = st.mask.extend(choice); len(choice.Options) == 0 {
			return nil, errNoTail
		}
	}
	if err := ds.untouchable(choice); err != nil {
		return nil, err
	}
	det := &detour{site: st, work: w}
	body, err := ds.makeBody(det, choice)
	if err == nil && w.unblocks {
		body, err = ds.d.masks.withTail(st.mask, body)
	}
	if err == nil {
		err = ds.land(det, choice, body)
	}
	if err != nil {
		ds.endWork(det)
		return nil, err
	}
	ds.at[det.Addr] = det
	ds.at[det.landing.Entry] = det
	return det, nil
}

var errNoTail = errors.New("the system call there can't be reached from a detour")

// untouchable refuses to displace what must stay where it is, whoever comes there.
func (ds *detours) untouchable(choice *optimize.Choice) error {
	for _, i := range displacedAtMost(choice) {
		if err := ds.d.look.checkCode(i.Addr); err != nil {
			return err
		}
		if ds.d.look.isSigreturn(i.Addr) {
			return ErrBlacklisted
		}
		if i.Flow == arch.FlowReturn {
			continue
		}
		if err := ds.d.look.checkShadowStack(i); err != nil {
			return err
		}
	}
	return nil
}

// analysed asks which jumps st may have.
func (ds *detours) analysed(st *site) (*optimize.Choice, error) {
	if st.isRelay() {
		return ds.d.followed.relays.analysed(st)
	}
	return ds.d.look.surveyed().analyses.choose(ds.d.linker.symbols(), st.addr, ds.d.look.original)
}

// makeBody chooses the body. Counters must be near the detour, which is near the site.
func (ds *detours) makeBody(det *detour, choice *optimize.Choice) (arch.Body, error) {
	dead := host.Detours.Dead(displacedAnyway(choice))
	redZone := det.work.notes == arch.PoppedWord || !ds.d.linker.symbols().GoFunction(det.site.addr)
	var err error
	if det.work.upcall {
		det.upcall, err = ds.d.upcalls.newUpcaller(det.site, det.work, redZone)
		return det.upcall, err
	}
	calls, err := ds.d.followed.callBodies(det, dead)
	if err != nil || !det.work.counts {
		return calls, err
	}
	if det.count, err = ds.newCounter(det.site.addr); err != nil {
		return nil, err
	}
	kp := det.work.program
	if kp == nil {
		return append(calls, host.Detours.CountBody(det.count.at, shards(), dead, redZone)), nil
	}
	if det.record, err = ds.d.recorder.newRecording(kp, det.site.addr); err != nil {
		return nil, err
	}
	body, err := ds.d.recorder.compile(det.record, program.Target{Site: det.site.addr, Dead: dead, RedZone: redZone})
	if err != nil {
		return nil, err
	}
	// The program first: without room on the stack it traps, and the tracer counts as well.
	return append(calls, body, host.Detours.CountBody(det.count.at, shards(), dead, redZone)), nil
}

// displacedAtMost is the instructions that options displace. Each displaces the first of them.
func displacedAtMost(choice *optimize.Choice) []arch.Insn {
	return slices.MaxFunc(choice.Options, func(a, b optimize.Option) int { return cmp.Compare(len(a.Insns), len(b.Insns)) }).Insns
}

// displacedAnyway is the instructions that all options displace: behind them a probe of its own may
// look at registers.
func displacedAnyway(choice *optimize.Choice) []arch.Insn {
	return slices.MinFunc(choice.Options, func(a, b optimize.Option) int { return cmp.Compare(len(a.Insns), len(b.Insns)) }).Insns
}

// land finds a place for det and writes it there.
func (ds *detours) land(det *detour, choice *optimize.Choice, body arch.Body) error {
	patterns := make([]arch.Pattern, len(choice.Options))
	for i := range choice.Options {
		patterns[i] = choice.Options[i].Pattern
	}
	all := displacedAtMost(choice) // which begin with those of each option
	size, err := host.Detours.DetourLen(all, body)
	if err != nil {
		return err
	}
	near := reaching(det.site.plan.Near, all)
	landing, err := ds.d.region.Land(near, patterns, size, det.memory()...)
	if err != nil {
		return err
	}
	option := choice.Options[landing.Option]
	det.landing, det.heads, det.strays = landing, option.Heads, option.Pattern.Strays(landing.Entry)
	det.Detour, err = host.Detours.AssembleDetour(landing.Detour, option.Insns, body)
	if err == nil {
		err = ds.write(det)
	}
	if err != nil {
		return errors.Join(err, ds.d.region.FreeLanding(landing))
	}
	return nil
}

// memory is what the body must reach.
func (det *detour) memory() []arch.Range {
	if det.upcall != nil {
		return []arch.Range{det.upcall.board.where}
	}
	uses := det.record.spans()
	for _, rec := range det.returned {
		uses = append(uses, rec.spans()...)
	}
	if det.count != nil {
		uses = append(uses, det.count.memory())
	}
	return uses
}

// reaching extends near by what insns name relative to themselves.
func reaching(near arch.Range, insns []arch.Insn) arch.Range {
	for _, i := range insns {
		for _, a := range []arch.Addr{i.Addr, i.End(), i.Target, i.MemTarget} {
			if a != 0 {
				near.Start, near.End = min(near.Start, a), max(near.End, a+1)
			}
		}
	}
	return near
}

// write stores the detour and, where the jump leads elsewhere first, the way to it.
func (ds *detours) write(det *detour) error {
	at := det.site.addr
	jump, err := host.Detours.Jump(at, det.landing.Entry)
	if err != nil {
		return err
	}
	det.jump = jump
	if det.original, err = ds.d.look.original(at, len(jump)); err != nil {
		return err
	}
	if len(det.original) < len(jump) { // the mapping ends there
		det.original = make([]byte, len(jump))
		if err := ds.d.text.Original(at, det.original); err != nil {
			return err
		}
	}
	if err := ds.d.region.PutDetour(det.Addr, det.Code); err != nil {
		return err
	}
	if err := ds.d.region.Describe(det.landing, det.Detour); err != nil {
		return err
	}
	det.Written()
	if det.landing.Entry == det.Addr {
		return nil
	}
	way, err := host.Detours.Jump(det.landing.Entry, det.Addr)
	if err != nil {
		return err
	}
	return ds.d.region.PutDetour(det.landing.Entry, way)
}

// turn switches the body on or off: one byte, which other threads see before or after. A
// thread that is past the switch is not affected.
func (ds *detours) turn(det *detour, on bool) error {
	b := det.Off
	switch {
	case on && ds.callsOut > 0 && det.upcall == nil && !det.site.bare():
		b = det.Ask
		ds.d.guard.guardTrap(det)
	case on:
		b = det.On
	}
	return ds.d.region.PutDetour(det.Switch, []byte{b})
}

// calledOut notes that n more of d's threads, or with -1 one less, are in functions that handlers
// have called. Their hits are missed (B26), which a body can't know: as long as there are any,
// all threads trap in front of bodies.
func (ds *detours) calledOut(n int) error {
	was := ds.callsOut > 0
	if ds.callsOut += n; ds.callsOut > 0 == was || ds.d.released {
		return nil
	}
	var errs []error
	for _, st := range ds.d.sites {
		if st.jump() != nil && st.wanted() {
			errs = append(errs, ds.turn(st.jump(), true))
		}
	}
	return errors.Join(errs...)
}

// retire says that no thread will enter det any more. One that is inside still counts.
func (ds *detours) retire(det *detour) {
	if err := ds.d.region.RetireLanding(det.landing); err != nil {
		ds.d.session.warn("retiring the detour of %s: %v", det.site.addr, err)
	}
	det.retired = true
	ds.retired++
}

// holding returns the detour that ip lies in.
func (ds *detours) holding(ip arch.Addr) *detour {
	if len(ds.at) == 0 {
		return nil
	}
	start, ok := ds.d.region.ChunkOf(ip)
	if !ok {
		return nil
	}
	return ds.at[start]
}

// atEntry tells that nothing has happened to a thread at ip: it might as well still be at the
// site.
func (det *detour) atEntry(ip arch.Addr) bool {
	return ip == det.landing.Entry || ip >= det.Addr && ip < det.Body.Start
}

// discard takes back a detour that nothing ever led to.
func (ds *detours) discard(det *detour) {
	ds.forget(det)
	if err := ds.d.region.FreeLanding(det.landing); err != nil {
		ds.d.session.warn("freeing the detour of %s: %v", det.site.addr, err)
	}
}

func (ds *detours) forget(det *detour) {
	delete(ds.at, det.Addr)
	delete(ds.at, det.landing.Entry)
	ds.d.neighbours.forgetStrays(det)
	det.forgottenBy(ds.d.region)
	ds.endWork(det)
}

// endWork takes back the memory of what det did.
func (ds *detours) endWork(det *detour) {
	for _, rec := range append(det.returned, det.record) {
		ds.d.recorder.endRecording(rec)
	}
	ds.endCounter(det.count)
}

// manyRetired is how many unused detours are worth a pause of all threads.
const manyRetired = 64

// collect frees detours that no thread is in any more. No signal is ever delivered to
// a thread in a detour, so no frame on any stack refers to one, and calls push addresses of the
// original code: a thread is inside only if its instruction pointer is. Nothing leads into one that is retired.
// A child that was forked before the jump was taken away has the jump still, until its first stop is handled: as
// long as there is one, nothing is freed, since were we killed now it would run on like that.
func (ds *detours) collect() {
	if ds.retired < manyRetired {
		return
	}
	err := ds.d.space.FreezeAwake(ds.d.region.Contains, func() error {
		if ds.d.session.tracer.Awaits(ds.d.space) {
			return nil
		}
		inside := map[*detour]bool{}
		for _, th := range ds.d.space.Threads() {
			for ts := ds.d.session.hits.states.Of(th); ts != nil; ts = ts.outer {
				inside[ts.leaving], inside[ts.detour] = true, true
			}
			if regs, err := th.Regs(); th.Stopped() && err == nil {
				inside[ds.holding(regs.IP())] = true
				inside[ds.d.neighbours.strayAt(th, regs)] = true
			}
		}
		left, err := ds.d.region.CollectDetours(func(r arch.Range) bool {
			det := ds.at[r.Start]
			if det == nil || inside[det] {
				return det != nil
			}
			ds.forget(det)
			return false
		})
		ds.retired = left
		return err
	})
	if err != nil {
		ds.d.session.warn("recycling detours: %v", err)
	}
}
