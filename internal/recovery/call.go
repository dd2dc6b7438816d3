package recovery

import (
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
)

// outOfCall handles a stopped thread that was making system calls for a killed tracer:
// it gives the thread back its registers and its mask. It reports whether it was one.
//
// Such a thread is at the region's system-call instruction, or behind it, at a
// breakpoint from where the guard takes it; the tracer has left there for the guard
// what the thread goes on with (Remote.protect). They are written before the thread is
// moved there, and put back into the thread before anything else. So they are right
// whenever the thread is there. A call that is not made yet, or is to be made again, is
// none that anybody waits for.
func (r *recovery) outOfCall(l *leftover, th *ptrace.Thread) bool {
	insn, ok := l.syscallInsn()
	if !ok || !th.Stopped() {
		return false
	}
	regs, err := th.Regs()
	if err != nil {
		return false
	}
	trap := insn.Add(int64(len(host.Arch.SyscallInsn())))
	trapped := regs.Trapped() == trap && th.Stop().Reason == ptrace.Breakpoint
	if regs.IP() != insn && regs.IP() != trap && !trapped {
		return false
	}
	now, err := th.BlockedSignals()
	if err != nil || now.Has(unix.SIGTRAP) {
		return false // it is there without a context: its own blocks the signal
	}
	b := make([]byte, arch.ContextLen)
	if l.mem.ReadMemory(l.guard.Place.SavedContext(), b) != nil {
		return false
	}
	mask, ok := host.Contexts.SetContext(regs, b)
	if !ok || th.BlockSignals(ptrace.Sigset(mask)) != nil {
		return false
	}
	if trapped {
		th.Go(ptrace.DropSignal())
	}
	th.Go(ptrace.RunOn())
	return true
}

// syscallInsn is the instruction with which threads made system calls for the region's
// tracer, once there was a guard. It is where the mapping begins in which the guard is.
func (l *leftover) syscallInsn() (arch.Addr, bool) {
	if l.guard.Code.Len() == 0 || host.Contexts == nil {
		return 0, false
	}
	for _, e := range l.Arenas {
		if e.Code.Contains(l.guard.Code.Start) {
			return e.Code.Start, true
		}
	}
	return 0, false
}
