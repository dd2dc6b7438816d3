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

// threadState is what a session remembers of a thread.
type threadState struct {
	regs     Regs
	hit      uint64       // its number, while handlers run
	site     *site        // of the hit in progress: between trap and resume, or until its end is seen
	handling bool         // its PreHandlers run
	atReturn bool         // these are Handlers of Kretprobes, which don't choose where it goes on
	traps    bool         // the program traced itself when its copy was single-stepped
	call     *site        // whose system call the thread was last sent into
	put      *site        // whose hit goes on behind a signal that came first, or a mended fault
	before   arch.Regs    // and the registers there
	start    arch.Regs    // in front of an instruction whose copy is single-stepped
	leaving  *detour      // that it is to leave for a signal which waits
	box      arch.Mailbox // that its registers are in, while it spins
	noted    bool         // and perhaps a word of its stack, which no handler has changed yet
	detour   *detour      // whose breakpoint has brought it here, while handlers run
	entering *detour      // whose body the program, which traces itself, steps through
	late     arch.Addr    // a jump's byte raised its signal there, and is gone
	number   int          // of the system call that a SyscallProbe's handlers are about
	changed  uint64       // the hit in which one has changed a call that is to be made: the others are asked about it as well
	chosen   *Kprobe      // whose Program has run in the target, and wants the handler to run
	declined *site        // whose FaultHandlers do not want the fault that is raised once more

	calls bool // handlers run of SyscallProbes that work by stops
	left  bool // a handler has returned from the probed function: see Regs.ReturnNow

	outer  *threadState // of the handler whose call of a function the thread is in
	called bool         // a handler has made a call
	over   bool         // the thread did not come back from one: the hit has ended
}

// resumed tells that a hit of st goes on: the kernel restarts its system call, after a stop
// that no signal handler followed; or the handler of a signal that came first has returned; or
// a FaultHandler has mended what kept the instruction from being done.
func (ts *threadState) resumed(th *ptrace.Thread, st *site, regs arch.Regs) bool {
	restarted := ts.call == st && th.Restarted()
	ts.call = nil
	if ts.put == st && ts.before.Same(regs) {
		ts.put = nil
		return true
	}
	return restarted
}

// forget: a system call of st may go on unseen.
func (ts *threadState) forget(st *site) {
	for ; ts != nil; ts = ts.outer {
		if ts.call == st {
			ts.call = nil
		}
		if ts.put == st {
			ts.put = nil
		}
	}
}

// miss counts a hit of a thread in which a handler runs already, for every probe of the site
// (B26, B29). One that is there for other reasons than an enabled probe misses nothing.
func (st *site) miss() {
	if !slices.ContainsFunc(st.probes, (*Kprobe).enabled) {
		return
	}
	for _, kp := range st.probes {
		kp.nmissed.Add(1)
	}
}

func (s *Session) stateOf(th *ptrace.Thread, d *domain) *threadState {
	ts, ok := th.Local.(*threadState)
	if !ok {
		ts = &threadState{}
		th.Local = ts
	}
	ts.regs.thread, ts.regs.domain = th, d
	return ts
}

// Breakpoint implements ptrace.Handler.
func (s hooks) Breakpoint(th *ptrace.Thread) bool {
	d := domainOf(th)
	if d == nil {
		return false
	}
	regs, err := th.Regs()
	if err != nil {
		return true // killed meanwhile
	}
	at := regs.Trapped()
	if st := d.siteAt(at); st != nil && st.armed() {
		s.hit(th, d, st, regs)
		return true
	}
	if st := d.slotSite(at); st != nil && at == st.slot.Trap {
		s.stepped(th, d, st, regs)
		return true
	}
	return s.inDetour(th, d, at, regs) || d.vanished(at, regs) || d.atTorn(at, regs) || d.strayed(th, at, regs, nil) || d.copied(th, at, regs, nil)
}

