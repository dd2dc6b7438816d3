package ptrace

import (
	"math/bits"

	"golang.org/x/sys/unix"
)

// blockAgain makes a thread that believes to block a signal which somebody has sent,
// SIGTRAP or SIGILL, block it: it was taken out of nearly all signals for the guard.
// Then the kernel does not deliver the signal: it requeues one that is blocked by then
// (ptrace_signal in kernel/signal.c), for the thread or the process, as it was sent. It
// waits for sigwait(3), a signalfd, or until the target unblocks it. From then on the
// thread is not unblocked for the guard any more, since nobody tells when the signal
// has been taken: where it blocks nearly all signals, a breakpoint that it meets after
// our death ends the process.
func (th *Thread) blockAgain() bool {
	sig := th.at.stop.Signal
	if !forced.Has(sig) {
		return false
	}
	info, err := th.siginfo()
	if err != nil || info.Code() > 0 {
		return false
	}
	m, err := th.sigmask()
	if err != nil || !th.lessened(m, sig) || th.setSigmask(m|sigbit(sig)) != nil {
		return false
	}
	if th.unblocked.sentWaits = true; sig == unix.SIGTRAP {
		th.blocks.trap, th.guard.asked, th.unblocked.owesBlock = true, false, false
	}
	th.blocks.sawFaults(m|sigbit(sig), th.pendingSynchronous)
	return true
}

// sendOn sends to the process the signal that the thread has stopped for, and blocks by now. The answer tells that this was done: then the thread is to be
// resumed without it.
//
// It is for a signal that we have sent again, which is the thread's alone: the kernel would requeue it for the thread, where nobody else finds it that waits for
// signals of the process. Whom it was sent to at first, its code tells (siginfo in sigaction(2)): tgkill(2) names a thread; kill(2), timers and message queues mean the
// process, and so does sigqueue(3). One of pthread_sigqueue(3) can't be told from that; its thread finds it in the process as well. The sender of a kill(2) is
// we then, since the kernel lets nobody send that in another's name.
//
// If we are killed before the thread is resumed, the signal comes twice: to the process, and requeued to the thread. To take the stop first could lose it.
func (th *Thread) sendOn() bool {
	if !th.at.again && th.at.injectable {
		return false
	}
	info, err := th.siginfo()
	if err != nil {
		return false
	}
	switch code := info.Code(); {
	case code > 0 || code == siTkill:
		return false
	case code == siUser:
		err = unix.Kill(th.Proc.PID, info.Signo())
	default:
		err = queueToProcess(th.Proc.PID, info)
	}
	if err == nil {
		th.at.kept = nil
	}
	return err == nil
}

// takenOut tells whether SIGTRAP is missing in m, which the thread blocks, because it was taken out of nearly all signals for the guard. Most threads
// block those for a moment only, so m does not tell whether SIGTRAP is in the mask that the program will put back.
func (th *Thread) takenOut(m Sigset) bool {
	u := &th.unblocked
	return !u.sentWaits && !m.Has(unix.SIGTRAP) && (u.is && u.stands(m) || th.Proc.trap.guarded() && !m.Has(unix.SIGILL) && th.lessened(m, unix.SIGTRAP))
}

// lessened tells whether m, which the thread blocks, is less than it has asked for by
// sig. Sets are known that tails have changed; but what a thread blocks is made of
// several calls. So a mask of nearly all signals that has those which other
// instructions raise is taken for one as well: a thread that wants to get the signals
// of instructions wants all of them.
func (th *Thread) lessened(m Sigset, sig unix.Signal) bool {
	const nearlyAll, faults = 30, 1<<(unix.SIGSEGV-1) | 1<<(unix.SIGBUS-1) | 1<<(unix.SIGFPE-1)
	rest := m &^ forced
	switch {
	case m.Has(sig) || bits.OnesCount64(uint64(rest)) < nearlyAll:
		return false
	case th.unblocked.is && rest == th.unblocked.from&^forced:
		return true
	case th.Proc.tracer.handler.Lessened(th, rest):
		return true
	}
	return rest&faults == faults && th.Proc.trap.guarded()
}
