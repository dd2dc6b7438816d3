package ptrace

import "golang.org/x/sys/unix"

// hold keeps a signal back. Until release the thread's asynchronous signals are
// blocked, so that later ones queue in the kernel in their own order. The signals
// that instructions raise are not: the kernel would reset their handlers.
//
// If we are killed meanwhile, the signals that we keep are lost. So a signal that does
// not queue goes back to the kernel, to wait there: of its kind there is no order to
// keep.
func (th *Thread) hold(info *Siginfo) {
	copied := *info
	th.blockHeld()
	if th.owed.mask != nil && heldByKernel.Has(copied.Signo()) {
		th.resend(&copied)
		return
	}
	th.owed.held = append(th.owed.held, &copied)
}

// heldByKernel are the signals that wait in the kernel while they are held: asynchronous ones that do not queue, and do nothing but to be delivered.
const heldByKernel = Sigset(1<<31-1) &^ (syncSignals | stopSignals | unblockable | 1<<(unix.SIGCONT-1))

// blockHeld blocks asynchronous signals until release, if what the thread blocks by itself can be noted.
func (th *Thread) blockHeld() {
	if th.owed.mask != nil {
		return
	}
	m, err := th.sigmask()
	if err != nil {
		return
	}
	instead := (m | allSignals&^syncSignals) &^ unblockable
	h := th.Proc.tracer.handler
	if !h.KeepMask(th, m, instead) {
		return
	}
	if th.setSigmask(instead) == nil {
		th.owed.mask = &m
	} else {
		h.MaskGiven(th)
	}
}

// release lets signals that were held be delivered when the thread is resumed.
func (th *Thread) release() {
	if th.owed.mask != nil {
		_ = th.setSigmask(*th.owed.mask)
		th.owed.mask = nil
		th.Proc.tracer.handler.MaskGiven(th)
		if th.owed.unblock {
			th.owed.unblock = false
			th.unblock()
		}
	}
	th.owed.released = len(th.owed.held) > 0
}

// takeHeld is the signal to resume the thread with: the first of the held ones,
// with its own siginfo. The rest is sent again. So is a SIGTRAP or SIGILL that was sent: by the time it is reported, what breakpoints have done to
// its action and to the thread's mask has been made up for, or deliver does it.
func (th *Thread) takeHeld() unix.Signal {
	return th.injectHeld(func(info *Siginfo) bool { return !forced.Has(info.Signo()) || info.Code() > 0 })
}

// injectHeld is takeHeld, which injects the first signal if may says so.
func (th *Thread) injectHeld(may func(*Siginfo) bool) unix.Signal {
	held := th.owed.take()
	var sig unix.Signal
	if len(held) > 0 && may(held[0]) && th.at.injectable && th.setSiginfo(held[0]) == nil {
		sig = held[0].Signo()
		held = held[1:]
	}
	for _, info := range held {
		th.resend(info)
	}
	return sig
}

// resendHeld queues the signals that are held behind the one that is delivered from
// this stop.
func (th *Thread) resendHeld() {
	for _, info := range th.owed.take() {
		th.resend(info)
	}
}
