package ptrace

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// Remote runs system calls in the target on behalf of the tracer. It is valid
// inside the function given to Space.Remote.
type Remote struct {
	th   *Thread
	insn arch.Addr
	own  Sigset                     // what the thread blocked before
	late []Siginfo                  // of signals that came in between
	trap trapSets                   // of the action of SIGTRAP
	set  map[unix.Signal]*sigaction // by SetOwn
}

// keepLate keeps the signal that the thread has stopped for while it makes system calls for us, to be sent again at the
// end. Signals are blocked then, but SIGTRAP where a guard waits for it; and SIGSTOP, which the thread acts on at once.
func (r *Remote) keepLate() {
	if r.th.stopSignal() != 0 {
		return
	}
	if info, err := r.th.siginfo(); err == nil {
		r.late = append(r.late, *info)
	}
}

// sendLate sends the kept signals again.
func (r *Remote) sendLate() {
	for i := range r.late {
		r.th.resend(&r.late[i])
	}
}

// Remote runs f with a thread of the address space that can make system calls.
//
// The thread may stand anywhere, also inside an interrupted system call. Its registers
// and signal mask are saved, and all its signals are blocked. The calls are made
// through a system-call instruction that the process already has, between two
// syscall-stops, so that no other user instruction runs. At the end a PTRACE_INTERRUPT
// takes the thread to the place in the kernel where interrupted calls are restarted
// (arch_do_signal_or_restart). There the saved registers are put back: rax and orig_rax
// make the kernel restart the same call as without us. None of the calls made here
// touches the restart block that restart_syscall(2) uses.
func (s *Space) Remote(f func(*Remote) error) error {
	th, release, err := s.acquire()
	if err != nil {
		return err
	}
	defer release()
	return th.remote(f)
}

// Remote is Space.Remote with a thread of this process, for state that processes with
// shared memory do not share, such as the actions of signals.
func (p *Process) Remote(f func(*Remote) error) error {
	th, release, err := p.Space.acquireOf(p)
	if err != nil {
		return err
	}
	defer release()
	return th.remote(f)
}

func (th *Thread) remote(f func(*Remote) error) error {
	if err := th.Proc.tracer.stopHere(th); err != nil {
		return err
	}
	insn, err := th.Proc.Space.findSyscallInsn()
	if err != nil {
		return err
	}
	undo, err := th.suspendSeccomp()
	if err != nil {
		return err
	}
	defer undo()
	redispatch, dispatches := th.suspendDispatch()
	defer redispatch()
	if _, err := th.hostRegs(); err != nil {
		return err
	}
	return th.elsewhere(&Remote{th: th, insn: insn}, dispatches, f)
}

// elsewhere puts aside where the thread stands, runs f, and brings the thread back there. dispatches: its user dispatch is
// suspended, so no refuge would do.
func (th *Thread) elsewhere(r *Remote, dispatches bool, f func(*Remote) error) (err error) {
	mask, err := th.sigmask()
	if err != nil {
		return err
	}
	r.own = mask
	before, kept, ours := th.at, th.keepSiginfo(), th.stopIsOurs()
	stop := before.stop
	postponed := !ours && (stop.Reason == Signal || stop.Reason == Breakpoint)
	if postponed {
		postponed = th.postpone()
	}
	safe := th.ifKilled()
	th.at = before.elsewhere()
	th.at.errand.on = true
	over := r.protect(&safe, mask, postponed && stop.Signal == unix.SIGTRAP)
	defer func() { // also when f panics
		if over == nil {
			over = r.finish(safe, mask)
		}
		switch {
		case over != nil: // the thread has its end before it, or has gone nowhere
			before.halt, err = th.at.halt, over
		case ours:
			before.resettle(th.at, kept)
		default:
			before.stop = th.at.stop
			before.resettle(th.at, nil)
		}
		th.at, th.at.errand.sheltered = before, false
		th.eraseMark()
		if r.trap.sets > 0 {
			th.Proc.tracer.trapPutBack(th.Proc, r.trap)
		}
	}()
	if over != nil {
		return over
	}
	th.at.errand.sheltered = th.at.errand.sheltered && !dispatches // that only we can put back
	return f(r)
}

// stopIsOurs tells of a thread that is to make system calls for us that its stop is none for the program: what it stopped for was done, or is being done.
func (th *Thread) stopIsOurs() bool {
	switch th.at.stop.Reason {
	case Breakpoint:
		ours, _ := th.known()
		return ours || th.at.moved || !th.queued // put back already, or being handled
	case SingleStep:
		return true
	}
	return th.at.deciding
}

