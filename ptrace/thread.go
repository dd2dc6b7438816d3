package ptrace

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/halts"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// state is what the kernel is known to do with a thread.
type state uint8

const (
	running state = iota
	stopped       // in a ptrace-stop, Thread.stop says which
	parked        // inside vfork(2): runs no user code and can't be stopped until the child lets go
	exiting       // past PTRACE_EVENT_EXIT: runs no user code any more
)

// Thread is one traced thread.
type Thread struct {
	TID  int
	Proc *Process
	Born time.Time // when it became known: none of its own instructions was traced before

	state    state
	at       *standing // where it stands, never nil
	queued   bool      // the stop waits in Tracer.backlog
	frozen   bool      // stopped by Freeze, which will resume it
	handled  bool      // a Handler method is about it
	asked    bool      // PTRACE_INTERRUPT was sent and its stop has not come
	stepping bool      // it was last resumed to execute one instruction: the kernel steps it on, if nobody resumes it in another way
	seen     bool      // it has stopped since it was seized
	told     bool      // ThreadExit was called
	ran      uint64    // how often it was resumed to go on by itself
	idle     bool      // the last stop that we asked for found it waiting in a system call

	owed      owed
	job       jobControl
	blocks    blocked
	unblocked unblocked
	guard     guardView

	dispatch *userDispatch // the program's own, while another is in force
	timed    *timedCall    // a call with a timeout that it makes again
	call     *injectedCall // that a Handler method makes
	delayed  *delay        // it waits before it goes on

	written uint64 // the Space's writes when it was last resumed; 0 if we never have

	name  *Name // never nil
	area  rseqArea
	halts halts.Log
	kept  []keeping
}

// Stop is the current stop; valid while the thread is stopped.
func (th *Thread) Stop() Stop { return th.at.stop }

// Stopped reports whether the thread is in a ptrace-stop.
func (th *Thread) Stopped() bool { return th.state == stopped }

// RunsUserCode is false for a thread that is parked in vfork or exiting.
func (th *Thread) RunsUserCode() bool { return th.state == running || th.state == stopped }

// Regs is the stopped thread's registers. They are read at the first call in a
// stop; changes are written when the thread is resumed.
func (th *Thread) Regs() (arch.Regs, error) {
	r, err := th.hostRegs()
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (th *Thread) hostRegs() (*host.Regs, error) {
	if !th.at.regs.valid {
		if err := host.ReadRegs(th.TID, &th.at.regs.own); err != nil {
			return nil, th.gone(err)
		}
		th.at.regs.kernel = th.at.regs.own
		th.at.regs.valid = true
	}
	return &th.at.regs.own, nil
}

// flush writes changed registers.
func (th *Thread) flush() error {
	if !th.at.regs.valid {
		return nil
	}
	th.at.regs.valid = false
	return th.gone(host.WriteRegs(th.TID, &th.at.regs.kernel, &th.at.regs.own))
}

// InSyscall reports whether the stopped thread is inside a system call that will
// go on or restart when the thread is resumed.
func (th *Thread) InSyscall() bool {
	r, err := th.hostRegs()
	return err == nil && interrupted(r)
}

// nextStop is what a thread is to stop for when it is resumed.
type nextStop uint8

const (
	nextAny    nextStop = iota // whatever comes
	nextStep                   // the next instruction
	nextEntry                  // the next system call
	nextReturn                 // the return from the system call that it is in
)

// request is how to resume a thread that is to stop for n.
func (n nextStop) request() int {
	switch n {
	case nextStep:
		return unix.PTRACE_SINGLESTEP
	case nextEntry, nextReturn:
		return unix.PTRACE_SYSCALL
	}
	return unix.PTRACE_CONT
}

// Restarted reports whether a thread is at a breakpoint because the kernel made it
// execute that instruction again, to restart a system call that a stop interrupted. It
// has executed nothing else in between.
func (th *Thread) Restarted() bool {
	return th.at.restartAt != 0 && th.at.restartAt == th.ip().Add(int64(-host.Arch.BreakpointAdvance()))
}

// Restarts tells of a thread that returns from a system call that the kernel is going to
// restart it, unless a signal handler runs instead.
func (th *Thread) Restarts() bool { return th.at.restartAt != 0 }

// noteRestart sees whether the stopped thread is about to restart a system call.
func (th *Thread) noteRestart() {
	r, err := th.hostRegs()
	switch {
	case err != nil:
	case interrupted(r):
		th.at.restartAt = r.IP().Add(int64(-len(host.Arch.SyscallInsn())))
	case th.at.restartAt != r.IP() && th.at.restartAt != r.IP().Add(int64(-host.Arch.BreakpointAdvance())):
		th.at.restartAt = 0
	}
}

// cont resumes the thread with signal sig (0: none). A thread that was killed
// meanwhile is no error: its exit follows.
func (th *Thread) cont(req int, sig unix.Signal) {
	th.Proc.tracer.moves++
	th.markMoved()
	_ = th.flush()
	th.state = running
	th.at.left()
	if !th.at.errand.on {
		th.ran++
	}
	th.stepping = req == unix.PTRACE_SINGLESTEP
	if th.at.stop.Reason == Exiting {
		th.state = exiting
		th.endCall(ErrExited)
	}
	if th.at.stop.Reason == Vfork {
		th.state = parked
	}
	th.noteLetGo()
	th.written = th.Proc.Space.writes
	_ = request(req, th.TID, 0, uintptr(sig))
	th.Proc.tracer.resumed(th.TID)
}

// interrupt asks the thread to stop. The stop, if no other comes first, is an
// Interrupt or, in a stopped group, a GroupStop. If another comes first, an
// Interrupt may still follow; it means nothing then.
func (th *Thread) interrupt() error {
	th.asked = true
	return th.gone(request(unix.PTRACE_INTERRUPT, th.TID, 0, 0))
}

// Name is that of a thread (comm of task_struct) in one program: an exec gives the thread another one.
type Name struct {
	th   *Thread // nil when the thread has executed another program
	text string
	read time.Time
	from time.Time // since when it may have been another's: the maker's, or that of the program before

	before *Name // in the program before
}

// mostOldName is how old a name may be, as a thread rarely changes it. Most change it when they begin: then no name is older than the thread was when it was read.
const mostOldName = 10 * time.Millisecond

// At is the name, read again if it is too old. Of a thread that has ended, or executed another program, it is the last that was read.
func (n *Name) At(now time.Time) string {
	if age := now.Sub(n.read); age > min(mostOldName, n.read.Sub(n.from)) {
		n.Read(now)
	}
	return n.text
}

// Known makes sure that there is a name, be it an old one.
func (n *Name) Known(now time.Time) {
	if n.text == "" {
		n.Read(now)
	}
}

// Read reads the name again.
func (n *Name) Read(now time.Time) {
	if n.th == nil {
		return
	}
	if text, err := procfs.Comm(n.th.Proc.PID, n.th.TID); err == nil {
		n.text = text
	}
	n.read = now
}

// Name is the thread's name in the program that it runs.
func (th *Thread) Name() *Name { return th.name }

// Before is the thread's name in the program that it ran before; nil if it has executed no other.
func (n *Name) Before() *Name { return n.before }

// rename begins a new name: the thread has executed another program.
func (th *Thread) rename() {
	old := th.name
	old.th, old.before = nil, nil
	th.name = &Name{th: th, from: time.Now(), before: old}
}

// Comm is the thread's name.
func (th *Thread) Comm(now time.Time) string { return th.name.At(now) }
