package kprobes

import (
	"bytes"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
)

// A hit. The thread that reached a site has trapped and is stopped; all others run.
// Its registers are read once, handlers change them in place, and they are written
// back when it is resumed:
//
//	site:  int3 ── stop ── PreHandlers ─┬─ boosted: IP = slot.Boost ─ copy ─ jmp back
//	                                    ├─ stepped: IP = slot.Step ─ copy ─ int3 ── stop
//	                                    │           PostHandlers, IP = slot.Next
//	                                    ├─ emulated: the tracer does it, PostHandlers
//	                                    ├─ traced: IP = slot.Step ─ copy ── stop by TF
//	                                    │           Resume, PostHandlers
//	                                    └─ system call: IP = slot.Step ─ copy ── stop in
//	                                                the kernel, Resume ─ the call ─┬─
//	                                                                 stop, PostHandlers
//
// The original bytes never come back during a hit, so no other thread can slip
// through. What runs an instruction, and where a thread may be seen meanwhile, is told
// in hit_proceed.go.

// hits is what a session does about threads that reach sites.
type hits struct {
	s      *Session
	states ptrace.Kept[threadState]
	count  uint64 // all of them so far

	untilSample int // hits of sites where calls are timed
}

// miss counts a hit of a thread in which a handler runs already, for every probe of the site
// (B26, B29). One that is there for other reasons than an enabled probe misses nothing.
func (st *site) miss() {
	if !slices.ContainsFunc(st.probes, (*Kprobe).enabled) {
		return
	}
	for _, kp := range st.probes {
		kp.missed.add(MissNested, 1)
	}
}

// Breakpoint implements ptrace.Handler.
func (s hooks) Breakpoint(th *ptrace.Thread) ptrace.Verdict {
	defer s.heirs.within()()
	d := s.domainOf(th)
	if d == nil {
		return ptrace.NotOurs()
	}
	regs, err := th.Regs()
	if err != nil {
		return ptrace.AsTold() // killed meanwhile
	}
	at := regs.Trapped()
	if st := d.siteAt(at); st != nil && st.armed() {
		return s.hits.hit(th, d, st, regs)
	}
	if st := d.slots.slotSite(at); st != nil && at == st.slot.Trap {
		return s.hits.stepped(th, d, st, regs)
	}
	if v, ours := s.hits.inDetour(th, d, at, regs); ours {
		return v
	}
	if d.vanished(at, regs) || d.neighbours.atTorn(at, regs) || d.neighbours.strayed(th, at, regs, nil) || d.neighbours.copied(th, at, regs, nil) {
		return ptrace.AsTold()
	}
	return ptrace.NotOurs()
}

// Known implements ptrace.Handler.
func (s hooks) Known(th *ptrace.Thread, at arch.Addr) (ours bool, length int) {
	d := s.alike(th.Proc.Space)
	if d == nil {
		return false, 0
	}
	if insn, ok := d.past.insns[at]; ok {
		return true, len(insn)
	}
	if at == d.detours.landing && at != 0 {
		return true, host.Arch.MaxInsnLen()
	}
	if st := d.slots.slotSite(at); st != nil && at == st.slot.Trap {
		return true, host.Arch.MaxInsnLen() // nothing else leads there
	}
	if _, torn := d.neighbours.torn[at]; torn || d.neighbours.strays[at] != nil || d.upcalls.knownUpcall(at) || d.detours.knownTrap(at) {
		return true, host.Arch.MaxInsnLen()
	}
	return false, 0
}

// vanished tells whether the breakpoint at at was one of ours and is gone: then the
// original instruction runs now (B10).
func (d *domain) vanished(at arch.Addr, regs arch.Regs) bool {
	insn, ours := d.past.insns[at]
	if !ours {
		insn, ours = d.former[at]
	}
	if !ours {
		return false
	}
	now := make([]byte, len(insn))
	if d.space.Text().ReadMemory(at, now) != nil {
		return false
	}
	if d.text.Overlay(at, now); !bytes.Equal(now, insn) {
		return false // the program has other code there now, or somebody else a breakpoint
	}
	regs.SetIP(at)
	return true
}

// hit runs the PreHandlers and sends the thread through the instruction.
func (hs *hits) hit(th *ptrace.Thread, d *domain, st *site, regs arch.Regs) ptrace.Verdict {
	ts := hs.stateOf(th, d)
	hs.count++
	ts.regs.Regs, ts.site, ts.hit = regs, st, hs.count
	if !ts.resumed(th, st, regs) && hs.newHit(ts, d, st) {
		ts.site = nil
		return ts.hasLeft(regs)
	}
	if d.released || ts.over {
		return ptrace.AsTold() // a handler closed the session: the thread is gone already
	}
	if d.slots.at[st.slot.Addr] != st {
		regs.SetIP(st.addr) // the handlers removed the site: its original code is back
		ts.site = nil
		return ts.hasLeft(regs)
	}
	if ts.leaving != nil { // the signal comes behind the instruction
		v, _ := hs.passFirst(th, d, st, regs)
		return v
	}
	if st.jump() != nil {
		regs.SetIP(st.jump().Start()) // as the kernel's setup_detour_execution
		ts.site = nil
		return ptrace.IntoCopy()
	}
	return hs.proceed(th, ts, st, regs)
}

