package kprobes

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Threads that stop in a detour, or at what a jump left of the instructions below it.

// demotion is how many stops at trapping heads of a jump, or in an upcall, are looked at together: if a breakpoint at the site would not have cost more of them,
// the jump is taken back.
const demotion = 32

// mostHeadTime is how long so many stops at heads take at least that are no reason to take a jump back, where hits of the site are not counted in the target.
const mostHeadTime = 16 * time.Millisecond

func (det *detour) demoted() bool { return det.atHeads.tooMany || det.inUpcall.tooMany }

// mostBack is how many threads are expected back at heads at once, at most: handlers may go elsewhere each time.
const mostBack = 1 << 10

// headHits is the stops of threads that came to inner heads of a jump. Some come by jumps of the program that nobody could foresee, again and again. But a thread whom a
// signal has met in the detour comes as well, once: the signal is delivered in the original code, and its handler returns there. A profiler may send a thousand signals a
// second to a function that is called a hundred million times.
type headHits struct {
	n       int       // since the last look
	since   time.Time // when the first of them came
	counted uint64    // hits of the site then
	back    int       // threads that a signal has sent to one of the heads, and that have not come there yet
	tooMany bool      // a breakpoint at the site would cost no more stops
}

// sentToHead notes that a thread of det's goes to at, since a signal has met it in a copy: it will come back by that head. (One whose handler goes elsewhere does not:
// then a jump of the program's is not counted.) Go's collector sends such signals in bursts, a thousand in some milliseconds.
func (ds *detours) sentToHead(det *detour, at arch.Addr) {
	if ds.heads[at] == det {
		det.atHeads.back = min(det.atHeads.back+1, mostBack)
	}
}

// cameToHead notes a stop. It tells whether the jump is to be taken back because of it.
func (det *detour) cameToHead(now time.Time) bool {
	h := &det.atHeads
	if h.back > 0 {
		h.back--
		return false
	}
	if h.n++; h.n == 1 {
		h.since, h.counted = now, det.countedSoFar()
	}
	if h.n < demotion || h.tooMany {
		return false
	}
	if det.count != nil {
		h.tooMany = det.countedSoFar()-h.counted <= demotion
	} else {
		h.tooMany = now.Sub(h.since) < mostHeadTime
	}
	h.n = 0
	return h.tooMany
}

func (det *detour) countedSoFar() uint64 {
	if det.count == nil {
		return 0
	}
	return sumOf(det.count.cells)
}

// inDetour deals with a breakpoint of a detour's or of a jump's, at at. ok is false if it is
// none.
func (hs *hits) inDetour(th *ptrace.Thread, d *domain, at arch.Addr, regs arch.Regs) (_ ptrace.Verdict, ok bool) {
	if det := d.detours.heads[at]; det != nil {
		return ptrace.AsTold(), d.detours.fromHead(det, at, regs)
	}
	det := d.detours.holding(at)
	if det == nil {
		return ptrace.AsTold(), false
	}
	if at == det.Trap {
		return hs.hitInDetour(th, d, det, regs), true
	}
	stop, ok := det.StopAt(at)
	if !ok || stop.Why.Faults() {
		return ptrace.AsTold(), false
	}
	return hs.stoppedInBody(th, d, det, stop, regs), true
}

// stoppedInBody deals with a breakpoint that det's body, or its tail, has for the tracer.
func (hs *hits) stoppedInBody(th *ptrace.Thread, d *domain, det *detour, stop arch.Stop, regs arch.Regs) ptrace.Verdict {
	switch {
	case stop.Why == arch.StopAsked:
		hs.askedByTail(th, d, det, regs)
		return ptrace.AsTold()
	case det.upcall != nil:
		return hs.upcallTrap(th, d, det, stop, regs)
	case stop.Why == arch.StopChosen, stop.Why == arch.StopNoRoom && det.decides():
		return hs.chosenHit(th, d, det, stop.Why, regs)
	case stop.Why == arch.StopNoRoom:
		hs.interpretHere(th, d, det, regs)
		return ptrace.AsTold()
	}
	if ts := hs.stateOf(th, d); ts.leaving != nil && !det.site.isRelay() {
		return ts.leave(regs, det.site.addr) // it comes again behind the signal that waits
	}
	return hs.hitInDetour(th, d, det, regs)
}

