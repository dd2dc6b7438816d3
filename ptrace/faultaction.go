package ptrace

import (
	"maps"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// A fault of our own code is forced on the thread, as a breakpoint's SIGTRAP is
// (trap.go): if the thread blocks the signal or the process ignores it, the kernel
// unblocks it and resets its action. A signal that is neither keeps its action. So the
// action before is the one that was read last; if it is gone, it must be put back. For
// a signal with the default action, a thread blocks it if it did so at the last stop
// that no exception had caused.

// faultSignals are the signals of memory accesses, and of bytes that are no
// instruction.
var faultSignals = []unix.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGILL}

const allFaults = Sigset(1<<(unix.SIGSEGV-1) | 1<<(unix.SIGBUS-1) | 1<<(unix.SIGILL-1))

// faultActions are a process's for faultSignals.
type faultActions struct {
	known            bool
	handled, ignored Sigset
	missing          Sigset                     // were so, and were the default ones when last looked at
	action           map[unix.Signal]*sigaction // of signals that are handled or ignored
}

// faultSets reads which of faultSignals the process handles and ignores.
func (p *Process) faultSets() (handled, ignored Sigset, ok bool) {
	for tid := range p.threads {
		if st, err := procfs.ReadStatus(p.PID, tid); err == nil {
			return Sigset(st.SigCgt) & allFaults, Sigset(st.SigIgn) & allFaults, true
		}
	}
	return 0, 0, false
}

// NoteFaultActions remembers the process's actions for SIGSEGV, SIGBUS and SIGILL. Unless again is set it does
// nothing if as many are handled and ignored as last time. An action that is the default one now
// may have been reset by a fault that undoFault is still to be called for, so it has to be so twice.
func (p *Process) NoteFaultActions(again bool) error {
	handled, ignored, ok := p.faultSets()
	old := p.faults
	now, before := handled|ignored, old.handled|old.ignored
	gone := before &^ now
	changed := now&^before != 0 || handled&old.ignored|ignored&old.handled != 0
	if !ok {
		return nil
	}
	if p.faults.missing = gone; old.known && !again && !changed && gone&old.missing == 0 {
		return nil
	}
	keep := gone &^ old.missing
	p.faults = faultActions{
		known: true, handled: handled | old.handled&keep, ignored: ignored | old.ignored&keep,
		missing: keep, action: maps.Clone(old.action),
	}
	f := &p.faults
	if f.action == nil {
		f.action = map[unix.Signal]*sigaction{}
	}
	for _, sig := range faultSignals {
		if !(now | keep).Has(sig) {
			delete(f.action, sig)
		}
	}
	unsure := now &^ p.aloneOf().actions
	if unsure == 0 {
		return nil
	}
	return p.Space.Remote(func(r *Remote) error {
		for _, sig := range faultSignals {
			if !unsure.Has(sig) {
				continue
			}
			sa, err := r.sigaction(sig)
			if err != nil {
				return err
			}
			f.action[sig] = sa
			r.th.alone().actions |= sigbit(sig)
		}
		return nil
	})
}

// noteFaultAction is told of an action that we have set. What else is known stays as it is: NoteFaultActions compares that with what the kernel tells.
func (p *Process) noteFaultAction(sig unix.Signal, sa *sigaction) {
	if p.faults.action == nil {
		p.faults.action = map[unix.Signal]*sigaction{}
	}
	p.faults.action[sig] = sa
	p.faults.known = false
}

// undoFault puts back, for a thread whose fault the program is not to be told of, what the fault
// has done to the action of sig and to the thread's mask.
func (th *Thread) undoFault(sig unix.Signal) {
	if !allFaults.Has(sig) {
		return
	}
	p := th.Proc
	f := &p.faults
	handled, ignored, ok := p.faultSets()
	m, err := th.sigmask()
	if !ok || err != nil {
		return
	}
	with := m | sigbit(sig)
	lost := f.action[sig] != nil && !(handled | ignored).Has(sig)
	if lost {
		_ = th.remote(func(r *Remote) error { return r.setSigaction(sig, f.action[sig]) })
	}
	all := with
	if u := &th.unblocked; u.is && with|forced == u.from|forced {
		all |= forced // for the guard
	}
	if (handled | ignored).Has(sig) && !lost {
		th.blocks.faults &^= sigbit(sig) // else the fault had taken the action away
	}
	if all.Full() || lost && f.handled.Has(sig) || th.blocks.faults.Has(sig) {
		_ = th.setSigmask(with)
	}
}
