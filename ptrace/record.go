package ptrace

import (
	"bytes"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/host"
)

// record does the bookkeeping of a stop. It may be called at any time: it never resumes
// a thread, and does not ask what the stop means. It returns the thread to dispatch, or
// nil if the stop belongs to a thread not known yet: a child's first stop may come
// before the parent's event that introduces it.
func (t *Tracer) record(s Stop) *Thread {
	if s.Reason == Exec {
		return t.recordExec(s)
	}
	th := t.threads[s.TID]
	if th == nil {
		return t.recordEarly(s)
	}
	th.at.halted(s)
	if s.Ended() {
		th.state = exiting
		return th
	}
	th.state, th.seen, th.idle = stopped, true, false
	switch trap := s.Reason == Signal && s.Signal == unix.SIGTRAP; {
	case th.guard.next == asks:
	case trap:
		th.at.sight, th.guard.next = th.guard.next, asks
	case !th.comesToTrap(): // it had stopped for this
		th.guard.next = asks
	}
	begins := th.noteHalt(s)
	th.noteContinue()
	switch s.Reason {
	case Signal:
		th.at.injectable = true
		switch {
		case th.substitute(): // the target's
		case th.entersHandler():
			th.at.stop.Reason, th.at.stop.Signal, th.at.injectable = Interrupt, 0, false
			if th.takeRequestBack(); !th.at.errand.on {
				th.noteMask()
			}
			th.noteRestart()
		case th.singleStepped():
			th.at.stop.Reason = SingleStep
		case th.atBreakpoint():
			th.at.stop.Reason = Breakpoint
		}
	case Interrupt:
		if !th.at.errand.on { // what it blocks then is ours
			th.noteMask()
		}
		if th.asked || !th.job.stopped {
			th.restartCall() // SIGCONT causes such a stop in a process that runs, too
			th.job.stopped = false
		}
		th.asked = false
		th.job.interrupted()
		th.noteRestart()
		if th.idle = th.Restarts(); begins && th.idle {
			th.halts.Waits()
		}
	case Exiting:
		th.Proc.ending[th] = true
	case GroupStop:
		th.asked = false
		th.job.group()
		th.failAlone()
		th.noteRestart()
	case SyscallStop:
		t.recordSyscall(th)
	case Clone, Fork, Vfork:
		t.adoptChild(th)
	}
	return th
}

// entersHandler tells whether the kernel has stopped the thread because it has just delivered a signal while the thread was being
// single-stepped: it stands in front of the first instruction of the handler, or goes on as before if there was no handler to call
// (signal_delivered and ptrace_notify in kernel/signal.c; si_code is the stop's code then). wait4 tells of it as of a signal-delivery-stop for
// SIGTRAP, but there is no such signal: what is given to the thread on resuming is ignored, and the step is over.
//
// We do not deliver signals with a step. But a tracer that dies does not take its step back, and the next one, the guardian or whoever attaches,
// may have seized the thread between the look that the kernel takes at the signal and this stop. Taken for a signal, it would be sent again, and
// the program would die of a SIGTRAP that nobody has sent.
func (th *Thread) entersHandler() bool {
	if th.at.stop.Signal != unix.SIGTRAP || th.at.trapAt != 0 && th.ip() == th.at.trapAt {
		return false
	}
	info, err := th.siginfo()
	return err == nil && info.Code() == int(unix.SIGTRAP)
}

// atBreakpoint tells whether a breakpoint instruction raised the signal being delivered.
// The address alone can't tell: behind a one-byte instruction a kill(2) may find the
// thread at the same place.
func (th *Thread) atBreakpoint() bool {
	expected := th.at.trapAt
	th.at.trapAt = 0
	if th.at.stop.Signal != unix.SIGTRAP {
		return false
	}
	if expected != 0 && !th.blocks.trap && th.ip() == expected {
		return true // one that blocks SIGTRAP may have had another pending: see coalesced
	}
	info, err := th.siginfo()
	return err == nil && (info.breakpoint() || info.Code() <= 0 && th.coalesced(info))
}

