package ptrace

import (
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// System calls that a stop of ours interrupts. The kernel restarts most of them by itself: it leaves -ERESTARTSYS or one of
// its kin in the result register, which the thread's way to user mode turns into another execution of the
// instruction, unless a signal's handler runs first (arch_do_signal_or_restart). Three kinds need more.
//
//   - Some fail with EINTR, though there is no signal (signal(7)). A stop of ours is no reason for that.
//   - Some are restarted by restart_syscall(2), -ERESTART_RESTARTBLOCK. The program does not make that call, and a seccomp
//     filter of its own may kill it for it.
//   - Some begin with their whole timeout again (timedcall.go).
//
// To all of them the result register gets -ERESTARTNOHAND in the stop, which lies in
// front of the kernel's decision. So the kernel decides, under its own lock: either it
// makes the call again, by its own number, or a handler runs and the target sees EINTR.
// No look at pending signals is needed, which another thread may take at any moment. If
// we are killed afterwards, the kernel does the same.
//
// A stop by job control ends those of the first kind with EINTR without us too. So a thread that comes to a
// group-stop gets that back.

// restartCall is called in a stop that has interrupted the thread for no reason of the program's.
func (th *Thread) restartCall() {
	regs, err := th.hostRegs()
	if err != nil || th.at.errand.on {
		return
	}
	if inPart(regs) {
		th.forgetInterruption(regs.CallArg(0))
		return
	}
	lonely := th.failsAlone(regs)
	switch {
	case lonely:
	case byRestartBlock(regs):
		if !th.filtered() {
			return
		}
	case !forgetsTime(regs) || th.timed.again(regs):
		return
	}
	th.at.lonely = lonely
	result := restartNoHand
	if over, late := th.timeIsOver(regs); late {
		result = over
	}
	th.setResult(result)
}

// setResult changes the result of the system call that the thread returns from, in the kernel at once. At the exit from a call
// the kernel need not come by the place where it looks at that: any stop takes a PTRACE_INTERRUPT back that has not been
// acted on (ptrace_stop in kernel/signal.c). So the thread is asked once more.
func (th *Thread) setResult(v int64) {
	if th.at.stop.Reason == SyscallStop && th.interrupt() != nil {
		return // killed meanwhile
	}
	th.at.regs.own.SetCallResult(v)
	if host.WriteResult(th.TID, v) == nil {
		th.at.regs.kernel.SetCallResult(v)
	}
}

// filtered tells whether a seccomp filter decides about the thread's system calls.
func (th *Thread) filtered() bool {
	a := th.alone()
	if !a.filtersKnown {
		st, err := procfs.ReadStatus(th.Proc.PID, th.TID)
		if err != nil {
			return false
		}
		a.filtersKnown, a.filters = true, st.Seccomp != 0
	}
	return a.filters
}

// failAlone is called when the thread comes to a group-stop.
func (th *Thread) failAlone() {
	regs, err := th.hostRegs()
	if err == nil && th.at.lonely && regs.CallResult() == restartNoHand && interrupted(regs) {
		th.setResult(-int64(unix.EINTR))
	}
	th.at.lonely = false
}

// restartIgnored restarts a call when the signal being delivered is one that the
// process ignores. Without a tracer it would not have been queued, and would not have
// ended the call.
func (th *Thread) restartIgnored(sig unix.Signal) {
	stopped := th.job.takeStopped()
	regs, err := th.hostRegs()
	if err != nil || !th.failsAlone(regs) && !byRestartBlock(regs) {
		return
	}
	st, err := procfs.ReadStatus(th.Proc.PID, th.TID)
	if err != nil || stopped || Sigset(st.SigCgt).Has(sig) {
		return
	}
	if !Sigset(st.SigIgn).Has(sig) && !ignoredByDefault.Has(sig) {
		th.job.stopped = stopSignals.Has(sig)
		return
	}
	th.restartCall()
	th.noteRestart()
}

// noteDelivery: a signal handler comes between a system call and its restart, if that is
// restarted at all. The call is over.
func (t *Tracer) noteDelivery(th *Thread, sig unix.Signal) {
	if th.noteRestart(); th.at.restartAt == 0 {
		return
	}
	st, err := procfs.ReadStatus(th.Proc.PID, th.TID)
	if err != nil || Sigset(st.SigCgt).Has(sig) {
		th.at.restartAt = 0
		at := th.at
		if t.handler.Returned(th); t.holds(th, at) {
			t.syscallDone(th)
		}
	}
}