// ifKilled is the registers that a thread which makes system calls for us is to go on with if we are killed meanwhile.
func (th *Thread) ifKilled() host.Regs {
	if th.Delayed() {
		return th.at.regs.kernel
	}
	safe := th.at.regs.own
	if known, _ := th.known(); known && th.at.stop.Reason == Breakpoint && th.unmoved() || th.at.trapped != 0 && safe.IP() == th.at.trapped {
		safe.SetIP(safe.IP().Add(int64(-host.Arch.BreakpointAdvance())))
	}
	return safe
}

// TrappedAt gives a thread that has stopped in code of ours the instruction pointer of one that has executed a breakpoint at at: its other registers are those in
// front of that. Nobody but us sees it there. If we die meanwhile it comes to at, whatever stands there then, and never behind a breakpoint that it has not
// executed: there a jump of ours has the rest of its bytes.
func (th *Thread) TrappedAt(at arch.Addr) {
	if regs, err := th.hostRegs(); err == nil {
		regs.SetTrapped(at)
		th.at.trapped = regs.IP()
	}
}

// postpone puts off the signal that the thread has stopped for: it is reported again after the remote calls. The answer tells that it was sent once more. If not, the thread
// raises it again, or was killed meanwhile.
//
// The stop is taken at once (reap.go): if we are killed before the thread makes its first call, it is to get the signal once, not twice.
func (th *Thread) postpone() (sent bool) {
	info, err := th.siginfo()
	if err != nil {
		return false
	}
	if sent = !th.raiseAgain(); sent {
		info.unmarkOwn() // there may be no guard any more to do that
		th.resend(info)
	}
	taken := th.Proc.tracer.unreaped == th.TID
	if taken || !sent {
		th.at.stop.Reason = Interrupt
	}
	if taken {
		th.Proc.tracer.take()
	}
	return sent
}

// Syscall makes one system call and returns its result. The error is the call's
// errno, or ErrExited, or ErrSeccomp.
func (r *Remote) Syscall(nr uint64, args ...uint64) (uint64, error) {
	var six [6]uint64
	copy(six[:], args)
	if nr == unix.SYS_RT_SIGACTION && six[1] != 0 {
		if six[0] == uint64(unix.SIGTRAP) {
			r.trap.sets++
		}
		r.th.alone().actions &^= sigbit(unix.Signal(six[0])) // who knows what it sets says so
	}
	regs, err := r.th.hostRegs()
	if err != nil {
		return 0, err
	}
	regs.SetSyscall(nr, six, r.insn)
	for range 2 { // entry and exit
		if err := r.toSyscallStop(); err != nil {
			return 0, err
		}
	}
	if regs, err = r.th.hostRegs(); err != nil {
		return 0, err
	}
	ret := regs.ReturnValue()
	if v := int64(ret); v < 0 && v >= -4095 {
		return ret, unix.Errno(-v)
	}
	return ret, nil
}

// toSyscallStop resumes the thread to its next syscall-stop. Signals are
// blocked, so what else can stop it is SIGSTOP, a stop of the whole group, one for keepLate, or a
// seccomp filter's SIGSYS. A fault means that the instruction is not there, and would be raised for ever.
func (r *Remote) toSyscallStop() error {
	th := r.th
	for {
		th.cont(unix.PTRACE_SYSCALL, th.stopSignal())
		if err := th.Proc.tracer.await(th); err != nil {
			return err
		}
		switch th.at.stop.Reason {
		case SyscallStop:
			return nil
		case Exiting:
			th.Proc.tracer.enqueue(th)
			return fmt.Errorf("thread %d: %w", th.TID, ErrExited)
		case Signal:
			if th.at.stop.Signal == unix.SIGSYS {
				return ErrSeccomp
			}
			if info, err := th.siginfo(); err == nil && info.Synchronous() && info.Signo() != unix.SIGTRAP {
				return fmt.Errorf("thread %d: a system call on its behalf raised %s", th.TID, unix.SignalName(info.Signo()))
			}
			r.keepLate()
		}
	}
}