// Known implements ptrace.Handler.
func (s hooks) Known(th *ptrace.Thread, at arch.Addr) (ours bool, length int) {
	d := domainOf(th)
	if d == nil {
		return false, 0
	}
	if insn, ok := d.past[at]; ok {
		return true, len(insn)
	}
	if at == d.landing && at != 0 {
		return true, host.Arch.MaxInsnLen()
	}
	if st := d.slotSite(at); st != nil && at == st.slot.Trap {
		return true, host.Arch.MaxInsnLen() // nothing else leads there
	}
	if _, torn := d.neighbours.torn[at]; torn || d.neighbours.strays[at] != nil || d.knownUpcall(at) || d.knownTrap(at) {
		return true, host.Arch.MaxInsnLen()
	}
	return false, 0
}

// vanished tells whether the breakpoint at at was one of ours and is gone: then the
// original instruction runs now (B10).
func (d *domain) vanished(at arch.Addr, regs arch.Regs) bool {
	insn, ours := d.past[at]
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
func (s *Session) hit(th *ptrace.Thread, d *domain, st *site, regs arch.Regs) {
	ts := s.stateOf(th, d)
	s.hits++
	ts.regs.Regs, ts.site, ts.hit = regs, st, s.hits
	if !ts.resumed(th, st, regs) && s.newHit(ts, d, st) {
		ts.site = nil
		s.hasLeft(th, ts, regs)
		return
	}
	if d.released || ts.over {
		return // a handler closed the session: the thread is gone already
	}
	if d.slots[st.slot.Addr] != st {
		regs.SetIP(st.addr) // the handlers removed the site: its original code is back
		ts.site = nil
		s.hasLeft(th, ts, regs)
		return
	}
	if ts.leaving != nil { // the signal comes behind the instruction
		s.passFirst(th, d, st, regs)
		return
	}
	if st.jump() != nil {
		regs.SetIP(st.jump().Start()) // as the kernel's setup_detour_execution
		th.InCopy()
		ts.site = nil
		return
	}
	s.proceed(th, ts, st, regs)
}

// newHit runs what is to run when st is hit, before the instruction. The answer is runPre's.
func (s *Session) newHit(ts *threadState, d *domain, st *site) (diverted bool) {
	if st.linker {
		s.linkerCalled(ts, d)
	}
	if ts.outer != nil {
		if !s.disarmed {
			st.miss()
		}
		return false
	}
	ts.declined, ts.left = nil, false
	if st.returning > 0 && !d.released {
		s.returned(ts, st)
	}
	return s.runPre(ts, st)
}

// runPre runs the PreHandlers of the enabled probes. It reports whether one of them
// took over: the thread then goes on where that handler left it (B2, B19).
func (s *Session) runPre(ts *threadState, st *site) (diverted bool) {
	if s.disarmed {
		return false
	}
	regs := &ts.regs
	ts.handling = true
	defer func() { ts.handling, regs.running = false, nil }()
	for _, kp := range st.probes {
		if !kp.enabled() || kp.session == nil || ts.over || diverted && !kp.forCalls {
			continue
		}
		kp.hits.Add(1)
		regs.running = kp
		if !s.wantsHandler(ts, kp) {
			continue
		}
		takesOver := kp.PreHandler != nil && s.guard(kp, func() int { return kp.PreHandler(kp, regs) }) != 0
		ts.noted = false
		if takesOver || ts.left {
			if diverted = true; !ts.changedCall() {
				return true
			}
		}
	}
	return diverted
}

func (s *Session) runPost(ts *threadState, st *site) {
	regs := &ts.regs
	defer func() { regs.running = nil }()
	for _, kp := range st.probes {
		if kp.enabled() && kp.session != nil && kp.PostHandler != nil && !ts.over {
			regs.running = kp
			s.guard(kp, func() int { kp.PostHandler(kp, regs, 0); return 0 })
		}
	}
}

// guard keeps a handler's panic from the target, which goes on as if the handler had
// returned 0. The probe is disabled: it would panic again. While Close waits for functions that
// handlers have called, no other handler begins.
func (s *Session) guard(kp *Kprobe, f func() int) (ret int) {
	if s.closed {
		return 0
	}
	if s.taken.Len() > 0 {
		s.drain() // what the tracer has recorded before comes first
		if s.closed || kp.session != s {
			return 0 // a RecordHandler has seen to that
		}
	}
	s.running = append(s.running, runningHandler{kp: kp})
	defer func() {
		s.handlerEnds()
		if p := recover(); p != nil {
			if ptrace.Faulted(p) {
				panic(p)
			}
			s.warn("%v in a handler, probe %s is disabled now: %v", ErrPanic, kp.name(), p)
			_ = s.DisableKprobe(kp)
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
func (s hooks) Signal(th *ptrace.Thread, info *ptrace.Siginfo) ptrace.Delivery {
	d := domainOf(th)
	if d == nil {
		return ptrace.Deliver
	}
	regs, err := th.Regs()
	if err != nil {
		return ptrace.Deliver
	}
	if det := d.detourAt(regs.IP()); det != nil {
		return s.signalInDetour(th, d, det, info, regs)
	}
	if d.guard.state.Code.Contains(regs.IP()) {
		d.passGuard(regs)
		return ptrace.Deliver
	}
	if info.Synchronous() && (d.strayed(th, regs.IP(), regs, info) || d.copied(th, regs.IP(), regs, info)) || s.signalAtHead(th, d, info, regs) {
		return ptrace.Drop
	}
	st := d.slotSite(regs.IP())
	if st == nil {
		return ptrace.Deliver
	}
	switch _, executed, ok := st.slot.Origin(regs.IP()); {
	case !ok:
		return ptrace.Deliver
	case executed, info.Synchronous():
		trapnr := vectorOf(info, st)
		s.raisedInSlot(th, d, st, regs)
		if !executed && s.mended(th, st, regs, trapnr) {
			return ptrace.Drop
		}
		return ptrace.Deliver
	case st.plan.Method == arch.SystemCall:
		s.callLater(th, s.stateOf(th, d), st, regs)
		return ptrace.Deliver
	}
	if regs.IP() != st.slot.Step {
		s.trapAfter(th, s.stateOf(th, d), st, regs)
	}
	return ptrace.Hold
}

// callLater puts a thread in front of a system call back to its breakpoint, to take a signal
// there: none could be delivered from the stop at the entry, only sent again, behind others
// of its kind. The hit goes on when the thread comes back as it is now.
func (s *Session) callLater(th *ptrace.Thread, ts *threadState, st *site, regs arch.Regs) {
	s.leaveSlot(th, ts, regs, st.addr)
	ts.put, ts.before = st, regs.Clone()
	ts.before.SetTrapped(st.addr)
}

// trapAfter has a thread in front of a boosted copy come back after it.
func (s *Session) trapAfter(th *ptrace.Thread, ts *threadState, st *site, regs arch.Regs) {
	regs.SetIP(st.slot.Step)
	if st.plan.Leaves {
		s.trace(th, ts, st, regs)
	}
}

// raisedInSlot puts a thread to which its copy has raised a signal back into the original
// code: behind the instruction if it is done (int1, a program that traces itself), else
// before it, to be hit again when it is retried. The siginfo tells the address as well.
func (s *Session) raisedInSlot(th *ptrace.Thread, d *domain, st *site, regs arch.Regs) {
	ip := regs.IP()
	orig, executed, ok := st.slot.Origin(ip)
	if !ok {
		return
	}
	th.NotOurs()
	ts := s.stateOf(th, d)
	switch {
	case !executed || ip != st.slot.Trap:
	case st.plan.Method == arch.SystemCall: // SIGSYS in place of the call
		_ = st.plan.Resume(regs, &ts.regs, st.slot.Step)
	default:
		if s.trapped(th, ts, st, regs); ts.over {
			return
		}
	}
	s.leaveSlot(th, ts, regs, orig)
	s.translate(th, ip, orig)
}

// leaveSlot ends a hit early.
func (s *Session) leaveSlot(th *ptrace.Thread, ts *threadState, regs arch.Regs, orig arch.Addr) {
	regs.SetIP(orig)
	ts.site = nil
	th.RunFree()
	if th.Held() {
		th.Release()
	}
}

// translate changes a siginfo that names the slot's address as the instruction's own
// (SIGILL, SIGFPE, SIGTRAP; SIGSEGV of an instruction fetch).
func (s *Session) translate(th *ptrace.Thread, ip, orig arch.Addr) {
	info, err := th.Siginfo()
	if err != nil || info.Addr() != ip {
		return
	}
	info.SetAddr(orig)
	if err := th.SetSiginfo(info); err != nil {
		s.warn("telling %s the address of its fault: %v", unix.SignalName(info.Signo()), err)
	}
}
