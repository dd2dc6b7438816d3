package ptrace

import (
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// Stops that come at a bad time. A stop signal that a thread has taken, while it can't act on it (it makes
// system calls for us, has an exception to report, is on its way through a slot), is sent again later. SIGCONT
// discards all stop signals that were sent before it, wherever they are in the kernel (prepare_signal in
// kernel/signal.c). One that we send again would come behind it: it would discard the SIGCONT that is not
// delivered yet, and stop for good a process that its shell believes to run. So SIGCONT discards those that we keep, too.
//
// After it was sent, SIGCONT is in one of three places: pending (for all signals of the process may be
// blocked), in a stop that nobody has waited for, or recorded; traced threads do not ignore it. All are looked at. What is
// not seen is a SIGCONT that comes between that look and our signal, and one that a thread has taken from the queue and not yet stopped
// for; so a process may still be stopped for good, rarely.

// stopAgain sends a stop signal that the thread has taken when its process had been continued since times.
func (th *Thread) stopAgain(sig unix.Signal, since uint64) {
	if !th.overtaken(sig, since) {
		_ = unix.Tgkill(th.Proc.PID, th.TID, sig)
	}
}

// overtaken tells of a signal that SIGCONT has discarded since it was taken.
func (th *Thread) overtaken(sig unix.Signal, since uint64) bool {
	return stopSignals.Has(sig) && (th.Proc.continues != since || th.Proc.continuing())
}

// continuing tells that a SIGCONT is on its way which is not recorded yet.
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

// noteContinue notes, with a stop that is recorded, how often the process has been continued. What is kept of stop signals
// from before is discarded.
func (th *Thread) noteContinue() {
	if p := th.Proc; th.stop.Reason == Signal && th.stop.Signal == unix.SIGCONT {
		p.continues++
		for _, other := range p.threads {
			other.discardStops()
		}
	}
	th.continues = th.Proc.continues
}

// discardStops forgets stop signals. Release is still to be called for the mask.
func (th *Thread) discardStops() {
	kept := th.held[:0:0]
	for _, info := range th.held {
		if !stopSignals.Has(info.Signo()) {
			kept = append(kept, info)
		}
	}
	th.held = kept
	if th.kept != nil && stopSignals.Has(th.kept.Signo()) {
		th.kept = nil
	}
}