// askedByTail deals with a thread at a breakpoint of det's tail.
func (hs *hits) askedByTail(th *ptrace.Thread, d *domain, det *detour, regs arch.Regs) {
	switch call := det.site.mask; {
	case call == nil: // the tail is on its way out
		regs.SetIP(det.End)
	case call.Number == unix.SYS_RT_SIGPROCMASK:
		d.masks.maskCall(det, regs)
	default:
		hs.actionCall(th, d, det, regs)
	}
}

// interpretHere runs a program for which the thread's stack has no room.
func (hs *hits) interpretHere(th *ptrace.Thread, d *domain, det *detour, regs arch.Regs) {
	ts, kp := hs.stateOf(th, d), det.record.kp
	th.TrappedAt(det.site.addr)
	if ts.regs.Regs = regs; kp.session != nil && kp.enabled() {
		hs.s.records.interpret(ts, kp, &ts.regs)
	}
	det.countOne() // what counts comes behind the program
	regs.SetIP(det.Start())
}

// fromHead sends a thread that came to the head of a displaced instruction to its copy.
func (ds *detours) fromHead(det *detour, at arch.Addr, regs arch.Regs) bool {
	to, ok := det.CopyOf(at)
	if !ok {
		return false
	}
	regs.SetIP(to)
	if det.cameToHead(time.Now()) {
		ds.d.optimizer.enqueue(det.site)
	}
	if ds.d.neighbours.changedJump(det) {
		ds.d.session.beside.now()
	}
	return true
}

// signalInDetour is hooks.Signal for a thread in det. The program must not see an address
// there.
func (hs *hits) signalInDetour(th *ptrace.Thread, d *domain, det *detour, info *ptrace.Siginfo, regs arch.Regs) (ptrace.Delivery, ptrace.Verdict) {
	if det.upcall != nil && det.Body.Contains(regs.IP()) {
		if delivery, v, done := hs.signalInUpcall(th, det, info, regs); done {
			return delivery, v
		}
	}
	ip := regs.IP()
	if info.Synchronous() {
		return hs.raisedInDetour(th, d, det, info, regs)
	}
	if det.atEntry(ip) {
		if det.site.isRelay() {
			return ptrace.Hold, hs.stateOf(th, d).through(det)
		}
		return ptrace.Deliver, hs.stateOf(th, d).leave(regs, det.site.addr)
	}
	v, out := hs.leaveCopy(th, d, det, regs)
	if out {
		d.detours.sentToHead(det, regs.IP())
		return ptrace.Deliver, v
	}
	if det.Body.Contains(ip) {
		v = hs.stateOf(th, d).through(det)
	}
	return ptrace.Hold, v
}

// through takes a thread to the end of det's body, a step at a time. It is in the body, or on the way from a relay: the program must not see its address there either.
func (ts *threadState) through(det *detour) ptrace.Verdict {
	ts.leaving = det
	return ptrace.StepOnce()
}

// leaveCopy takes a thread that is at or in a copy to the same place in the original code. In
// front of the first copy, which a hit has brought it to, it executes that before; then it is
// not out yet, and comes back later.
func (hs *hits) leaveCopy(th *ptrace.Thread, d *domain, det *detour, regs arch.Regs) (_ ptrace.Verdict, out bool) {
	orig, pop, ok := det.Original(regs.IP())
	if !ok {
		return ptrace.AsTold(), false
	}
	regs.SetSP(regs.SP() + arch.Addr(pop))
	if orig == det.site.addr && (pop != 0 || regs.IP() == det.Start()) { // else it comes again, by a branch
		return hs.passFirst(th, d, det.site, regs)
	}
	return hs.stateOf(th, d).leave(regs, orig), true
}

// passFirst makes a thread in front of the first copy, or whose hit of st goes on, execute that instruction in
// the site's slot: at the site it would be hit once more.
func (hs *hits) passFirst(th *ptrace.Thread, d *domain, st *site, regs arch.Regs) (_ ptrace.Verdict, out bool) {
	ts := hs.stateOf(th, d)
	if !st.armed() || d.sites[st.addr] != st {
		ts.site = nil
		return ts.leave(regs, st.returnsTo()), true // the probe has gone: nothing is hit there
	}
	if st.plan.Method == arch.Emulated && !regs.TrapFlag() && hs.emulated(ts, st, regs) {
		th.Go(ptrace.RunOn())
		hs.post(ts, st)
		ts.site = nil
		return ts.leave(regs, regs.IP()), true
	}
	ts.leaving = nil
	if st.plan.Method == arch.Emulated || st.plan.Leaves {
		return ts.trace(st, regs), false
	}
	regs.SetIP(st.slot.Step)
	return ptrace.IntoCopyUntil(st.slot.Trap.Add(int64(host.Arch.BreakpointAdvance()))), false
}

