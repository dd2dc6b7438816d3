package ptrace

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// Calling a function of the target. While a Handler method is about a thread,
// Thread.Call sends that thread into the function and goes on with the tracer's loop
// inside of the method. Stops of all threads are dispatched and closures run, until the
// thread has come to the breakpoint that it returns to, or the call has ended in
// another way.
//
//	step ── dispatch(A) ── Handler ── A.Call ── step ── dispatch(B) ── Handler ── B.Call ── …
//
// So calls of several threads are nested, and return in the reverse order of their
// beginning: a thread whose function is done stands still until the calls that began after
// its own have ended. Each has a deadline, so each comes to an end.
//
// To the thread it is as if nothing had happened: general and extended registers, the
// state of its stop, and the signal that it stopped for are put back. Other threads see
// what the function does, and below the red zone of the stack its frame; as ever they
// run on, hit, are handled and may be frozen or let go. The thread's signals are
// delivered on the way, in the function. Signals that waited for this hit to end are
// delivered there, too.

// Call is a function call to make.
type Call struct {
	// Enter makes the registers those at the function's entry: see arch.Arch.SetCall.
	Enter func(arch.Regs) error
	// Landing is a breakpoint of ours that the function returns to.
	Landing arch.Addr
	Timeout time.Duration
	// Landed is given the registers that the function has returned with, while the thread
	// stands there.
	Landed func(arch.Regs)
	// Left reports whether the thread, which is stopped, has left the function: it is
	// not in the function, nor in anything that it called, nor in a signal's handler
	// that interrupted these.
	Left func() bool
}

// CallFault is the error of a call in which the thread raised an exception. The target gets
// no signal for it.
type CallFault struct {
	Siginfo
	IP arch.Addr // of the instruction
}

func (f *CallFault) Error() string {
	return fmt.Sprintf("%s at %s (address %s)", unix.SignalName(f.Signo()), f.IP, f.Addr())
}

// injectedCall is a call in progress.
type injectedCall struct {
	Call
	before aside
	cfa    arch.Addr // the stack pointer when the function has returned
	late   error     // to be taken back for, when the thread comes out of vfork(2)
	over   bool
	err    error
}

// aside is what a thread was before a call, put aside as a whole (putAside) and taken back as a whole (takeBack).
type aside struct {
	at      *standing // where it was, and comes back to
	kept    *Siginfo  // of the signal that it stopped for
	grouped bool      // it was in a group-stop
	blocks  blocked
	mask    Sigset
	xstate  []byte
}

// putAside is all that a call of a function changes. The mask is read when the thread departs.
func (th *Thread) putAside(xstate []byte) aside {
	return aside{at: th.at, kept: th.keepSiginfo(), grouped: th.job.grouped, blocks: th.blocks, xstate: slices.Clone(xstate)}
}

// takeBack puts everything back. A function that has returned leaves its mask of signals, and what is known of that; one that has not leaves none. A
// group-stop goes on: the function ran in spite of it. After an error the thread was killed meanwhile.
func (th *Thread) takeBack(a *aside, returned bool) error {
	err := th.setExtended(a.xstate)
	if !returned {
		_ = th.setSigmask(a.mask)
		th.blocks = a.blocks
	}
	if err == nil {
		_, err = th.hostRegs()
	}
	if err != nil {
		return err
	}
	if th.at.injectable && a.at.injectable && a.kept != nil && th.setSiginfo(a.kept) != nil {
		th.at.injectable = false
	}
	a.at.resettle(th.at, a.kept)
	th.at = a.at
	th.job.grouped = th.job.grouped || a.grouped
	if th.at.stop.Reason == GroupStop {
		th.at.stop.Reason = Interrupt
	}
	return nil
}

// Call calls a function on the thread that a Handler method is about, and returns when
// that is done. Errors are ErrNotHandled outside of such a method, ErrCallTimeout,
// ErrCallLeft, and a *CallFault; ErrExited if the thread or its process has ended or
// called exec; ErrLetGo if it was detached. After the last three the thread is not what
// the method was about any more.
func (th *Thread) Call(c Call) error {
	t := th.Proc.tracer
	if unix.Gettid() != t.tid || !th.handled || th.call != nil || th.state != stopped {
		return ErrNotHandled
	}
	if err := t.stopHere(th); err != nil {
		return err
	}
	ic, err := th.prepareCall(c)
	if err != nil {
		return err
	}
	th.call = ic
	if err := t.depart(th); err != nil {
		th.endCall(err)
		return ic.err
	}
	deadline := time.AfterFunc(c.Timeout, func() {
		_ = t.Do(func() {
			if th.call == ic && !ic.over {
				t.recall(th, ErrCallTimeout)
			}
		})
	})
	defer deadline.Stop()
	for !ic.over && !t.stopped() {
		t.safely(t.step)
	}
	if !ic.over {
		th.endCall(ErrClosed)
	}
	if th.call == ic {
		th.call, th.handled = nil, true
	}
	return ic.err
}

