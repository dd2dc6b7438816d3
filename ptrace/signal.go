package ptrace

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// breakpoint asks the Handler about a breakpoint stop and resumes the thread. The
// stop is a signal-delivery-stop, so any one signal can be delivered from it.
func (t *Tracer) breakpoint(th *Thread) {
	t.cpu.follow(th)
	if !t.handler.Breakpoint(th) {
		t.resume(th, unix.SIGTRAP)
		return
	}
	if t.threads[th.TID] != th || th.state != stopped {
		return
	}
	t.restoreTrap(th)
	th.resendTrap()
	t.resume(th, th.takeHeld())
}

// signal delivers, holds or drops a signal of the target.
func (t *Tracer) signal(th *Thread) {
	info, err := th.siginfo()
	if err != nil {
		return // killed meanwhile
	}
	th.substitute(info)
	switch t.handler.Signal(th, info) {
	case Deliver:
		th.resendHeld()
		th.restartIgnored(info.Signo())
		t.resume(th, th.stop.Signal)
	case Hold:
		th.hold(info)
		t.resume(th, 0)
	case Drop:
		t.resume(th, 0)
	}
}

// hold keeps a signal back. Until Release the thread's asynchronous signals are
// blocked, so that later ones queue in the kernel in their own order. The signals
// that instructions raise are not: the kernel would reset their handlers.
func (th *Thread) hold(info *Siginfo) {
	copied := *info
	th.held = append(th.held, &copied)
	if th.holdMask != nil {
		return
	}
	if m, err := th.sigmask(); err == nil && th.setSigmask(m|allSignals&^syncSignals) == nil {
		th.holdMask = &m
	}
}

// Release lets signals that were held be delivered when the thread is resumed.
func (th *Thread) Release() {
	if th.holdMask != nil {
		_ = th.setSigmask(*th.holdMask)
		th.holdMask = nil
	}
	th.released = len(th.held) > 0
}

// Held reports whether signals wait for Release.
func (th *Thread) Held() bool { return len(th.held) > 0 }

// Raise makes the thread take the signal that info describes when it is resumed
// from its present Breakpoint stop, as if its instruction had raised it. As the kernel
// does for such a signal (force_sig_info_to_task), it unblocks it, and if the process
// blocks or ignores it, its action becomes the default.
func (th *Thread) Raise(info *Siginfo) {
	th.force(info.Signo())
	th.held = append([]*Siginfo{info}, th.held...)
	th.released = true
}

func (th *Thread) force(sig unix.Signal) {
	m, err := th.sigmask()
	if err != nil {
		return
	}
	st, err := procfs.ReadStatus(th.Proc.PID, th.TID)
	if err != nil || !m.Has(sig) && !Sigset(st.SigIgn).Has(sig) {
		return
	}
	_ = th.setSigmask(m &^ sigbit(sig))
	_ = th.remote(func(r *Remote) error { return r.setSigaction(sig, new(sigaction)) })
}

// SetSiginfo changes what the signal being delivered tells its handler.
func (th *Thread) SetSiginfo(info *Siginfo) error { return th.setSiginfo(info) }

// takeHeld is the signal to resume the thread with: the first of the held ones,
// with its own siginfo. The rest is sent again.
func (th *Thread) takeHeld() unix.Signal {
	if !th.released {
		return 0
	}
	th.released = false
	held := th.held
	th.held = nil
	var sig unix.Signal
	if th.injectable && th.setSiginfo(held[0]) == nil {
		sig = held[0].Signo()
		held = held[1:]
	}
	for _, info := range held {
		th.resend(info)
	}
	return sig
}

// resendTrap queues the SIGTRAP that came in one with a breakpoint's.
func (th *Thread) resendTrap() {
	if th.sentTrap != nil {
		th.resend(th.sentTrap)
		th.sentTrap = nil
	}
}

// resendHeld queues what is held behind the signal that is delivered from this stop.
func (th *Thread) resendHeld() {
	if !th.released {
		return
	}
	th.released = false
	for _, info := range th.held {
		th.resend(info)
	}
	th.held = nil
}