// leave ends what the tracer does with a thread in a detour.
func (ts *threadState) leave(regs arch.Regs, to arch.Addr) ptrace.Verdict {
	ts.leaving = nil
	regs.SetIP(to)
	return ptrace.RunOn()
}

// steppedInDetour goes on with a thread that is to leave a detour for a signal that waits.
func (hs *hits) steppedInDetour(th *ptrace.Thread, d *domain, ts *threadState) ptrace.Verdict {
	det := ts.leaving
	regs, err := th.Regs()
	if err != nil {
		return ptrace.AsTold()
	}
	switch ip := regs.IP(); {
	case det.atEntry(ip), det.Body.Contains(ip):
		return ptrace.StepOnce()
	case !det.Range().Contains(ip):
		return ts.leave(regs, ip)
	}
	v, out := hs.leaveCopy(th, d, det, regs)
	if out {
		d.detours.sentToHead(det, regs.IP())
	}
	return v
}

// raisedInDetour deals with what an instruction of a detour has raised: a body has foreseen
// it, or a copy did what its original would have done, there.
func (hs *hits) raisedInDetour(th *ptrace.Thread, d *domain, det *detour, info *ptrace.Siginfo, regs arch.Regs) (ptrace.Delivery, ptrace.Verdict) {
	ip := regs.IP()
	steps := info.Signo() == unix.SIGTRAP // a program that traces itself
	if !steps && det.foreseen(regs) {
		return ptrace.Drop, ptrace.AsTold()
	}
	if steps && hs.stateOf(th, d).stepsIn(det, ip) {
		return ptrace.Drop, ptrace.AsTold() // the jump and the body are none of its instructions
	}
	orig, pop, ok := det.Original(ip)
	if !ok {
		return ptrace.Deliver, ptrace.AsTold()
	}
	if steps && pop != 0 {
		return ptrace.Drop, ptrace.AsTold() // one of its instructions is half done
	}
	regs.SetSP(regs.SP() + arch.Addr(pop))
	hs.translate(th, ip, orig)
	return ptrace.Deliver, hs.stateOf(th, d).leave(regs, orig)
}

// noteFaults prepares for faults that the bodies of detours which sites are about to get have
// foreseen, and for bytes of their jumps that are no instructions.
func (ds *detours) noteFaults(sites []*site) {
	ds.noteFaultsIf(raisesIn(sites))
}

// raises tells whether threads raise other signals than a breakpoint's in det, or at its heads.
func (det *detour) raises() bool {
	return slices.ContainsFunc(det.Stops, func(s arch.Stop) bool { return s.Why.Faults() }) || det.raisesIllegal()
}

// raisesIn tells whether a detour that one of sites is about to get raises.
func raisesIn(sites []*site) bool {
	return slices.ContainsFunc(sites, func(st *site) bool { return st.next().raises() })
}

// notedFor is how long the actions for faults that a round of the optimizer has read are not read again in it.
const notedFor = 50 * time.Millisecond

// noteFaults is that for the sites of a slice. The first slice of a round reads the actions, and the others now and then: a thread may change one
// at any time after the last as well.
func (opt *optimizer) noteFaults(sites []*site) {
	raises := raisesIn(sites)
	again := raises && time.Since(opt.noted) >= notedFor
	if opt.d.detours.noteFaultActions(raises, again); again {
		opt.noted = time.Now()
	}
}

func (ds *detours) noteFaultsIf(raises bool) { ds.noteFaultActions(raises, raises) }

