package ptrace

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// System calls that every thread of an address space stops at: every thread is resumed
// by PTRACE_SYSCALL in place of PTRACE_CONT.
//
// At the stop at a call's entry the kernel is ready to make it, and every way of
// resuming the thread sends it there: a Freeze, a call that it makes for us, the end of
// the session. So while the stop is recorded the registers become those in front of the
// instruction: the number in the result register, the instruction pointer in front of
// it, and no call to make (orig_rax is -1). They are written when the thread is
// resumed. So if anything but dispatch resumes it, the call is put off: the kernel
// makes none, and the thread executes the instruction again. dispatch asks the Handler,
// and moves the registers behind the instruction, with the call or with a result.
// Before a thread is let go the call is made. If we are killed the kernel has the
// registers as they were, and makes it.
//
// No other thread sees anything of that: the stopped one has not entered the kernel's code of the call. A signal
// that comes while the call is put off finds the thread in front of the instruction, as if it had come a moment before.
//
// A call that the kernel restarts, after a stop or a signal without a handler, is one
// call. A call that is put off counts the same way. One that a handler of a signal has
// interrupted is done, also if it is made again behind that.

// syscallState describes the system call that a thread is in.
type syscallState struct {
	stands bool  // the thread stands in front of it, and the Handler has not answered
	putOff bool  // the thread has been resumed without an answer, and will come again
	made   bool  // the Handler has answered so, and it has not returned
	lifted bool  // the thread's seccomp filters are, as long as no call is made
	due    place // of a call that is put off with an answer: it is to be made
}

// place is an instruction of one frame, by the stack pointer.
type place struct{ insn, sp arch.Addr }

// The request and its answers (linux/ptrace.h, struct ptrace_syscall_info).
const (
	reqGetSyscallInfo = 0x420e
	syscallEntry      = 1
	syscallExit       = 2
)

type syscallInfo struct {
	op   uint8
	_    [3]byte
	arch uint32
	ip   uint64
	sp   uint64
	nr   uint64 // at an entry
	_    [56]byte
}

// TraceSyscalls tells the Handler of the system calls with the given numbers that
// any thread of the address space makes from now on; of none if there are no numbers.
// Calls by the ABIs of other widths (int 0x80, x32) are not those numbers. Each system
// call, of any number, then stops its thread twice. A call that is under way is not
// told of. It needs Linux 5.3. Seccomp filters would see a call that is not made as one
// with the number -1; if they can't be lifted, the error matches ErrSeccomp.
func (s *Space) TraceSyscalls(numbers map[uint64]bool) error {
	was := s.syscalls
	if len(numbers) == 0 {
		s.syscalls = nil
		for _, th := range s.Threads() {
			th.at.calls.made = false
		}
		return nil
	}
	s.syscalls = numbers
	if was != nil {
		return nil
	}
	return s.Freeze(func(*Frozen) error { // a running thread was resumed without the request
		if err := s.checkSyscalls(); err != nil {
			s.syscalls = nil
			return err
		}
		return nil
	})
}

func (s *Space) checkSyscalls() error {
	for _, th := range s.Threads() {
		if th.state != stopped {
			continue
		}
		if _, err := th.syscallInfo(); errors.Is(err, unix.EIO) || errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("the kernel does not tell of system calls (PTRACE_GET_SYSCALL_INFO, Linux 5.3): %w", err)
		}
		if err := th.liftFilters(); err != nil {
			return err
		}
		th.putFilters()
	}
	return nil
}

// request is how to resume the thread. A thread that stands in front of a call, or
// whose filters are lifted, stops behind the call even if nobody wants calls any more.
// The same holds for one that makes a call again (timedcall.go).
func (th *Thread) request() int {
	if th.at.next == nextAny && (th.Proc.Space.syscalls != nil || th.at.calls.stands || th.at.calls.lifted || th.timed != nil) {
		return unix.PTRACE_SYSCALL
	}
	return th.at.next.request()
}

func (th *Thread) syscallInfo() (info syscallInfo, err error) {
	err = requestPtr(reqGetSyscallInfo, th.TID, unsafe.Sizeof(info), unsafe.Pointer(&info))
	return info, err
}

// native tells that the system call of the thread's stop is one of the 64-bit ABI. Kernels that can't tell (before Linux 5.3) are believed to.
func (th *Thread) native() bool {
	info, err := th.syscallInfo()
	return err != nil || nativeCall(&info)
}

// noteSyscall is the part of recordSyscall for all calls of the address space.
func (th *Thread) noteSyscall() {
	numbers := th.Proc.Space.syscalls
	if numbers == nil && !th.at.calls.stands && !th.at.calls.lifted {
		return
	}
	info, err := th.syscallInfo()
	if err != nil {
		return // killed meanwhile
	}
	switch info.op {
	case syscallEntry:
		th.noteEntry(&info, nativeCall(&info) && numbers[info.nr])
	case syscallExit:
		th.noteReturn()
	}
}

