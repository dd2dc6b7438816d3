package ptrace

import (
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// Detach lets a process go as it was: every thread goes on where it stands, stopped
// jobs stay stopped, signals that were being delivered are delivered. The caller has
// put back code and instruction pointers before, in the same Freeze. A thread that
// can't be released now (inside vfork, exiting) is released when it next stops.
func (t *Tracer) Detach(p *Process) error {
	return p.Space.Freeze(func(*Frozen) error {
		p.leaving = true
		for _, th := range busyFirst(p.Threads()) {
			if th.state == stopped && !th.at.stop.Ended() {
				t.detachThread(th)
			}
		}
		if len(p.threads) == 0 {
			t.dropProcess(p)
		}
		return nil
	})
}

// Awaits tells whether processes were forked from s whose first stop has not been handled yet. It must be called from within the Tracer.
func (t *Tracer) Awaits(s *Space) bool {
	for _, p := range t.procs {
		if p.parent == s {
			return true
		}
	}
	return false
}

// SettleForks settles the fate of processes forked from s whose first stop has not been
// handled yet. If the caller has frozen s there will be no more. Left alone they would
// run with the breakpoints that they inherited.
func (t *Tracer) SettleForks(s *Space) {
	for _, p := range t.procs {
		if p.parent != s {
			continue
		}
		for _, th := range p.Threads() {
			if t.await(th) == nil {
				th.queued = false
				t.dispatch(th)
			}
		}
	}
}

// detachThread releases one stopped thread.
func (t *Tracer) detachThread(th *Thread) {
	if th.at.calls.stands {
		th.decide(true)
	}
	th.beforeCall()
	t.intoCall(th)
	th.release()
	if (th.at.stop.Reason == Breakpoint || th.at.stop.Reason == SingleStep) && th.at.moved {
		t.restoreTrap(th)
	}
	th.resendTrap()
	if th.at.stop.Reason == Signal || !th.at.injectable {
		th.resendHeld()
	}
	if !th.at.injectable && (th.at.stop.Reason == Signal || !th.at.moved) {
		th.resendKept()
	}
	t.drainResent(th)
	th.block()
	sig := th.leavingSignal()
	if forced.Has(sig) && sig == th.at.stop.Signal && th.blocking(sig) && th.sendOn() {
		sig = 0
	}
	th.markMoved()
	_ = th.flush()
	_ = request(unix.PTRACE_DETACH, th.TID, 0, uintptr(sig))
	t.resumed(th.TID)
	t.dropThread(th)
	if p := th.Proc; p.leaving && len(p.threads) == 0 && t.procs[p.PID] == p {
		t.dropProcess(p)
	}
}

// beforeCall puts a thread that stands at the entry to a system call back in front of
// the instruction. A thread that is let go has TIF_SIGPENDING set (__ptrace_unlink in
// kernel/ptrace.c), and would find it set in the call. Some calls then end with EINTR,
// or after a part of their work. In user mode nothing is left of it. A seccomp filter,
// which the kernel asks behind this stop, would be shown a call that there is not: see
// intoCall.
func (th *Thread) beforeCall() {
	regs, err := th.hostRegs()
	if err != nil || th.at.stop.Reason != SyscallStop || !atEntry(regs) || th.filtered() {
		return
	}
	if info, err := th.syscallInfo(); err == nil && info.op != syscallEntry {
		return // a call that there is not has ended
	}
	regs.BeforeCall()
}

// intoCall is beforeCall for threads with a seccomp filter: they go on into the call
// and are stopped there. There we decide the call's outcome (restart.go), and
// TIF_SIGPENDING is clear. A call that is restarted by restart_syscall(2) is one of
// these, too: the filter may end the process for that. It is done for calls that wait
// for events or time alone, and for those on sockets with a timeout, so that the thread
// comes back at once.
func (t *Tracer) intoCall(th *Thread) {
	regs, err := th.hostRegs()
	if err != nil || th.at.stop.Reason != SyscallStop || !atEntry(regs) || !th.filtered() || !th.comesBack(regs) || th.interrupt() != nil {
		return
	}
	th.cont(unix.PTRACE_CONT, 0)
	_ = t.await(th)
}

// leavingSignal is the signal that the thread takes along.
func (th *Thread) leavingSignal() unix.Signal {
	if sig := th.injectHeld(func(*Siginfo) bool { return true }); sig != 0 { // there is no next stop
		return sig
	}
	switch {
	case th.at.injectable && th.at.stop.Reason == Signal:
		return th.at.stop.Signal
	case th.at.injectable && !th.at.moved && (th.at.stop.Reason == Breakpoint || th.at.stop.Reason == SingleStep):
		if th.raisesPutBack() {
			return 0
		}
		th.unmark()
		return unix.SIGTRAP // of the program's own breakpoint
	}
	return 0
}

// drainResent takes back signals that were sent again, so that they leave with
// their own siginfo, and to whom they were sent (sendOn). Those that the thread blocks stay queued as tgkill sent them, for it
// alone: after Part also SIGTRAP and SIGILL that it blocks again. Those that it fetched itself (sigwait(3)) are gone.
func (t *Tracer) drainResent(th *Thread) {
	for th.owed.sentAgain() != 0 && (th.at.stop.Reason != Signal || !th.at.injectable) {
		m, err := th.sigmask()
		st, serr := procfs.ReadStatus(th.Proc.PID, th.TID)
		sig := th.owed.sentAgain()
		if err != nil || serr != nil {
			return
		}
		if m.Has(sig) || !Sigset(st.SigPnd).Has(sig) {
			th.owed.forgetSentAgain()
			continue
		}
		th.cont(unix.PTRACE_CONT, 0)
		if t.await(th) != nil {
			return
		}
	}
}