// prepareCall saves what the call changes and sets the registers for it.
func (th *Thread) prepareCall(c Call) (*injectedCall, error) {
	if _, err := th.hostRegs(); err != nil {
		return nil, err
	}
	fpu, err := th.extended()
	if err != nil {
		return nil, err
	}
	ic := &injectedCall{Call: c, before: th.putAside(fpu)}
	there := th.at.elsewhere()
	if err := c.Enter(&there.regs.own); err != nil {
		return nil, err
	}
	if _, ic.cfa, err = host.Arch.Caller(&there.regs.own, th.Proc.Space); err == nil && host.EmptyX87(fpu) {
		err = th.setExtended(fpu)
	}
	if err != nil {
		return nil, err
	}
	th.at = there
	return ic, nil
}

// depart sends the thread into the function, as a hit ends: with its signals.
func (t *Tracer) depart(th *Thread) error {
	if th.at.stop.Reason == Breakpoint || th.at.stop.Reason == SingleStep {
		t.restoreTrap(th)
		th.call.before.at.judged = true
	}
	th.resendTrap()
	th.release()
	var err error
	if th.call.before.mask, err = th.sigmask(); err != nil {
		return err
	}
	th.handled, th.job.grouped = false, false
	t.resume(th, th.takeHeld())
	return nil
}

func (th *Thread) away() bool { return th.call != nil && !th.call.over }

// landed tells whether the thread, at a breakpoint, has returned from the function.
func (th *Thread) landed() bool {
	if !th.away() || th.ip() != th.call.Landing.Add(int64(host.Arch.BreakpointAdvance())) {
		return false
	}
	regs, err := th.hostRegs()
	return err == nil && regs.SP() == th.call.cfa
}

// land ends the call of a thread that has landed.
func (t *Tracer) land(th *Thread) {
	ic := th.call
	t.restoreTrap(th)
	th.resendTrap()
	th.release() // a signal that came when the function had returned was held in front of the breakpoint
	th.resendHeld()
	if th.call != ic || th.state != stopped {
		return // killed meanwhile
	}
	if regs, err := th.hostRegs(); err == nil {
		ic.Landed(regs)
	}
	t.bringHome(th, true)
}

// callFault tells whether the signal that the thread stopped for is an exception that ends its
// call. SIGSYS is none: it is how sandboxes make system calls.
func (th *Thread) callFault() *CallFault {
	if !th.away() {
		return nil
	}
	info, err := th.siginfo()
	if err != nil || !info.Synchronous() || info.Signo() == unix.SIGSYS {
		return nil
	}
	return &CallFault{*info, th.ip()}
}

// recall takes a thread back from its call, wherever it is, for the reason that err gives. A
// thread inside vfork(2) can't be: it is when it comes out. One that has left the function by
// another way than its return is not, but goes on from where it is: what the registers to come
// back to refer to may be gone.
func (t *Tracer) recall(th *Thread, err error) {
	ic := th.call
	if th.state == running && th.interrupt() == nil {
		t.settle(th)
	}
	_ = t.stopHere(th) // what comes of it is looked at now
	switch {
	case th.call != ic || th.state == exiting:
		return // its end has ended the call
	case th.state == parked, th.at.stop.Reason == Vfork:
		ic.late = err
		t.giveBack(th)
		return
	case th.at.stop.Reason == Breakpoint && th.landed():
		th.queued, th.frozen = false, false
		t.land(th)
		return
	case ic.Left():
		th.endCall(ErrCallLeft)
		t.giveBack(th)
		return
	}
	th.takeRequestBack()
	if t.toUserMode(th) != nil {
		return
	}
	th.queued, th.frozen = false, false
	t.sendAgain(th)
	ic.err = err
	t.bringHome(th, false)
}

// sendAgain queues the signals that a thread which is taken back was about to get.
func (t *Tracer) sendAgain(th *Thread) {
	if th.at.stop.Reason == Signal {
		if info, err := th.siginfo(); err == nil && th.callFault() == nil {
			th.resend(info)
		}
	}
	th.resendTrap()
	th.release()
	th.resendHeld()
}

// bringHome ends the call of a thread that is back from it.
func (t *Tracer) bringHome(th *Thread, landed bool) {
	ic := th.call
	if err := th.takeBack(&ic.before, landed); err != nil {
		th.endCall(err)
		return
	}
	ic.over = true
}

// endCall ends a call whose thread does not come back from it: the stop that it was made in is
// past.
func (th *Thread) endCall(err error) {
	ic := th.call
	if ic == nil {
		return
	}
	if !ic.over {
		ic.over, ic.err = true, err
	}
	th.call = nil
}

// RecallAll waits for the end of all calls. Calls that have not ended when grace is
// over end with ErrLetGo: locks that their functions hold stay locked. It must be
// called before a process is detached from, and waits for threads inside vfork(2).
func (t *Tracer) RecallAll(grace time.Duration) {
	late := time.AfterFunc(grace, func() { t.post(t.recallAll) })
	defer late.Stop()
	t.rung = true // for calls of Do that came with the one that this is in
	for t.anyAway() {
		t.safely(t.step)
	}
}

func (t *Tracer) recallAll() {
	for _, th := range t.threads {
		if th.away() {
			t.recall(th, ErrLetGo)
		}
	}
}

func (t *Tracer) anyAway() bool {
	for _, th := range t.threads {
		if th.away() {
			return true
		}
	}
	return false
}

// holds tells whether the thread still stands at the stop that it had when at, its standing, was read.
func (t *Tracer) holds(th *Thread, at *standing) bool {
	return t.threads[th.TID] == th && th.state == stopped && th.at == at
}
