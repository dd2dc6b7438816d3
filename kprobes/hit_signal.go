package kprobes

import (
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/ptrace"
)

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

// trapAfter makes a thread in front of a boosted copy come back after it.
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