// resend queues a signal once more. The kernel takes a siginfo from us only for signals
// that a program queued; any other comes back as a tgkill(2) of ours and is given its
// own siginfo then.
func (th *Thread) resend(info *Siginfo) {
	copied := *info
	if code := copied.Code(); code < 0 && code != siTkill && th.queueinfo(&copied) == nil {
		return
	}
	if unix.Tgkill(th.Proc.PID, th.TID, copied.Signo()) == nil {
		th.resent = append(th.resent, &copied)
	}
}

// substitute puts the original siginfo into a signal that resend queued.
func (th *Thread) substitute(info *Siginfo) {
	// In another PID namespace we have no ID.
	if info.Code() != siTkill || info.PID() != os.Getpid() && info.PID() != 0 {
		return
	}
	for i, r := range th.resent {
		if r.Signo() == info.Signo() {
			th.resent = append(th.resent[:i], th.resent[i+1:]...)
			*info = *r
			_ = th.setSiginfo(info)
			return
		}
	}
}

// restartCall repeats a system call that failed with EINTR for no other reason than our
// stop. The kernel restarts most calls by itself, but not these. A timeout begins anew:
// a call may block longer than asked, but without a signal it may not fail with EINTR.
func (th *Thread) restartCall() {
	regs, err := th.hostRegs()
	if err != nil {
		return
	}
	again := *regs
	if !repeatCall(&again) {
		return
	}
	st, err := procfs.ReadStatus(th.Proc.PID, th.TID)
	if err != nil || Sigset(st.SigPnd|st.ShdPnd)&^Sigset(st.SigBlk) != 0 {
		return // a signal is about to be delivered: it may well be the reason
	}
	*regs = again
}

// restartIgnored does the same when the signal being delivered is one that the process
// ignores. Without a tracer it would not have been queued, nor have ended the call.
func (th *Thread) restartIgnored(sig unix.Signal) {
	regs, err := th.hostRegs()
	if err != nil {
		return
	}
	again := *regs
	if !repeatCall(&again) {
		return
	}
	st, err := procfs.ReadStatus(th.Proc.PID, th.TID)
	if err != nil || Sigset(st.SigCgt).Has(sig) || !Sigset(st.SigIgn).Has(sig) && !ignoredByDefault.Has(sig) {
		return
	}
	if Sigset(st.SigPnd|st.ShdPnd)&^Sigset(st.SigBlk) == 0 {
		*regs = again
	}
}

// noteMask learns from the mask at a stop that no breakpoint caused whether the thread
// blocks SIGTRAP. A full mask says nothing: see Sigset.full.
func (th *Thread) noteMask() {
	m, err := th.sigmask()
	if err != nil {
		return
	}
	th.maskFull = m.full()
	switch {
	case th.maskFull:
	case m.Has(unix.SIGTRAP):
		th.trapBlocked = true
	case th.trapBlocked:
		// A breakpoint that is not reported yet has unblocked it already.
		th.trapBlocked = th.pendingSynchronous()
	}
}

// restoreTrap undoes what a breakpoint does to a thread that blocks or ignores
// SIGTRAP: the kernel unblocks the signal and resets its action to the default
// (force_sig_info_to_task in kernel/signal.c). What was there before can't be read
// after the fact, so it is what was last seen: by noteMask, and at attach. A program
// that blocks SIGTRAP, and nothing else, later on is not noticed before it next stops.
func (t *Tracer) restoreTrap(th *Thread) {
	p := th.Proc
	if th.holdMask != nil || !p.trapIgnored && !p.trapHandled && !th.trapBlocked && !th.maskFull {
		return
	}
	m, err := th.sigmask()
	if err != nil {
		return
	}
	with := m | sigbit(unix.SIGTRAP)
	th.maskFull = with.full()
	blocked := th.trapBlocked || th.maskFull
	if blocked && m != with {
		_ = th.setSigmask(with)
	}
	if p.trapAction != nil && (p.trapIgnored || p.trapHandled && blocked) {
		_ = th.remote(func(r *Remote) error { return r.setSigaction(unix.SIGTRAP, p.trapAction) })
	}
}