// noteEntry decides whether the Handler is told of a call.
func (th *Thread) noteEntry(info *syscallInfo, wanted bool) {
	c := &th.at.calls
	if c.isDue(place{th.callInsn(info), arch.Addr(info.sp)}) {
		c.made, c.putOff, th.at.restartAt = wanted, false, 0
		return
	}
	again := th.at.restartAt != 0 && !c.putOff
	if th.at.restartAt != 0 {
		again = again && th.at.restartAt == th.callInsn(info)
		th.at.restartAt = 0
	}
	c.putOff = false
	if again {
		return
	}
	if c.made = false; !wanted || th.liftFilters() != nil {
		return
	}
	regs, err := th.hostRegs()
	if err != nil {
		return
	}
	regs.BeforeCall()
	c.stands, th.at.restartAt = true, regs.IP()
}

// isDue tells of a call made at p that it is the one which has been put off with an answer. Calls of a signal's handler may come before it,
// from below its frame.
func (c *syscallState) isDue(p place) bool {
	due := c.due
	if due.insn == 0 || p.sp < due.sp {
		return false
	}
	c.due = place{}
	return due == p
}

// callInsn is the system-call instruction that has brought the thread where it is.
func (th *Thread) callInsn(info *syscallInfo) arch.Addr {
	ip := arch.Addr(info.ip)
	if th.at.regs.valid {
		ip = th.at.regs.own.IP() // it came from a copy, and was moved to the original
	}
	return ip.Add(int64(-len(host.Arch.SyscallInsn())))
}

// noteReturn sees the end of a call, or that it was put off.
func (th *Thread) noteReturn() {
	th.putFilters()
	c := &th.at.calls
	if c.stands {
		c.stands, c.putOff = false, true
		return
	}
	if !c.made {
		return
	}
	th.at.returned = true
	if th.asked {
		th.restartCall()
	}
	th.noteRestart()
}

// atEntry asks the Handler about a call and resumes the thread.
func (t *Tracer) atEntry(th *Thread) {
	at := th.at
	made := t.handler.SyscallEntered(th)
	if !t.holds(th, at) {
		return
	}
	if th.at.wait > 0 && th.at.stop.Reason == SyscallStop && t.toUserMode(th) != nil { // which puts the call off
		return // its end is dispatched
	}
	th.decide(made)
	if th.at.stop.Reason == Signal {
		t.enqueue(th)
		return
	}
	t.dispatchAgain(th)
}

// decide moves a thread in front of a call into it, or behind it.
func (th *Thread) decide(made bool) {
	regs, err := th.hostRegs()
	if err != nil {
		return // killed meanwhile
	}
	c := &th.at.calls
	stood := c.stands && th.at.stop.Reason == SyscallStop
	c.stands, c.putOff, c.made = false, false, made
	switch {
	case made && !stood:
		// It executes the instruction, which is the call that was told of; if a signal's handler comes first, behind that.
		c.made, c.due = false, place{regs.IP(), regs.SP()}
		return
	case made:
		regs.IntoCall()
		th.putFilters()
	default:
		regs.BehindCall()
	}
	th.at.restartAt = 0
}

// syscallDone tells the Handler of the end of a call.
func (t *Tracer) syscallDone(th *Thread) {
	if !th.at.calls.made {
		th.at.calls.putOff = false
		return
	}
	th.at.calls.made = false
	if regs, err := th.hostRegs(); err == nil && !resultless(regs) {
		t.handler.SyscallReturned(th)
	}
}

// liftFilters keeps seccomp filters from the thread's next entry of the kernel's, if
// that makes no call. A filter would see the number -1, and may kill for it. It is
// asked for also where there is none: another thread may install one for all while this
// one stands here (SECCOMP_FILTER_FLAG_TSYNC). If the tracer may not ask, there is
// nothing to do unless there is one now.
func (th *Thread) liftFilters() error {
	if th.at.calls.lifted {
		return nil
	}
	refused := request(unix.PTRACE_SETOPTIONS, th.TID, 0, seizeOptions|optSuspendSeccomp)
	if refused == nil {
		th.at.calls.lifted = true
		return nil
	}
	st, err := procfs.ReadStatus(th.Proc.PID, th.TID)
	if err != nil || st.Seccomp == 0 {
		return nil
	}
	return fmt.Errorf("%w (PTRACE_O_SUSPEND_SECCOMP: %w)", ErrSeccomp, refused)
}

func (th *Thread) putFilters() {
	if th.at.calls.lifted {
		th.at.calls.lifted = false
		_ = request(unix.PTRACE_SETOPTIONS, th.TID, 0, seizeOptions)
	}
}