// singleStepped tells whether the signal being delivered is the trap that StepOnce asked
// for. A SIGTRAP that somebody sent and that the thread blocks swallows it, as it does a
// breakpoint's: see coalesced. A breakpoint's own is none, wherever the thread was to step from: the byte may be another one by now.
func (th *Thread) singleStepped() bool {
	if th.at.next != nextStep || th.at.stop.Signal != unix.SIGTRAP {
		return false
	}
	info, err := th.siginfo()
	if err != nil || info.breakpoint() || info.Code() != trapTrace && th.ip() == th.at.stepFrom {
		return false
	}
	if info.Code() != trapTrace && !th.steppedCall(info) {
		sent := *info
		th.owed.trap, th.blocks.trap = &sent, true
	}
	th.at.next = nextAny
	return true
}

// steppedCall tells of a SIGTRAP that it is how the kernel reports a step over a system call
// (user_single_step_report in arch/x86/kernel/ptrace.c).
func (th *Thread) steppedCall(info *Siginfo) bool {
	insn := make([]byte, len(host.Arch.SyscallInsn()))
	return info.Code() == trapBrkpt && th.Proc.Space.ReadMemory(th.at.stepFrom, insn) == nil && bytes.Equal(insn, host.Arch.SyscallInsn())
}

// recordSyscall tells the Handler of a system call at once, since every way of resuming
// the thread makes it go on into the call. A return it is told of by dispatch.
func (t *Tracer) recordSyscall(th *Thread) {
	if th.at.errand.on {
		return
	}
	next := th.at.next
	th.at.next = nextAny
	if next == nextEntry {
		th.restoreDispatch()
		if t.handler.Entered(th) {
			th.at.next = nextReturn
		}
		th.releaseHeld()
		th.resendHeld()
	}
	if again := th.noteTimed(); th.asked && (again || next == nextReturn) {
		th.restartCall()
	}
	if next == nextReturn {
		th.at.returned = true
		th.noteRestart()
	}
	th.noteSyscall()
}

// known asks the Handler about the breakpoint that the thread's IP is past.
func (th *Thread) known() (ours bool, length int) {
	return th.Proc.tracer.handler.Known(th, th.ip().Add(int64(-host.Arch.BreakpointAdvance())))
}

// coalesced tells whether a SIGTRAP that somebody sent stands for a breakpoint too. The
// kernel keeps one instance of it: while one is pending, that of the breakpoint is lost
// with its siginfo (legacy_queue in kernel/signal.c). No thread is ever past the first
// byte of a longer instruction but by the breakpoint there, and one that blocks SIGTRAP
// is not sent any. That the other signal was pending while the thread ran means that the
// thread blocks it; it is kept, to be queued again.
func (th *Thread) coalesced(info *Siginfo) bool {
	ours, length := th.known()
	if !ours || length == 1 && !th.blocksSent() {
		return false
	}
	sent := *info
	th.owed.trap, th.blocks.trap = &sent, true
	return true
}

// blocksSent tells whether a SIGTRAP which was sent may have been pending while the thread ran on to where it stands.
func (th *Thread) blocksSent() bool {
	if !th.blocks.trap {
		return th.resetAlone()
	}
	m, err := th.sigmask()
	return err != nil || !th.takenOut(m)
}

// recordEarly keeps the first stop of a thread that nobody introduced yet. It stays
// stopped until its parent's event does, which is on its way, unless it is dying.
func (t *Tracer) recordEarly(s Stop) *Thread {
	if !s.Ended() {
		t.early[s.TID] = s
		if s.Reason == Exiting {
			t.adoptDying(s.TID)
		}
		return nil
	}
	delete(t.early, s.TID)
	if p := t.children[s.TID]; p != nil {
		p.Status = s
		t.handler.Exited(p)
	}
	return nil
}

// eventMsg is the value that belongs to an event stop: the new thread's ID, or the
// former ID of the thread that called exec.
func eventMsg(tid int) (int, error) {
	v, err := unix.PtraceGetEventMsg(tid)
	return int(v), err
}

// tellExit tells of a thread that is stopped on its way out.
func (t *Tracer) tellExit(th *Thread) {
	th.told = true
	t.handler.ThreadExit(th)
}

// tellGone tells of one that has gone, unless it was told before.
func (t *Tracer) tellGone(th *Thread) {
	if !th.told {
		th.told = true
		t.handler.Gone(th)
	}
}