// noteFaultActions reads the actions if more or fewer are handled than last time, or again is set.
func (ds *detours) noteFaultActions(raises, again bool) {
	if !raises && len(ds.heads) == 0 {
		return
	}
	for _, p := range ds.d.space.Processes() {
		err := p.NoteFaultActions(again && !ds.d.newborn) // what is known of such a child is of this very stop
		if err != nil && !errors.Is(err, ptrace.ErrSeccomp) && !errors.Is(err, ptrace.ErrNoThread) && !ptrace.Departed(err) {
			ds.d.session.warn("the actions for faults can't be read: %v", ds.d.unlessEnding(err))
		}
	}
}

// lateHeads finds the threads that have come to a trapping head which raises another signal
// than a breakpoint's, and that the jump is taken away from before this is dealt with.
func (ds *detours) lateHeads(det *detour) {
	for _, th := range ds.d.space.Threads() {
		if !th.Stopped() {
			continue
		}
		if regs, err := th.Regs(); err == nil && ds.heads[regs.IP()] == det && ds.raisedByJump(th, regs) {
			ds.d.session.hits.stateOf(th, ds.d).late = regs.IP()
		}
	}
}

// raisedByJump tells of a stopped thread that a byte of a jump has raised the signal that it
// stopped for.
func (ds *detours) raisedByJump(th *ptrace.Thread, regs arch.Regs) bool {
	if th.Stop().Reason != ptrace.Signal || ds.heads[regs.IP()] == nil {
		return false
	}
	info, err := th.Siginfo()
	return err == nil && raisedByByte(info)
}

// raisesIllegal tells whether det's jump has a head that is no breakpoint.
func (det *detour) raisesIllegal() bool {
	return slices.ContainsFunc(det.heads, func(h arch.Addr) bool {
		return !bytes.HasPrefix(det.jump[h-det.site.addr:], host.Arch.Breakpoint())
	})
}

// raisedByByte: what is no breakpoint is no instruction.
func raisedByByte(info *ptrace.Siginfo) bool {
	return info.Synchronous() && info.Signo() == unix.SIGILL
}

// signalAtHead is hooks.Signal for a thread that a jump's bytes may have raised a signal to.
func (hs *hits) signalAtHead(th *ptrace.Thread, d *domain, info *ptrace.Siginfo, regs arch.Regs) (ours bool) {
	if !raisedByByte(info) {
		return false
	}
	if det := d.detours.heads[regs.IP()]; det != nil {
		return d.detours.fromHead(det, regs.IP(), regs)
	}
	ts := hs.stateOf(th, d)
	late := ts.late != 0 && ts.late == regs.IP()
	ts.late = 0
	return late // the original instruction is back, and runs
}

// moveOutOfDetour takes a stopped thread out of det, to go on in the original code. While it is
// in the body it is run to its end.
func (ds *detours) moveOutOfDetour(th *ptrace.Thread, det *detour) {
	ts := ds.d.session.hits.stateOf(th, ds.d)
	ts.leaving = nil
	if regs, err := th.Regs(); err == nil && det.upcall != nil && det.Body.Contains(regs.IP()) {
		if ds.d.upcalls.leaveUpcall(det, regs); th.Stop().Reason == ptrace.Breakpoint {
			th.Go(ptrace.DropSignal())
		}
	}
	left, last, moves := ds.d.stepped(), arch.Addr(0), true
	for {
		regs, err := th.Regs()
		if err != nil {
			return
		}
		det.endStop(th, regs)
		ip := regs.IP()
		if !moves && ip == last {
			break
		}
		orig, pop, ok := det.Original(ip)
		switch {
		case det.atEntry(ip):
			orig, ok = det.site.addr, true
		case !det.Range().Contains(ip):
			orig, ok = ip, true
		}
		if ok {
			ds.moveTo(th, regs, orig, pop)
			return
		}
		last, moves = ip, left.Step(ds.d.space, th, ip)
	}
	ds.d.session.warn("thread %d does not come out of the detour of %s", th.TID, det.site.addr)
}

// moveTo puts a stopped thread to where it would be in the original code.
func (ds *detours) moveTo(th *ptrace.Thread, regs arch.Regs, orig arch.Addr, pop int) {
	switch th.Stop().Reason {
	case ptrace.Signal, ptrace.Breakpoint:
		ds.d.session.hits.translate(th, regs.IP(), orig)
	default:
		th.Go(ptrace.RunOn())
	}
	regs.SetSP(regs.SP() + arch.Addr(pop))
	regs.SetIP(orig)
}