// newHit runs what is to run when st is hit, before the instruction. The answer is runPre's.
func (hs *hits) newHit(ts *threadState, d *domain, st *site) (diverted bool) {
	if st.linker {
		hs.linkerCalled(ts, d)
	}
	if st.unwinds {
		hs.unwound(ts, d)
	}
	d.optimizer.hit(st)
	if ts.outer != nil {
		if !hs.s.registry.disarmed {
			st.miss()
		}
		return false
	}
	ts.declined, ts.left = nil, false
	if st.returning > 0 && !d.released {
		hs.returned(ts, st)
	}
	return hs.runPre(ts, st)
}

// runPre runs the PreHandlers of the enabled probes. It reports whether one of them
// took over: the thread then goes on where that handler left it (B2, B19).
func (hs *hits) runPre(ts *threadState, st *site) (diverted bool) {
	if hs.s.registry.disarmed {
		return false
	}
	regs := &ts.regs
	ts.phase = atSite
	defer func() { ts.phase, regs.running = between, nil }()
	for _, kp := range st.probes {
		if !kp.enabled() || kp.session == nil || ts.over || diverted && !kp.forCalls {
			continue
		}
		kp.hits.Add(1)
		regs.running = kp
		if !hs.wantsHandler(ts, kp) {
			continue
		}
		takesOver := kp.PreHandler != nil && hs.s.handlers.guard(kp, func() int { return kp.PreHandler(kp, regs) }) != 0
		ts.noted = false
		if takesOver || ts.left {
			if diverted = true; !ts.changedCall() {
				return true
			}
		}
	}
	return diverted
}

func (hs *hits) runPost(ts *threadState, st *site) {
	regs := &ts.regs
	defer func() { regs.running = nil }()
	for _, kp := range st.probes {
		if kp.enabled() && kp.session != nil && kp.PostHandler != nil && !ts.over {
			regs.running = kp
			hs.s.handlers.guard(kp, func() int { kp.PostHandler(kp, regs, 0); return 0 })
		}
	}
}

// guard keeps a handler's panic from the target, which goes on as if the handler had
// returned 0. The probe is disabled: it would panic again. While Close waits for functions that
// handlers have called, no other handler begins.
func (hd *handlers) guard(kp *Kprobe, f func() int) (ret int) {
	if hd.s.closed {
		return 0
	}
	if hd.s.records.taken.Len() > 0 {
		hd.s.records.drain() // what the tracer has recorded before comes first
		if hd.s.closed || kp.session != hd.s {
			return 0 // a RecordHandler has seen to that
		}
	}
	hd.s.tracer.LetAllIdle() // it may wait for another thread
	hd.running = append(hd.running, runningHandler{kp: kp})
	defer func() {
		hd.handlerEnds()
		if p := recover(); p != nil {
			if ptrace.Faulted(p) {
				panic(p)
			}
			hd.s.warn("%v in a handler, probe %s is disabled now: %v", ErrPanic, kp.name(), p)
			_ = hd.s.DisableKprobe(kp)
			ret = 0
		}
	}()
	return f()
}

