package kprobes

import (
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// foreseen tells whether the body goes on elsewhere after a fault of the instruction that a thread is
// at, and sends it there: the stack has no room for what is put aside. The tracer counts the hit.
func (det *detour) foreseen(regs arch.Regs) bool {
	stop, ok := det.StopAt(regs.IP())
	if !ok || !stop.Why.Faults() {
		return false
	}
	regs.SetIP(stop.To)
	if stop.Why == arch.StopUncounted {
		det.countOne()
	}
	return true
}

// countOne counts a hit that the body could not.
func (det *detour) countOne() {
	if det.count == nil {
		return
	}
	for _, kp := range det.count.owners {
		kp.hits.Add(1)
	}
}

// endStop does for a thread that is taken out of det what is left to do for a stop of its body's:
// a fault that the body has foreseen, or a breakpoint that leaves the hit to the tracer.
func (det *detour) endStop(th *ptrace.Thread, regs arch.Regs) {
	switch th.Stop().Reason {
	case ptrace.Signal:
		info, err := th.Siginfo()
		if err == nil && info.Synchronous() && info.Signo() != unix.SIGTRAP && det.foreseen(regs) {
			th.Go(ptrace.DropSignal())
		}
	case ptrace.Breakpoint:
		if to, ok := det.undone(regs.Trapped()); ok {
			regs.SetIP(to)
			th.Go(ptrace.RunOn())
		}
	}
}

// undone is where a thread goes on that has trapped at at, and whose hit the tracer won't have any more. ok is false if that is no breakpoint of det's,
// or one of an upcall's.
func (det *detour) undone(at arch.Addr) (to arch.Addr, ok bool) {
	if at == det.Trap {
		return det.Addr, true
	}
	stop, ok := det.StopAt(at)
	switch {
	case !ok || stop.Why.Faults():
		return 0, false
	case stop.Why == arch.StopAsked:
		return det.End, true // it makes the call itself
	case det.upcall != nil:
		return 0, false
	case stop.Why == arch.StopChosen:
		det.missChosen()
	case stop.Why == arch.StopNoRoom && det.decides():
		return det.Addr, true // nothing has happened
	default:
		det.countOne()
	}
	return det.Start(), true
}

// stepsIn tells of a thread whose program traces itself, and that has come to ip, whether it is
// in det by our doing. In front of the first copy it may have repeated a string instruction.
func (ts *threadState) stepsIn(det *detour, ip arch.Addr) bool {
	inBody := det.atEntry(ip) || det.Body.Contains(ip)
	fromBody := ip == det.Start() && ts.entering == det
	ts.entering = nil
	if inBody {
		ts.entering = det
	}
	return inBody || fromBody
}
