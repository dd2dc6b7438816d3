package ptrace

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// Job control. The state of being stopped belongs to the process. The kernel keeps it
// while its threads work for us. Two rules let it be the program's own.
//
// A stop signal without a handler is never taken away to be sent again. Sending it
// discards a SIGCONT that was sent and not delivered yet (prepare_signal in
// kernel/signal.c). If we sent a SIGSTOP once more, behind the SIGCONT which was to end
// it, a process that its shell believes to run would stop for good. Looking for such a
// SIGCONT does not help: one may come between the look and our signal. So a thread
// takes the signal in the very stop that reports it, at any place, even in a copy or
// between two system calls for us. If a SIGCONT comes after a thread has dequeued a
// stop signal, and before it acts on that, the kernel notes it, and there is no stop
// (JOBCTL_STOP_DEQUEUED, do_signal_stop).
//
// A thread that was taken out of a group-stop goes back there when it is resumed. Out
// of a group-stop a thread makes system calls for us, is stepped, and reports
// exceptions; the process is stopped all the while. We ask for an interrupt before we
// resume it. It stops again before any instruction of its own (get_signal looks at job
// control first). That stop is a GroupStop or an Interrupt, and so tells, under the
// kernel's lock, whether the process is stopped now.
//
// For others, the thread executes no instruction of the target between the signal and
// the stop. Its parent is told of one stop, when the last thread has come to it, and of
// one SIGCONT. A second stop signal that a thread takes out of a group-stop, which
// without us would wait for SIGCONT to discard it, changes nothing (SIGNAL_STOP_STOPPED
// is set). Other threads, frozen or running, come to their group-stops when they next
// pass through the kernel's code for signals, as ever. If we are killed or detach, the
// kernel stops each thread that the group-stop is for (__ptrace_unlink in
// kernel/ptrace.c).
//
// A stop signal that a handler catches stops nothing. It is a signal like others,
// except that it discards some. So SIGCONT, if we know of it, discards the ones that we
// keep. One that we don't see is lost with its handler's run, if it comes between our
// look and our signal; the process goes on all the same.

// jobControl is what is known of a thread's part in its process's being stopped.
type jobControl struct {
	// stopped: a stop signal was the last one delivered, or the thread was in a group-stop. Unlike a stop of ours
	// that one may end a system call with EINTR (signal(7)).
	stopped   bool
	grouped   bool   // its last stop of that kind was a group-stop, where it goes back to
	continues uint64 // SIGCONTs of the process up to its stop
}

// interrupted notes a stop that is no group-stop: whoever is stopped by job control would have come to one.
func (j *jobControl) interrupted() { j.grouped = false }

// group notes a group-stop.
func (j *jobControl) group() { j.stopped, j.grouped = true, true }

// takeStopped tells whether it was stopped, and forgets it.
func (j *jobControl) takeStopped() bool {
	was := j.stopped
	j.stopped = false
	return was
}

// stopSignal is the signal that the thread has stopped for if it is one to act on where the thread stands: it stops the process, or does
// nothing. 0 for all others. An action that another thread sets at this moment may be missed: then the handler's context is
// of where the thread stands.
func (th *Thread) stopSignal() unix.Signal {
	sig := th.at.stop.Signal
	if !th.at.injectable || th.at.stop.Reason != Signal || !stopSignals.Has(sig) {
		return 0
	}
	if sig != unix.SIGSTOP {
		if st, err := procfs.ReadStatus(th.Proc.PID, th.TID); err != nil || Sigset(st.SigCgt).Has(sig) {
			return 0
		}
	}
	return sig
}

// stopHere makes a thread that has stopped for a stopSignal act on it. It is then in a GroupStop; in an Interrupt if SIGCONT has come
// meanwhile, or the process ignores the signal. The error is ErrExited. Other threads' stops are recorded meanwhile.
func (t *Tracer) stopHere(th *Thread) error {
	for sig := th.stopSignal(); sig != 0; sig = th.stopSignal() {
		if err := th.interrupt(); err != nil {
			return err
		}
		th.cont(unix.PTRACE_CONT, sig)
		if err := t.await(th); err != nil {
			return err
		}
		if th.at.stop.Reason == Exiting {
			t.enqueue(th)
			return fmt.Errorf("thread %d: %w", th.TID, ErrExited)
		}
	}
	return nil
}

// overtaken tells of a signal with a handler that SIGCONT has discarded since the thread stopped for it.
func (th *Thread) overtaken(sig unix.Signal) bool {
	return stopSignals.Has(sig) && (th.Proc.continues != th.job.continues || th.Proc.continuing())
}

// continuing tells that a SIGCONT is on its way which is not recorded yet. It is pending (for all signals of the process may be
// blocked), or in a stop that nobody has waited for; traced threads do not ignore it.
func (p *Process) continuing() bool {
	for _, th := range p.threads {
		st, err := procfs.ReadStatus(p.PID, th.TID)
		if err == nil && (st.ShdPnd.Has(int(unix.SIGCONT)) || st.SigPnd.Has(int(unix.SIGCONT))) {
			return true
		}
		if th.TID == p.tracer.unreaped {
			continue // it is recorded
		}
		got, ws, err := lookAt(th.TID, unix.WNOHANG|unix.WNOWAIT)
		if err == nil && got != 0 && ws.Stopped() && ws>>16 == 0 && ws.StopSignal() == unix.SIGCONT {
			return true
		}
	}
	return false
}

// noteContinue notes, with a stop that is recorded, how often the process has been
// continued. Kept stop signals from before are discarded.
func (th *Thread) noteContinue() {
	if p := th.Proc; th.at.stop.Reason == Signal && th.at.stop.Signal == unix.SIGCONT {
		p.continues++
		for _, other := range p.threads {
			other.owed.discardStops()
			other.at.discardStop()
		}
	}
	th.job.continues = th.Proc.continues
}