// Signal implements ptrace.Handler. A thread in a slot has no address that the target
// knows. A signal that its instruction raised is told the original address; the
// instruction has not happened, and will be a hit again when it is retried (B11).
// Any other signal waits until the copy has run: it is trapped after, even if it was
// boosted, and the signal is delivered from there (D23).
func (s hooks) Signal(th *ptrace.Thread, info *ptrace.Siginfo) (ptrace.Delivery, ptrace.Verdict) {
	defer s.heirs.within()()
	d := s.alike(th.Proc.Space)
	if d == nil {
		return ptrace.Deliver, ptrace.AsTold()
	}
	regs, err := th.Regs()
	if err != nil || !info.Synchronous() && d.outside(regs.IP()) {
		return ptrace.Deliver, ptrace.AsTold()
	}
	if d = s.at(th.Proc.Space); d == nil {
		return ptrace.Deliver, ptrace.AsTold()
	}
	if det := d.detours.holding(regs.IP()); det != nil {
		return s.hits.signalInDetour(th, d, det, info, regs)
	}
	if d.guard.state.Code.Contains(regs.IP()) {
		d.guard.passGuard(regs)
		return ptrace.Deliver, ptrace.AsTold()
	}
	if regs.IP() == d.detours.landing && d.detours.landing != 0 && !info.Synchronous() {
		return ptrace.Hold, ptrace.AsTold() // the function that a handler calls has returned, and its breakpoint comes next: a handler would be told of our code
	}
	if r := d.followed.relays.at[regs.IP()]; r != nil && !info.Synchronous() {
		st := d.siteAt(r.at)
		switch {
		case st == nil || !st.armed():
			regs.SetIP(r.to)
		case st.jump() != nil:
			return ptrace.Hold, s.hits.stateOf(th, d).through(st.jump())
		default:
			return ptrace.Hold, ptrace.AsTold() // so here
		}
	}
	if info.Synchronous() && (d.neighbours.strayed(th, regs.IP(), regs, info) || d.neighbours.copied(th, regs.IP(), regs, info)) || s.hits.signalAtHead(th, d, info, regs) {
		return ptrace.Drop, ptrace.AsTold()
	}
	st := d.slots.slotSite(regs.IP())
	if st == nil {
		return ptrace.Deliver, ptrace.AsTold()
	}
	switch _, executed, ok := st.slot.Origin(regs.IP()); {
	case !ok:
		return ptrace.Deliver, ptrace.AsTold()
	case executed, info.Synchronous():
		trapnr := vectorOf(info, st)
		s.hits.raisedInSlot(th, d, st, regs)
		if executed {
			return ptrace.Deliver, ptrace.AsTold()
		}
		return s.hits.mended(th, st, regs, trapnr)
	case st.plan.Method == arch.SystemCall:
		return ptrace.Deliver, s.hits.stateOf(th, d).callLater(st, regs)
	case regs.IP() == st.slot.Step:
		return ptrace.Hold, ptrace.AsTold()
	}
	return ptrace.Hold, s.hits.stateOf(th, d).trapAfter(st, regs)
}

// outside tells of a place where a thread takes a signal of no instruction's as if we were not there.
func (d *domain) outside(ip arch.Addr) bool {
	return !d.region.Contains(ip) && !d.guard.state.Code.Contains(ip) && ip != d.detours.landing && d.followed.relays.at[ip] == nil
}

// callLater puts a thread in front of a system call back to its breakpoint, to take a signal
// there: none could be delivered from the stop at the entry, only sent again, behind others
// of its kind. The hit goes on when the thread comes back as it is now.
func (ts *threadState) callLater(st *site, regs arch.Regs) ptrace.Verdict {
	v := ts.leaveSlot(regs, st.addr)
	ts.put, ts.before = st, regs.Clone()
	ts.before.SetTrapped(st.addr)
	return v
}

// trapAfter has a thread in front of a boosted copy come back after it.
func (ts *threadState) trapAfter(st *site, regs arch.Regs) ptrace.Verdict {
	if regs.SetIP(st.slot.Step); st.plan.Leaves {
		return ts.trace(st, regs)
	}
	return ptrace.AsTold()
}

// raisedInSlot puts a thread to which its copy has raised a signal back into the original
// code: behind the instruction if it is done (int1, a program that traces itself), else
// before it, to be hit again when it is retried. The siginfo tells the address as well.
// The thread is told before handlers run, FaultHandlers included.
func (hs *hits) raisedInSlot(th *ptrace.Thread, d *domain, st *site, regs arch.Regs) {
	ip := regs.IP()
	orig, executed, ok := st.slot.Origin(ip)
	if !ok {
		return
	}
	th.Go(ptrace.WithSignal())
	ts := hs.stateOf(th, d)
	switch {
	case !executed || ip != st.slot.Trap:
	case st.plan.Method == arch.SystemCall: // SIGSYS in place of the call
		_ = st.plan.Resume(regs, &ts.regs, st.slot.Step)
	default:
		if hs.trapped(th, ts, st, regs); ts.over {
			return
		}
	}
	th.Go(ts.leaveSlot(regs, orig))
	hs.translate(th, ip, orig)
}

// leaveSlot ends a hit early.
func (ts *threadState) leaveSlot(regs arch.Regs, orig arch.Addr) ptrace.Verdict {
	regs.SetIP(orig)
	ts.site = nil
	return ptrace.RunOn()
}

// translate changes a siginfo that names the slot's address as the instruction's own
// (SIGILL, SIGFPE, SIGTRAP; SIGSEGV of an instruction fetch).
func (hs *hits) translate(th *ptrace.Thread, ip, orig arch.Addr) {
	info, err := th.Siginfo()
	if err != nil || info.Addr() != ip {
		return
	}
	info.SetAddr(orig)
	if err := th.SetSiginfo(info); err != nil {
		hs.s.warn("telling %s the address of its fault: %v", unix.SignalName(info.Signo()), err)
	}
}
