package kprobes

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// A hit. The thread that reached a site has trapped and is stopped; all others run.
// Its registers are read once, handlers change them in place, and they are written
// back when it is resumed:
//
//	site:  int3 ── stop ── PreHandlers ─┬─ boosted: IP = slot.Boost ─ copy ─ jmp back
//	                                    ├─ stepped: IP = slot.Step ─ copy ─ int3 ── stop
//	                                    │           PostHandlers, IP = successor
//	                                    └─ emulated: the tracer does it, PostHandlers
//
// The original bytes never come back during a hit, so no other thread can slip
// through.

// threadState is what a session remembers of a thread.
type threadState struct {
	regs Regs
	site *site // of the hit in progress: between trap and resume, or until the step ends
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
	at := regs.IP().Add(int64(-ptrace.Host.BreakpointAdvance()))
	if st := d.siteAt(at); st != nil && st.patch != nil && st.patch.Armed() {
		s.hit(th, d, st, regs)
		return true
	}
	if st := d.slotSite(at); st != nil && at == st.slot.Trap {
		s.stepped(th, d, st, regs)
		return true
	}
	return d.vanished(at, regs)
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
	if st := d.slotSite(at); st != nil && at == st.slot.Trap {
		return true, ptrace.Host.MaxInsnLen() // nothing else leads there
	}
	return false, 0
}

// vanished tells whether the breakpoint at at was one of ours and is gone: then the
// original instruction runs now (B10).
func (d *domain) vanished(at arch.Addr, regs arch.Regs) bool {
	if _, ours := d.past[at]; !ours {
		return false
	}
	trap := ptrace.Host.Breakpoint()
	now := make([]byte, len(trap))
	if d.text.Original(at, now) != nil || string(now) == string(trap) {
		return false
	}
	regs.SetIP(at)
	return true
}

// hit runs the PreHandlers and sends the thread through the instruction.
func (s *Session) hit(th *ptrace.Thread, d *domain, st *site, regs arch.Regs) {
	ts := s.stateOf(th, d)
	ts.regs.Regs, ts.site = regs, st
	if s.runPre(st, &ts.regs) {
		ts.site = nil
		return
	}
	if d.released {
		return // a handler closed the session: the thread is gone already
	}
	switch {
	case st.plan.Method == arch.Emulated:
		s.emulate(th, ts, st, regs)
	case d.slots[st.slot.Addr] != st:
		regs.SetIP(st.addr) // the handlers removed the site: its original code is back
		ts.site = nil
	case st.step:
		regs.SetIP(st.slot.Step)
		th.ExpectTrap(st.slot.Trap.Add(int64(ptrace.Host.BreakpointAdvance())))
	default:
		regs.SetIP(st.slot.Boost)
		ts.site = nil
	}
}

// runPre runs the PreHandlers of the enabled probes. It reports whether one of them
// took over: the thread then goes on where that handler left it (B2, B19).
func (s *Session) runPre(st *site, regs *Regs) (diverted bool) {
	for _, kp := range st.probes {
		if !kp.enabled() || kp.session == nil {
			continue
		}
		kp.hits.Add(1)
		if kp.PreHandler != nil && s.guard(kp, func() int { return kp.PreHandler(kp, regs) }) != 0 {
			return true
		}
	}
	return false
}

func (s *Session) runPost(st *site, regs *Regs) {
	for _, kp := range st.probes {
		if kp.enabled() && kp.session != nil && kp.PostHandler != nil {
			s.guard(kp, func() int { kp.PostHandler(kp, regs, 0); return 0 })
		}
	}
}

// guard keeps a handler's panic from the target, which goes on as if the handler had
// returned 0. The probe is disabled: it would panic again.
func (s *Session) guard(kp *Kprobe, f func() int) (ret int) {
	defer func() {
		if p := recover(); p != nil {
			s.warn("%v in a handler, probe %s is disabled now: %v", ErrPanic, kp.name(), p)
			_ = s.DisableKprobe(kp)
			ret = 0
		}
	}()
	return f()
}

// emulate performs the instruction for the thread. An access that the thread could
// not make becomes the SIGSEGV it would have got, at the original address.
func (s *Session) emulate(th *ptrace.Thread, ts *threadState, st *site, regs arch.Regs) {
	regs.SetIP(st.addr)
	err := st.plan.Emulate(regs, &ts.regs)
	var fault *arch.FaultError
	if errors.As(err, &fault) && fault.Write && th.Touch(fault.Addr) == nil {
		err = st.plan.Emulate(regs, &ts.regs) // the stack has grown
		fault = nil
	}
	switch {
	case errors.As(err, &fault):
		th.Raise(ptrace.FaultInfo(fault.Addr, st.domain.segvCode(fault.Addr)))
	case err != nil:
		s.warn("emulating the instruction at %s: %v", st.addr, err)
	default:
		s.runPost(st, &ts.regs)
	}
	ts.site = nil
}

// segvCode is SEGV_ACCERR where something is mapped, else SEGV_MAPERR.
func (d *domain) segvCode(a arch.Addr) int {
	const mapErr, accErr = 1, 2
	if err := d.checkMapping(a); errors.Is(err, ErrNotMapped) {
		return mapErr
	}
	return accErr
}

// stepped ends a hit whose copy was trapped after.
func (s *Session) stepped(th *ptrace.Thread, d *domain, st *site, regs arch.Regs) {
	regs.SetIP(st.plan.Insn.End())
	ts := s.stateOf(th, d)
	ts.regs.Regs = regs
	if ts.site == st && d.siteAt(st.addr) == st {
		s.runPost(st, &ts.regs)
	}
	ts.site = nil
	th.Release()
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
	st := d.slotSite(regs.IP())
	if st == nil {
		return ptrace.Deliver
	}
	ip := regs.IP()
	orig, executed, ok := st.slot.Origin(ip)
	switch {
	case !ok:
		return ptrace.Deliver
	case executed:
		s.leaveSlot(th, regs, orig)
		return ptrace.Deliver
	case info.Synchronous():
		s.leaveSlot(th, regs, orig)
		s.translate(th, info, ip, orig)
		return ptrace.Deliver
	case info.Signo() == unix.SIGSTOP:
		return ptrace.Deliver // no handler can see the address
	}
	regs.SetIP(st.slot.Step)
	return ptrace.Hold
}

// leaveSlot puts a thread back into the original code.
func (s *Session) leaveSlot(th *ptrace.Thread, regs arch.Regs, orig arch.Addr) {
	regs.SetIP(orig)
	if ts, ok := th.Local.(*threadState); ok {
		ts.site = nil
	}
	if th.Held() {
		th.Release()
	}
}

// translate changes a siginfo that names the slot's address as the faulting
// instruction's own (SIGILL, SIGFPE, SIGTRAP; SIGSEGV of an instruction fetch).
func (s *Session) translate(th *ptrace.Thread, info *ptrace.Siginfo, ip, orig arch.Addr) {
	if info.Addr() != ip {
		return
	}
	copied := *info
	copied.SetAddr(orig)
	if err := th.SetSiginfo(&copied); err != nil {
		s.warn("telling %s the address of its fault: %v", unix.SignalName(info.Signo()), err)
	}
}
