package ptrace

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// Delays. A Handler method may ask that the thread which it is about goes on later. Where the thread would be
// resumed it then stays in its ptrace-stop; a timer's closure resumes it. The tracer does not wait meanwhile.
//
// To everybody else the thread is one that stopped for us (Interrupt) at the place where it goes on, by Regs:
//
//   - Freeze finds it stopped, and leaves it so. Freezes do not shorten the delay, and
//     neither do system calls that the thread makes for us.
//   - Other threads of the program see one that the scheduler does not choose. It keeps
//     its held signals.
//   - Its own signals wait in the kernel, with their order; those of the process are
//     taken by other threads. It gets the signal of this stop when it goes on.
//   - A group-stop is complete, to the shell that waits for it, when the delay is over: a thread in a
//     ptrace-stop joins it when it is resumed. The other threads stop at once.
//   - SIGKILL, exit_group(2) and execve(2) of another thread end it: the kernel wakes it to die, and its stop at
//     exit is dispatched as ever.
//   - Detach lets it go at once, from where it stands.
//   - fork(2) of another thread makes a child without it; in vfork(2) the parent waits for a delayed child.
//
// Should the tracer be killed, the kernel lets the thread go on with the registers that the kernel has, and no
// signal. So its registers are written before; only one whose copy is to be single-stepped is put back to
// the breakpoint, which the guard understands (see reap.go).

// delay is one in progress.
type delay struct{ timer *time.Timer }

// Delay makes the thread, which a Handler method is about, stay stopped for d from when it would be resumed;
// several calls add up. Elsewhere it does nothing. Handler.Signal is called once more, behind the delay, for a signal that does not queue.
func (th *Thread) Delay(d time.Duration) {
	if d <= 0 || !th.handled || th.state != stopped {
		return
	}
	if th.at.wait += d; th.at.wait < 0 {
		th.at.wait = math.MaxInt64
	}
}

// Delayed tells whether the thread waits for the end of a delay.
func (th *Thread) Delayed() bool { return th.delayed != nil }

// park begins the delay that was asked for a thread which is about to be resumed with sig. It reports whether
// the thread is not to be resumed now.
func (t *Tracer) park(th *Thread, sig unix.Signal) bool {
	if sig != 0 && sig == th.stopSignal() {
		if t.stopHere(th) == nil {
			t.enqueue(th) // the delay is behind it
		}
		return true
	}
	switch th.at.stop.Reason {
	case SyscallStop: // at the return from the call
		if t.toUserMode(th) != nil {
			return true // its end is dispatched
		}
		if th.at.stop.Reason != Interrupt {
			t.enqueue(th) // for what came first; the delay is behind it
			return true
		}
	case Breakpoint, SingleStep, Signal, Interrupt:
	default:
		return false
	}
	th.keepForResume(sig)
	t.settleStop(th)
	th.at.kept, th.at.unmarked = nil, nil
	th.at.stop.Reason = Interrupt
	th.noteLetGo()
	d := &delay{}
	d.timer = time.AfterFunc(th.at.wait, func() {
		_ = t.Do(func() {
			if th.delayed == d {
				t.unpark(th)
			}
		})
	})
	th.delayed, th.at.wait = d, 0
	return true
}

// keepForResume holds the signal that the thread is to be resumed with: in the kernel, if it does not queue, lest it be lost if we are killed.
func (th *Thread) keepForResume(sig unix.Signal) {
	if sig == 0 {
		return
	}
	if info, err := th.Siginfo(); err == nil && heldByKernel.Has(info.Signo()) {
		th.resend(info)
	} else if err == nil {
		th.owed.first(info)
	}
}

// settleStop makes what the kernel has of a stopped thread something that it can go on with by itself.
func (t *Tracer) settleStop(th *Thread) {
	if t.unreaped == th.TID {
		t.take()
	}
	if th.at.regs.valid && th.at.next != nextStep {
		_ = th.writeThrough() // if it is killed meanwhile, its exit follows
	}
}

// unpark resumes a thread whose delay is over.
func (t *Tracer) unpark(th *Thread) {
	th.endDelay()
	switch {
	case th.queued || th.state != stopped: // it is killed
	case th.at.stop.Reason == GroupStop: // it has made system calls for us
		th.resendHeld()
		t.listen(th)
	default:
		t.resume(th, th.takeHeld())
	}
}

// endDelay: the thread goes on, or is gone.
func (th *Thread) endDelay() {
	if th.delayed != nil {
		th.delayed.timer.Stop()
		th.delayed = nil
	}
}