// finish takes the thread to a stop on its way to user mode and puts its mask back. Its registers are safe then: what it goes on
// with if we are killed before it is resumed.
func (r *Remote) finish(safe host.Regs, mask Sigset) error {
	th := r.th
	for {
		if err := th.interrupt(); err != nil {
			return err
		}
		th.cont(unix.PTRACE_CONT, th.stopSignal())
		if err := th.Proc.tracer.await(th); err != nil {
			return err
		}
		switch th.at.stop.Reason {
		case Exiting:
			th.Proc.tracer.enqueue(th)
			return fmt.Errorf("thread %d: %w", th.TID, ErrExited)
		case Signal:
			r.keepLate()
			continue
		case Interrupt, GroupStop:
		default:
			continue
		}
		break
	}
	r.sendLate()
	if err := th.setSigmask(mask); err != nil {
		return err
	}
	regs, err := th.hostRegs()
	if err != nil {
		return err
	}
	*regs = safe
	return th.writeThrough()
}

// suspendSeccomp lifts the thread's seccomp filters for the remote calls. A filter
// may kill for a call that the program itself never makes.
func (th *Thread) suspendSeccomp() (undo func(), err error) {
	if p := th.Proc; p.newborn && p.seccomp == 0 || !p.newborn && !th.filtered() {
		return func() {}, nil
	}
	if err := request(unix.PTRACE_SETOPTIONS, th.TID, 0, seizeOptions|optSuspendSeccomp); err != nil {
		return nil, fmt.Errorf("%w (PTRACE_O_SUSPEND_SECCOMP: %w)", ErrSeccomp, err)
	}
	return func() {
		th.at.calls.lifted = false
		_ = request(unix.PTRACE_SETOPTIONS, th.TID, 0, seizeOptions)
	}, nil
}

// WithString runs f with the address of a NUL-terminated copy of text in the
// target, placed where nothing is for the duration.
func (r *Remote) WithString(text string, f func(arch.Addr) error) error {
	return r.withBytes(append([]byte(text), 0), f)
}

// withBytes prefers memory that nobody has ever used to the bytes below the thread's
// red zone: a goroutine's stack may end there.
func (r *Remote) withBytes(b []byte, f func(arch.Addr) error) error {
	space := r.th.Proc.Space
	if spare, ok := space.spareStack(); ok && len(b) < pageSize/2 && space.WriteMemory(spare.Start, b) == nil {
		return f(spare.Start)
	}
	regs, err := r.th.hostRegs()
	if err != nil {
		return err
	}
	const redZone = 128
	at := (regs.SP() - redZone - arch.Addr(len(b))) &^ 15
	old := make([]byte, len(b))
	if !space.writable(at, len(b)) || space.ReadMemory(at, old) != nil || space.WriteMemory(at, b) != nil {
		// A thread whose stack pointer is no good. The end of the initial stack holds
		// the name of the program, which nobody writes.
		if at, err = space.stackEnd(len(b)); err != nil {
			return err
		}
		if err := errors.Join(space.ReadMemory(at, old), space.WriteMemory(at, b)); err != nil {
			return err
		}
	}
	failed := f(at)
	if err := space.WriteMemory(at, old); err != nil {
		return err
	}
	return failed
}

func (s *Space) stackEnd(n int) (arch.Addr, error) {
	m, err := s.stack()
	if err != nil {
		return 0, err
	}
	if m == nil {
		return 0, &arch.FaultError{Write: true, Cause: unix.EFAULT}
	}
	return (m.Range.End - arch.Addr(n)) &^ 15, nil
}

// sigaction reads the action of sig.
func (r *Remote) sigaction(sig unix.Signal) (*sigaction, error) {
	sa := new(sigaction)
	b := unsafe.Slice((*byte)(unsafe.Pointer(sa)), unsafe.Sizeof(*sa))
	err := r.withBytes(make([]byte, len(b)), func(at arch.Addr) error {
		if _, err := r.Syscall(unix.SYS_RT_SIGACTION, uint64(sig), 0, uint64(at), 8); err != nil {
			return err
		}
		return r.th.Proc.Space.ReadMemory(at, b)
	})
	return sa, err
}

// setSigaction sets the action of sig.
func (r *Remote) setSigaction(sig unix.Signal, sa *sigaction) error {
	b := unsafe.Slice((*byte)(unsafe.Pointer(sa)), unsafe.Sizeof(*sa))
	return r.withBytes(b, func(at arch.Addr) error {
		_, err := r.Syscall(unix.SYS_RT_SIGACTION, uint64(sig), uint64(at), 0, 8)
		return err
	})
}
