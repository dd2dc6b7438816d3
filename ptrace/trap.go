package ptrace

import (
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// A breakpoint's SIGTRAP is forced: if the thread blocks the signal or the process ignores
// it, the kernel unblocks it and resets its action to the default
// (force_sig_info_to_task in kernel/signal.c). Both are put back after each hit.

// noteMask learns from the mask at a stop that no breakpoint caused whether the thread
// blocks SIGTRAP. A full mask says nothing: see Sigset.full.
func (th *Thread) noteMask() {
	m, err := th.sigmask()
	if err != nil {
		return
	}
	th.maskFull = m.full()
	th.noteFaultMask(m)
	switch {
	case th.maskFull:
	case m.Has(unix.SIGTRAP):
		th.trapBlocked = true
	case th.trapBlocked:
		// A breakpoint that is not reported yet has unblocked it already.
		th.trapBlocked = th.pendingSynchronous()
	}
}

// restoreTrap undoes what a breakpoint does to a thread that blocks or ignores SIGTRAP.
// What was there before can't be read after the fact, so it is what was last seen: by
// noteMask, noteTrapHandler, and at attach. A program that blocks SIGTRAP, and nothing
// else, later on is not noticed before it next stops.
func (t *Tracer) restoreTrap(th *Thread) {
	p := th.Proc
	t.checkGuard(p)
	if th.holdMask != nil || !p.trapIgnored && !p.trapHandled && !th.trapBlocked && !th.maskFull {
		return
	}
	m, err := th.sigmask()
	if err != nil {
		return
	}
	with := m | sigbit(unix.SIGTRAP)
	th.maskFull = with.full()
	if th.maskFull && p.own != nil && !p.trapHandled {
		th.unblocked, th.unblockedFrom = true, with // until it leaves: see Space.Unblock
		t.regainGuard(p)
		return
	}
	blocked := (th.trapBlocked || th.maskFull || th.inTrapHandler) && !th.keptHandler()
	if blocked && m != with {
		_ = th.setSigmask(with)
	}
	switch {
	case p.trapAction == nil:
	case p.own != nil && !p.trapHandled:
		if blocked {
			t.regainGuard(p)
		}
	case p.trapIgnored || p.trapHandled && blocked:
		_ = th.remote(func(r *Remote) error { return r.restoreTrapAction(p) })
	}
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
		sa.handler = p.trapAction.handler
	}
	p.tracer.takeTrap(p, sa)
	if !lost {
		return nil
	}
	return r.setSigaction(unix.SIGTRAP, sa)
}

// keptHandler tells that the process has its handler for SIGTRAP still. Then the
// breakpoint found the signal not blocked, whatever was believed: a handler has returned.
func (th *Thread) keptHandler() bool {
	if !th.Proc.trapHandled {
		return false
	}
	st, err := procfs.ReadStatus(th.Proc.PID, th.TID)
	if err != nil || !Sigset(st.SigCgt).Has(unix.SIGTRAP) {
		return false
	}
	th.trapBlocked, th.inTrapHandler = false, false
	return true
}

// noteTrapHandler is called when a SIGTRAP of the target's own is about to be delivered. If
// it has a handler, that runs with SIGTRAP blocked, and a breakpoint in it takes the
// handler away; so it is remembered. While there is a guard, the action is read each time: the program may have put a handler in the
// guard's place. The answer tells that learning it took other stops:
// the signal will be reported again.
func (t *Tracer) noteTrapHandler(th *Thread) (again bool) {
	p := th.Proc
	switch asked := th.trapAsked; {
	case asked, p.trapAction != nil && p.own == nil:
		th.trapAsked, th.inTrapHandler = false, p.trapHandled
		return false
	case p.own == nil:
		if p.noteDispositions(); !p.trapHandled {
			return false
		}
	}
	if err := th.remote(func(r *Remote) error {
		sa, err := r.sigaction(unix.SIGTRAP)
		if err == nil && sa.handler == 0 && p.own != nil {
			return r.setSigaction(unix.SIGTRAP, p.trapAction) // a breakpoint has taken the guard away, and it has not been put back yet
		}
		if err == nil {
			t.takeTrap(p, sa)
		}
		return err
	}); err != nil {
		return false
	}
	th.trapAsked = true
	t.dispatchAgain(th)
	return true
}

// takeTrap notes that sa is p's action for SIGTRAP, as the program has set it. If there was a guard, that is none any more.
func (t *Tracer) takeTrap(p *Process, sa *sigaction) {
	guarded := p.own != nil
	if guarded && sa.handler == p.trapAction.handler {
		return
	}
	p.own, p.trapAction = nil, sa
	p.trapIgnored, p.trapHandled = sa.handler == sigIgn, sa.handler > sigIgn
	if k, ok := t.handler.(GuardKeeper); ok && guarded {
		k.GuardTaken(p)
	}
}
