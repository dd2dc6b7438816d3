package ptrace

import (
	"bytes"
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// How a stopped thread goes on when the tracer is killed. The kernel lets it go on with
// the signal that it stopped for, if nobody has waited for that stop; once wait4(2) has
// told of it the signal is dropped (wait_task_stopped and ptrace_stop in the kernel). A
// thread at a breakpoint would then run on behind the breakpoint's first byte, in the
// middle of an instruction.
//
// So a stop is looked at (WNOWAIT) and stays to be waited for while the thread is
// handled. Resuming the thread ends it. It is taken only if another stop must be waited
// for first. Before that, a thread at a breakpoint is put back in front of it, to trap
// again. At the moment of a kill, the thread either gets its SIGTRAP, which the guard
// in the target understands, or stands where it may run on:
//
//	unreaped, IP behind the breakpoint: SIGTRAP, the guard sends it to the copy
//	unreaped, IP elsewhere: the siginfo is marked with that IP, and the guard lets it go on
//	reaped, IP at the breakpoint: it traps again
//
// The signals of the program's own go the same way: before such a stop is taken the signal is sent again, if it is one that does not queue, and the thread is
// as one that has stopped for nothing. It stops for the signal once more when it is resumed. After our death it gets that as one that we have sent.

// MarkErrno is si_errno of a SIGTRAP whose thread has been moved to the address in si_addr
// already.
const MarkErrno = 0x676b

// peek waits for a change of one child, or of any if tid is -1. A stop can be waited
// for until the thread is resumed or peek is called again. An end is taken at once.
// Stops of events are taken at once, too: no signal comes with them, and if a thread
// has changed its ID by exec the kernel wants that stop to be taken first
// (looks_like_a_spurious_pid in kernel/ptrace.c).
func (t *Tracer) peek(tid, flags int) (int, unix.WaitStatus, error) {
	t.moves++
	t.event()
	t.take()
	if tid == -1 && len(t.missed) > 0 {
		m := t.missed[0]
		t.missed = t.missed[1:]
		return m.tid, m.ws, nil
	}
	for {
		got, ws, err := lookAt(tid, flags|unix.WEXITED|unix.WNOWAIT)
		if err != nil || got == 0 {
			return got, ws, err
		}
		if ws.Stopped() && ws>>16 == 0 {
			t.unreaped, t.unreapedStatus = got, ws
			return got, ws, nil
		}
		// It is not waited for: one that is killed in between may be a leader, whose end comes behind those of all others.
		if got, ws, err = waitStatus(got, unix.WNOHANG); err == nil && got != 0 {
			return got, ws, nil
		}
	}
}

// missedStop is one that took the place of another, which it was mistaken for.
type missedStop struct {
	tid int
	ws  unix.WaitStatus
}

// take is reap for callers that can't handle another stop in its place.
func (t *Tracer) take() {
	if got, ws := t.reap(); got != 0 {
		t.missed = append(t.missed, missedStop{got, ws})
	}
}

// reap takes the stop that peek has told of, if its thread still stands there. The answer is
// the stop that it got instead, if the thread was killed meanwhile.
func (t *Tracer) reap() (tid int, ws unix.WaitStatus) {
	tid, seen := t.unreaped, t.unreapedStatus
	if t.unreaped = 0; tid == 0 {
		return 0, 0
	}
	if th := t.threads[tid]; th != nil && th.state == stopped {
		switch th.at.stop.Reason {
		case Breakpoint:
			if !th.at.committed {
				th.putBack()
			}
		case Signal:
			th.putOff()
		}
	}
	got, ws, err := lookAt(tid, unix.WNOHANG)
	if err != nil || got == 0 || ws == seen {
		return 0, 0
	}
	return got, ws
}

// resumed: nothing is left to take of a stop whose thread runs again.
func (t *Tracer) resumed(tid int) {
	if t.unreaped == tid {
		t.unreaped = 0
	}
}

// putBack sets the instruction pointer, as the kernel has it, of a thread behind a breakpoint
// of ours, or the program's own, to that breakpoint. Regs still tells where the thread stopped, or goes on.
func (th *Thread) putBack() {
	if _, err := th.hostRegs(); err != nil || !th.at.injectable {
		return
	}
	at := th.at.regs.kernel.IP().Add(int64(-host.Arch.BreakpointAdvance()))
	if ours, _ := th.Proc.tracer.handler.Known(th, at); !ours && !th.raisedAt(at) || th.mark(at) != nil {
		return
	}
	if host.WriteIP(th.TID, at) == nil {
		th.at.regs.kernel.SetIP(at)
	}
}

// putOff sends the signal that a thread has stopped for again: it comes back when the thread is resumed, by us or by our death. A stop that is being handled stays as it
// is.
func (th *Thread) putOff() {
	if !th.at.injectable || !th.queued || th.handled || th.call != nil || !(heldByKernel | sigbit(unix.SIGTRAP)).Has(th.at.stop.Signal) {
		return
	}
	if info, err := th.siginfo(); err == nil && !info.Synchronous() {
		th.resend(info)
		th.at.stop.Reason = Interrupt
	}
}

// raiseAgain lets an instruction raise once more the signal that a thread has stopped for, in place of its delivery now. A signal that is sent again says that
// it was sent: if we are killed before it is given its own siginfo back, a guard, and the program, take it for something else. It does nothing, and answers so,
// unless the thread stands where it does that: behind a breakpoint that is still there, or, when nobody has been asked about the stop yet, in front of an instruction that has faulted.
func (th *Thread) raiseAgain() bool {
	info, err := th.siginfo()
	if err != nil || !th.at.injectable {
		return false
	}
	if info.fault() {
		return th.queued && !th.handled && !th.at.moved
	}
	at := th.ip().Add(int64(-host.Arch.BreakpointAdvance()))
	if !th.raisedAt(at) {
		return false
	}
	if th.at.regs.kernel.IP() != at {
		th.putBack()
	}
	if th.at.regs.kernel.IP() != at {
		return false
	}
	th.at.regs.own.SetIP(at)
	return true
}

// raisesPutBack is raiseAgain for a thread that putBack was called for. To give it its signal after all takes two requests, and it would have lost that if we were killed in between.
func (th *Thread) raisesPutBack() bool {
	return th.at.regs.valid && th.at.regs.own.IP() != th.at.regs.kernel.IP() && th.unmoved() && th.raiseAgain()
}

// raisedAt tells of a thread that a breakpoint instruction of the program's own at at has raised the signal being delivered.
func (th *Thread) raisedAt(at arch.Addr) bool {
	info, err := th.siginfo()
	insn := make([]byte, len(host.Arch.Breakpoint()))
	return err == nil && info.breakpoint() && th.Proc.Space.ReadMemory(at, insn) == nil && bytes.Equal(insn, host.Arch.Breakpoint())
}

// unmoved tells of a thread behind a breakpoint that its IP is as it stopped with.
func (th *Thread) unmoved() bool {
	back := th.at.regs.own.IP() - th.at.regs.kernel.IP()
	return back == 0 || back == arch.Addr(host.Arch.BreakpointAdvance()) // putBack was called
}

// markMoved is called before the registers of a thread at a breakpoint are written.
func (th *Thread) markMoved() {
	if th.at.inCopy || th.at.stop.Reason != Breakpoint || !th.at.injectable || th.Proc.tracer.unreaped != th.TID {
		return
	}
	if th.at.regs.valid && th.at.regs.own.IP() != th.at.regs.kernel.IP() {
		_ = th.mark(th.at.regs.own.IP())
	}
}

// mark notes in the siginfo of the SIGTRAP that the thread stopped for where it goes on.
func (th *Thread) mark(to arch.Addr) error {
	info, err := th.Siginfo()
	if err != nil {
		return err
	}
	if th.at.unmarked == nil {
		original := *info
		th.at.unmarked = &original
	}
	binary.LittleEndian.PutUint32(info[4:], MarkErrno)
	info.SetAddr(to)
	return th.setSiginfo(info)
}

// unmark puts back what the target is told, if it gets the signal after all.
func (th *Thread) unmark() {
	if th.at.unmarked != nil && (th.at.injectable || th.at.kept != nil) {
		_ = th.setSiginfo(th.at.unmarked)
	}
	th.at.unmarked = nil
}

// lookAt is waitid(2) with the status of wait4(2). tid 0 tells that there was none.
func lookAt(tid, flags int) (int, unix.WaitStatus, error) {
	kind := unix.P_PID
	if tid == -1 {
		kind, tid = unix.P_ALL, 0
		flags |= unix.WNOTHREAD
	}
	var info struct {
		signo, errno, code, _ int32
		pid                   int32
		uid                   uint32
		status                int32
		_                     [100]byte
	}
	for {
		err := unix.Waitid(kind, tid, (*unix.Siginfo)(unsafe.Pointer(&info)), flags|unix.WSTOPPED|unix.WALL, nil)
		if err != unix.EINTR {
			return int(info.pid), statusOf(info.code, info.status), err
		}
	}
}

// statusOf is the status that wait4(2) would give for a si_code and si_status.
func statusOf(code, status int32) unix.WaitStatus {
	const exited, killed, dumped = 1, 2, 3 // CLD_EXITED, CLD_KILLED, CLD_DUMPED
	switch code {
	case exited:
		return unix.WaitStatus(status&0xff) << 8
	case killed:
		return unix.WaitStatus(status)
	case dumped:
		return unix.WaitStatus(status) | 0x80
	case 0:
		return 0
	}
	return unix.WaitStatus(status)<<8 | 0x7f
}
