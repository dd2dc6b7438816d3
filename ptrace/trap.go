package ptrace

import (
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// A breakpoint's SIGTRAP is forced: if the thread blocks the signal or the process ignores
// it, the kernel unblocks it and resets its action to the default
// (force_sig_info_to_task in kernel/signal.c). Both are put back after each hit.
//
// Where a guard is the process's action (guard.go), that is what a breakpoint resets.
// Unless the target has a handler behind it, it is put back some milliseconds later,
// not after each hit. A thread that has all signals blocked does not block SIGTRAP
// again before it is let go (Space.Unblock). The program's handler runs with SIGTRAP
// not blocked, other than the kernel would have it: what that changes is made up for
// when a SIGTRAP is about to be delivered (noteTrapHandler).

// noteMask learns from the mask at a stop that no breakpoint caused whether the thread
// blocks SIGTRAP. A full mask says nothing: see Sigset.full. While signals are held back the mask is ours, and a breakpoint in our code has
// taken SIGTRAP out of it; the thread can't change its own then.
func (th *Thread) noteMask() {
	if th.owed.mask != nil {
		return
	}
	m, err := th.sigmask()
	if err != nil {
		return
	}
	if th.takenOut(m) {
		th.blocks.seenLess(m, th.pendingSynchronous)
		return
	}
	th.blocks.seen(m, th.pendingSynchronous)
	if m.Has(unix.SIGTRAP) && !th.blocks.all {
		th.unblocked.owesBlock = false
	}
}

// restoreTrap undoes what a breakpoint does to a thread that blocks SIGTRAP, or whose
// process ignores it. The state before can't be read after the fact. So we take the one
// that we saw last: in noteMask, in noteTrapHandler, and at attach. If a thread has
// begun to block SIGTRAP and few others since, we notice only at its next stop that no
// breakpoint causes, or, with a guard, at its next SIGTRAP (judgeTrap).
func (t *Tracer) restoreTrap(th *Thread) {
	p := th.Proc
	if th.guard.restored {
		th.guard.restored = false
		return
	}
	th.guard.unsure, th.guard.answered, th.at.judged = true, false, true
	t.checkGuard(p)
	if th.owed.mask != nil && p.trap.handled() && !th.keptHandler() { // what it blocks is put back when its signals are released
		_ = th.remote(func(r *Remote) error { return r.restoreTrapAction(p) })
	}
	if th.owed.mask != nil || !p.trap.matters() && !th.blocks.trap && !th.blocks.all {
		return
	}
	m, err := th.sigmask()
	if err != nil {
		return
	}
	takenOut := th.takenOut(m)
	if takenOut && p.trap.guardOnly() {
		if th.blocks.all = (m | forced).Full(); m.Has(unix.SIGILL) { // it may be the breakpoint that has taken SIGTRAP out
			t.regainGuard(p)
		}
		return
	}
	with := m | sigbit(unix.SIGTRAP)
	th.blocks.all = with.Full()
	if th.blocks.all && p.trap.guardOnly() && !th.unblocked.sentWaits {
		th.unblocked.blocksLess(with) // until the thread is let go: see Space.Unblock
		t.regainGuard(p)
		return
	}
	if th.at.sight == free {
		th.blocks.trap, th.blocks.all, th.blocks.inTrapHandler = false, false, false
		return
	}
	believed := th.blocks.trap && !takenOut || th.blocks.all || th.blocks.inTrapHandler
	blocked := (believed || p.trap.tellsOfMask()) && (m == with || !th.keptHandler()) // m has the signal if it was put back at this stop already
	unclear := blocked && !believed && m != with && !th.trapsAlone()
	if blocked = blocked && !unclear; blocked && !believed {
		th.blocks.trap = true
	}
	if blocked && !p.trap.guarded() && p.trap.handled() && th.blocks.inTrapHandler && th.remote((*Remote).askTrap) == nil {
		blocked = th.blocks.trap || th.blocks.all || th.blocks.inTrapHandler
	}
	if th.guard.answered = blocked; blocked && m != with {
		_ = th.setSigmask(with)
	}
	th.unblocked.owesBlock = false
	switch {
	case p.trap.stands() == nil && !p.trap.ignored():
	case p.trap.guardOnly():
		if blocked {
			t.regainGuard(p)
		}
	case p.trap.ignored() || p.trap.handled() && (blocked || unclear):
		_ = th.remote(func(r *Remote) error { return r.restoreTrapAction(p) })
	}
}

// RestoreTrap puts back the action and the mask of SIGTRAP now, during a Handler's
// Breakpoint for the thread, not after that has returned. Call it before you read or
// change the action of SIGTRAP.
func (th *Thread) RestoreTrap() {
	th.Proc.tracer.restoreTrap(th)
	th.guard.restored = true
}

// askTrap is called when the handler of SIGTRAP has gone and there is no guard, so that the program may have taken it away itself. A breakpoint changes the
// handler only (force_sig_info_to_task); if it was one, the thread had the signal blocked.
func (r *Remote) askTrap() error {
	p := r.th.Proc
	sa, err := r.sigaction(unix.SIGTRAP)
	if known := p.trap.stands(); err == nil && (known == nil || sa.rest() != known.rest()) {
		p.tracer.takeTrap(p, sa)
		r.th.blocks.inTrapHandler = false
	}
	return err
}

// restoreTrapAction puts the program's action for SIGTRAP back, if a breakpoint has reset it. That has changed the handler only
// (force_sig_info_to_task), so the rest of the action is what the program has set last.
func (r *Remote) restoreTrapAction(p *Process) error {
	sa, err := r.sigaction(unix.SIGTRAP)
	if err != nil {
		return err
	}
	lost := sa.handler == 0
	if lost {
		sa.handler = sigIgn // all that is known if the action could not be read at the attach
		if known := p.trap.stands(); known != nil {
			sa.handler = known.handler
		}
	}
	p.tracer.takeTrap(p, sa)
	if !lost {
		return nil
	}
	return r.setSigaction(unix.SIGTRAP, sa)
}

// keptHandler tells that the program has a handler for SIGTRAP, and that no breakpoint
// has reset the action. Then the breakpoint that the thread has come to found the
// signal not blocked, against our belief: a handler has returned.
//
// So it is with the guard in front of no handler, unless a breakpoint has taken that away some milliseconds before: then nobody can tell.
func (th *Thread) keptHandler() bool {
	p := th.Proc
	if looks := p.trap.handled() || p.trap.guarded() && th.blocks.trap && !p.trap.regaining; !looks || th.at.sight == stale {
		return false
	}
	st, err := procfs.ReadStatus(th.Proc.PID, th.TID)
	if err != nil || !Sigset(st.SigCgt).Has(unix.SIGTRAP) {
		return false
	}
	th.blocks.trap, th.blocks.inTrapHandler = false, false
	return true
}

// noteTrapHandler is called when a SIGTRAP of the target's own is about to be
// delivered. If the program has a handler and there is no guard, that runs with SIGTRAP
// blocked, and a breakpoint in it takes the handler away; so it is remembered. The
// program may have set another one since, so it is read each time, but not for each
// step of a program that traces itself. With a guard, a signal that was sent waits if
// the thread would block it without us. It does not interrupt a system call if the
// target ignores it. The guard is told which signals came from instructions. The answer
// tells that this took other stops: the signal will be reported again.
func (t *Tracer) noteTrapHandler(th *Thread) (again bool) {
	p := th.Proc
	info, err := th.Siginfo()
	if err != nil {
		return false
	}
	if th.unblocked.owesBlock && p.trap.guarded() && info.Code() <= 0 && th.postpone() {
		th.keepBlocked()
		t.dispatchAgain(th)
		return true
	}
	if th.guard.asked && p.trap.guarded() && info.Code() <= 0 {
		switch {
		case p.trap.own.ignored: // it is not to end a system call
			th.guard.asked = false
			t.dispatchAgain(th)
			return true
		case th.nested() && th.postpone():
			th.keepBlocked()
			t.dispatchAgain(th)
			return true
		}
	}
	known := p.trap.stands() != nil && !p.trap.guardOnly()
	if th.guard.asked || known && info.Code() > 0 && !info.breakpoint() {
		th.guard.asked, th.blocks.inTrapHandler = false, p.trap.handled() && !p.trap.guarded() // a guard does not block the signal for it
		if p.trap.guarded() && info.Code() > 0 {
			info.markOwn()
			_ = th.SetSiginfo(info)
		}
		return false
	}
	if !known && !p.trap.guarded() {
		if p.noteDispositions(); !p.trap.matters() { // also that it is ignored a breakpoint takes away
			return false
		}
	}
	blocks := false
	if err := th.remote(func(r *Remote) (err error) {
		blocks, err = r.judgeTrap(info.Code() <= 0)
		return err
	}); err != nil {
		th.guard.asked = true // else it would be asked again and again, if the signal has been postponed
		return false
	}
	if th.guard.asked = true; blocks {
		th.keepBlocked()
	} else if !info.breakpoint() {
		th.guard.told = th.ip()
	}
	t.dispatchAgain(th)
	return true
}

// nested tells that the thread is in the program's handler of SIGTRAP, in front of which a guard stands: that does not block the signal, as the
// kernel would for the handler. A second one, which somebody sends, is to wait until it returns: then the kernel unblocks it. The handler's
// frame is on the thread's stack, above all that it has called.
func (th *Thread) nested() bool {
	const most = 64 << 10 // bytes of stack that are looked at
	own := th.Proc.trap.own.action
	regs, err := th.hostRegs()
	if err != nil || host.Frames == nil || own.handler <= sigIgn || own.flags&saNoDefer != 0 {
		return false
	}
	stack := make([]byte, most)
	for n := len(stack); n >= pageSize; n /= 2 {
		if th.Proc.Space.ReadMemory((regs.SP()+7)&^7, stack[:n]) == nil {
			return host.Frames.InHandler(stack[:n], int(unix.SIGTRAP), arch.Addr(th.Proc.trap.guard.restorer))
		}
	}
	return false
}

// judgeTrap reads the action for a SIGTRAP that the thread is about to get, and sets it right; sent says that no instruction has raised the signal. If a
// breakpoint has reset the action its handler is gone, but its flags, mask and restorer tell whose it was:
//
//	the guard's, or the program's handler's    a thread blocked SIGTRAP at a breakpoint: the action is put back
//	another, in the guard's place              the program has set it, by a call that the tracer has not made (kprobes/guard_sigaction.go). It is taken to ignore the
//	                                           signal if that was sent: the program is not to die of our doubt. One that an instruction has raised nobody can ignore
//
// blocks says that it was this thread which blocked the signal, so that it is to wait.
func (r *Remote) judgeTrap(sent bool) (blocks bool, err error) {
	p := r.th.Proc
	sa, err := r.sigaction(unix.SIGTRAP)
	if err != nil {
		return false, err
	}
	lost := sa.handler == 0
	if p.trap.left(sa) {
		return r.th.hitAlone() && sent, r.setSigaction(unix.SIGTRAP, p.trap.stands())
	}
	if !p.trap.guarded() {
		if !lost {
			p.tracer.takeTrap(p, sa)
		}
		return false, nil
	}
	if lost && !sa.fallsBack() {
		p.trap.doubts(sa)
	}
	switch {
	case p.trap.doubt != nil && (lost && !sa.fallsBack() || sa.handler == p.trap.guard.handler):
		if !sent { // nobody ignores it
			return false, nil
		}
		sa = p.trap.doubt
		sa.handler = sigIgn
		err = r.setSigaction(unix.SIGTRAP, sa)
	case lost: // the guard has the program die of the signal
		return false, nil
	}
	p.tracer.takeTrap(p, sa)
	return false, err
}

// hitAlone tells whether th, and no other thread of the process, may have come to a breakpoint since the guard was last seen in its place.
func (th *Thread) hitAlone() bool { return th.guard.unsure && th.unsureAlone() }

// unsureAlone tells that no other thread may have.
func (th *Thread) unsureAlone() bool {
	for _, other := range th.Proc.threads {
		if other.guard.unsure && other != th {
			return false
		}
	}
	return true
}

// noteLoss is called before the guard is put back that a breakpoint has reset. It keeps what the action tells that stands there now of why: either
// the program had set another one in the guard's place (trapAction.doubt), or a thread blocked SIGTRAP. If only one thread may have come to a breakpoint
// meanwhile, it is that one, and it is to block SIGTRAP again when one is sent (owesBlock).
func (r *Remote) noteLoss() {
	p := r.th.Proc
	sa, err := r.sigaction(unix.SIGTRAP)
	if err != nil || sa.handler != 0 || sa.fallsBack() {
		return
	}
	if !p.trap.left(sa) {
		p.trap.doubts(sa)
		return
	}
	for _, th := range p.threads {
		th.unblocked.owesBlock = th.hitAlone() && !th.guard.answered && r.lacksTrap(th)
	}
	for _, th := range p.threads {
		th.guard.unsure = false
	}
}

// lacksTrap tells whether SIGTRAP is missing in what th, which may run, blocks by itself, and not for the guard.
func (r *Remote) lacksTrap(th *Thread) bool {
	m, ok := Sigset(0), true
	switch {
	case th.owed.mask != nil:
		m = *th.owed.mask
	case th == r.th:
		m = r.own
	default:
		st, err := procfs.ReadStatus(th.Proc.PID, th.TID)
		m, ok = Sigset(st.SigBlk), err == nil
	}
	return ok && !m.Has(unix.SIGTRAP) && !th.takenOut(m) && !th.blocks.all
}

// keepBlocked makes the thread block SIGTRAP, as it did before a breakpoint, and one that was put off wait until the thread unblocks it.
func (th *Thread) keepBlocked() {
	m, err := th.sigmask()
	if err != nil || th.setSigmask(m|sigbit(unix.SIGTRAP)) != nil {
		return
	}
	th.blocks.trap, th.guard.asked, th.unblocked.owesBlock = true, false, false
	th.owed.trapsWait()
}
