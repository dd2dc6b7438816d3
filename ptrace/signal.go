package ptrace

import (
	"os"

	"golang.org/x/sys/unix"
)

// breakpoint asks the Handler about a breakpoint stop and resumes the thread. The
// stop is a signal-delivery-stop, so any one signal can be delivered from it.
func (t *Tracer) breakpoint(th *Thread) {
	if th.landed() {
		t.land(th)
		return
	}
	if !t.poll.active() {
		t.cpu.follow(th)
	}
	at := th.at
	v := t.handler.Breakpoint(th)
	if !t.holds(th, at) {
		return
	}
	if th.Go(v); v.signals() {
		t.deliver(th)
		return
	}
	th.at.restartAt = 0
	t.restoreTrap(th)
	th.resendTrap()
	t.resume(th, th.takeHeld())
}

// singleStepped asks the Handler about the end of a single step. The stop is a
// signal-delivery-stop like a breakpoint's, and to a thread that blocks or ignores SIGTRAP
// the kernel did the same. A program that traces itself has that done to it anyway.
func (t *Tracer) singleStepped(th *Thread) {
	at := th.at
	v := t.handler.SingleStepped(th)
	if !t.holds(th, at) {
		return
	}
	if th.Go(v); v.signals() {
		t.deliver(th)
		return
	}
	t.restoreTrap(th)
	th.resendTrap()
	t.resume(th, th.takeHeld())
}

// deliver resumes a thread with the signal that it stopped for, and with the signals
// held behind that.
func (t *Tracer) deliver(th *Thread) {
	th.notOurs()
	if fault := th.callFault(); fault != nil {
		if t.recall(th, fault); th.call != nil {
			return
		}
	}
	if t.threads[th.TID] != th || th.state != stopped {
		return
	}
	if th.raisesPutBack() {
		th.resendHeld()
		t.resume(th, 0)
		return
	}
	blocked := th.blockAgain()
	if !blocked && th.at.stop.Signal == unix.SIGTRAP && t.noteTrapHandler(th) {
		return
	}
	if blocked && th.sendOn() {
		th.resendHeld()
		t.resume(th, 0)
		return
	}
	if th.timed != nil && th.timed.restarts {
		th.endTimed() // a handler comes in between: the call begins its time anew, as without us
	}
	th.resendHeld()
	if !th.at.injectable {
		th.resendKept()
		t.resume(th, 0)
		return
	}
	t.resume(th, th.at.stop.Signal)
}

// keepSiginfo copies the siginfo of the signal being delivered. After system calls for us the
// thread stands elsewhere in the kernel, where no signal can be delivered from.
func (th *Thread) keepSiginfo() *Siginfo {
	if !th.at.injectable {
		return th.at.kept
	}
	info, err := th.Siginfo()
	if err != nil {
		return nil
	}
	return info
}

// resendKept sends the signal that the thread stopped for, before it made system calls for
// us, to the target.
func (th *Thread) resendKept() {
	if th.at.kept != nil {
		th.resend(th.at.kept)
		th.at.kept = nil
	}
}

// signal delivers, holds or drops a signal of the target.
func (t *Tracer) signal(th *Thread) {
	info, err := th.siginfo()
	if err != nil {
		return // killed meanwhile
	}
	sig, raised := info.Signo(), info.Synchronous()
	at := th.at
	delivery, v := Deliver, AsTold()
	if !th.wasTold(sig) && th.stopSignal() == 0 { // else nothing can see where the thread stands
		th.at.deciding = true
		delivery, v = t.handler.Signal(th, info)
		th.at.deciding = false
	}
	if !t.holds(th, at) {
		return
	}
	th.Go(v)
	switch delivery {
	case Deliver:
		th.restartIgnored(sig)
		if t.noteDelivery(th, sig); t.holds(th, at) {
			t.deliver(th)
		}
	case Hold:
		th.hold(info)
		t.resume(th, 0)
	case Drop:
		if raised {
			th.at.deciding = true
			th.undoFault(sig)
			th.at.deciding = false
		}
		t.resume(th, th.takeHeld())
	}
}

// wasTold reports whether the Handler has been told of the signal in an earlier stop at this place, behind which the action of SIGTRAP was read.
func (th *Thread) wasTold(sig unix.Signal) bool {
	at := th.guard.told
	th.guard.told = 0
	return at != 0 && sig == unix.SIGTRAP && at == th.ip()
}

// Siginfo returns a copy of what the signal being delivered tells its handler. The stop
// must be a signal-delivery-stop.
func (th *Thread) Siginfo() (*Siginfo, error) {
	info, err := th.siginfo()
	if err != nil {
		return nil, err
	}
	copied := *info
	return &copied, nil
}

// SetSiginfo changes what the signal being delivered tells its handler.
func (th *Thread) SetSiginfo(info *Siginfo) error { return th.setSiginfo(info) }

// resendTrap queues the SIGTRAP that came in one with a breakpoint's.
func (th *Thread) resendTrap() {
	if th.owed.trap != nil {
		before := len(th.owed.resent)
		th.resend(th.owed.trap)
		for i := range th.owed.resent[before:] {
			th.owed.resent[before+i].waits = true
		}
		th.owed.trap = nil
	}
}

// resend queues a signal once more. The kernel takes a siginfo from us only for signals
// that a program queued; any other comes back as a tgkill(2) of ours and is given its
// own siginfo then.
func (th *Thread) resend(info *Siginfo) {
	copied := *info
	if th.overtaken(copied.Signo()) {
		return
	}
	if code := copied.Code(); code < 0 && code != siTkill && th.queueinfo(&copied) == nil {
		if forced.Has(copied.Signo()) {
			th.owed.requeue(&copied)
		}
		return
	}
	if unix.Tgkill(th.Proc.PID, th.TID, copied.Signo()) == nil {
		th.owed.resent = append(th.owed.resent, resentSignal{Siginfo: &copied})
	}
}

// noteWaiting is called before the thread runs on: a SIGTRAP that was sent again, and that it blocks, waits. A breakpoint's comes in one with that then.
func (th *Thread) noteWaiting() {
	if len(th.owed.resent) > 0 && th.blocksTrap() {
		th.owed.trapsWait()
	}
}

// Kill sends sig to the thread, with si_code SI_TKILL. The error is unix.EINVAL if sig
// is no signal, ErrExited if the thread is gone.
func (th *Thread) Kill(sig unix.Signal) error {
	return th.gone(unix.Tgkill(th.Proc.PID, th.TID, sig))
}

// substitute puts the original siginfo into a signal that resend queued. It reports whether
// the signal being delivered is one, and can't be anything else: one that waited, blocked,
// may have swallowed a trap of ours meanwhile.
func (th *Thread) substitute() bool {
	if len(th.owed.resent) == 0 && len(th.owed.requeued) == 0 {
		return false
	}
	info, err := th.siginfo()
	if err == nil && th.owed.takeRequeued(info) {
		th.at.again = true
		return false
	}
	// In another PID namespace we have no ID.
	if err != nil || info.Code() != siTkill || info.PID() != os.Getpid() && info.PID() != 0 {
		return false
	}
	r, ok := th.owed.takeResent(info.Signo())
	if !ok {
		return false
	}
	*info, th.at.again = *r.Siginfo, true
	_ = th.setSiginfo(info)
	return !r.waits
}
