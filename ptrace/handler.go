package ptrace

import (
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Handler gives stops their meaning; Nop is to be embedded by one that does not want all. Its methods run on the tracer's thread while
// the thread they speak of is stopped; they may use every method of this package.
type Handler interface {
	// Breakpoint is called for a thread that executed a breakpoint instruction;
	// the IP is past it. The answer is NotOurs if the SIGTRAP is not ours: the
	// target gets it.
	Breakpoint(th *Thread) Verdict
	// SingleStepped is called for a thread that did what StepOnce asked for.
	// The answer is WithSignal or NotOurs if the target gets the SIGTRAP too: it
	// does if it traces itself.
	SingleStepped(th *Thread) Verdict
	// Entered is called for a thread that has entered a system call after
	// IntoKernel, and may change its registers. It is called while a stop is
	// recorded and must not do more than that. The answer says whether Returned is to be
	// called when the call is done. Signals that were held are delivered.
	Entered(th *Thread) (untilReturn bool)
	// Returned is called for a thread that is about to return from a system call,
	// if Entered has asked for that, which is not if the call does not return (exit(2),
	// execve(2)); and for any whose call is interrupted by a signal
	// handler. In between the kernel may restart the call: see Thread.Restarts.
	Returned(th *Thread)
	// SyscallEntered is called, after Space.TraceSyscalls, for a thread that is about to make a system call. Its registers are
	// as in front of the instruction. The answer says whether the call is made, by the registers as they are then;
	// if it is not, the result register is what it returns.
	SyscallEntered(th *Thread) (made bool)
	// SyscallReturned is called when such a call is done: the result register has what it returns. For a call that
	// the handler of a signal interrupts that is -ERESTARTSYS or one of its kin (include/linux/errno.h).
	// It is not called for a call that does not return (exit(2), execve(2)), nor for rt_sigreturn(2), which has no result.
	SyscallReturned(th *Thread)
	// Known reports whether a breakpoint of ours stands at at, in front of th's IP, or
	// stood there. length is that of the instruction it hides, in bytes. It is called
	// while a stop is recorded and must not act.
	Known(th *Thread, at arch.Addr) (ours bool, length int)
	// Signal is called before a signal is delivered, but for one that stops the process: that
	// is seen by no handler. The Verdict is about the thread, the Delivery about the signal.
	Signal(th *Thread, info *Siginfo) (Delivery, Verdict)
	// Forked is called for a new process with a copy of its parent's memory,
	// stopped before its first instruction, and says whether to keep it. The
	// thread that has forked is still in its system call.
	Forked(parent *Space, child *Process) Fate
	// Shared and Copied tell of a new process as soon as it is made: parent is stopped in the call that makes child, which has
	// not run. Shared is called if child shares the memory, Copied if it has a copy of its own; Forked comes later, when
	// parent may have run on. Both are called while stops are recorded: they change nothing in the target.
	Shared(parent *Thread, child *Process)
	Copied(parent *Thread, child *Process)
	// Born tells of every thread as soon as it is made: creator is stopped in the call that makes born, which has not run. Where
	// another thread ends at that moment, creator is the process's leader, and Born is called again when the true one
	// reports. It is called while stops are recorded, for threads of new processes before Forked, and changes nothing in the target.
	Born(creator, born *Thread)
	// Gone is called for a thread that has ended without a word: ThreadExit was not called, since a SIGKILL or another
	// thread's execve left it no time.
	Gone(th *Thread)
	// Renamed is called when th, which has called execve, gets the ID of its process's leader, which has ended; former is the ID
	// that it had.
	Renamed(former int, th *Thread)
	// Execed is called when p runs a new program: everything that was mapped is
	// gone. old is the Space it had. The answer says whether to keep it.
	Execed(p *Process, old *Space) Fate
	// Left is called in place of Execed for a process that is killed before anybody could be told that it runs a new program. It has left
	// old, and its end follows.
	Left(p *Process, old *Space)
	// Alone is called when no process is traced any more: the last one has ended, or was let go.
	Alone()
	// VforkEnded is called for a thread that is about to return from vfork(2), since its child has executed another program or
	// ended. It has not run in between, and can make system calls again.
	VforkEnded(th *Thread)
	// ThreadExit is called for a thread that will not run user code again.
	ThreadExit(th *Thread)
	// Exited is called when the last thread of p is gone; for a launched process
	// that was let go too, if it ends before the tracer is closed.
	Exited(p *Process)
	// GuardLost is called after p's guard was put back, which had gone since a thread that blocks SIGTRAP came to a
	// breakpoint. It may be in a handler of a signal.
	GuardLost(p *Process)
	// GuardTaken is called when the program is found to have set an action for SIGTRAP in the place of p's guard: there is
	// none from now on.
	GuardTaken(p *Process)
	// KeepMask notes what a stopped thread blocks by itself, where others find it if we are killed. It is called before the
	// thread is made to block instead; if it answers false, that is not done.
	KeepMask(th *Thread, own, instead Sigset) (noted bool)
	// MaskGiven is called when the thread has its own mask back.
	MaskGiven(th *Thread)
	// Lessened reports whether m was put in place of a set that the thread may have
	// passed to rt_sigprocmask(2) (Sigset.Unforced).
	Lessened(th *Thread, m Sigset) bool
	// Panicked is called when a bug of ours, or a closure given to Do, has panicked
	// on the tracer's thread. It should let everything go.
	Panicked(value any, stack []byte)
}

// Nop is a Handler that wants nothing: the program gets its signals, forked processes are let go, and a panic of ours ends us. It is there to be embedded.
type Nop struct{}

// Breakpoint knows no breakpoint.
func (Nop) Breakpoint(*Thread) Verdict { return NotOurs() }

// SingleStepped asked for no step.
func (Nop) SingleStepped(*Thread) Verdict { return AsTold() }

// Entered wants no stop at the return.
func (Nop) Entered(*Thread) bool { return false }

// Returned does nothing.
func (Nop) Returned(*Thread) {}

// SyscallEntered lets the call be made.
func (Nop) SyscallEntered(*Thread) bool { return true }

// SyscallReturned does nothing.
func (Nop) SyscallReturned(*Thread) {}

// Known knows no breakpoint.
func (Nop) Known(*Thread, arch.Addr) (bool, int) { return false, 0 }

// Signal gives the program its signal.
func (Nop) Signal(*Thread, *Siginfo) (Delivery, Verdict) { return Deliver, AsTold() }

// Forked lets the child go.
func (Nop) Forked(*Space, *Process) Fate { return LetGo }

// Shared does nothing.
func (Nop) Shared(*Thread, *Process) {}

// Copied does nothing.
func (Nop) Copied(*Thread, *Process) {}

// Born does nothing.
func (Nop) Born(_, _ *Thread) {}

// Gone does nothing.
func (Nop) Gone(*Thread) {}

// Renamed does nothing.
func (Nop) Renamed(int, *Thread) {}

// Execed keeps the process.
func (Nop) Execed(*Process, *Space) Fate { return Keep }

// Alone does nothing.
func (Nop) Alone() {}

// Left does nothing.
func (Nop) Left(*Process, *Space) {}

// VforkEnded does nothing.
func (Nop) VforkEnded(*Thread) {}

// ThreadExit does nothing.
func (Nop) ThreadExit(*Thread) {}

// Exited does nothing.
func (Nop) Exited(*Process) {}

// GuardLost does nothing.
func (Nop) GuardLost(*Process) {}

// GuardTaken does nothing.
func (Nop) GuardTaken(*Process) {}

// KeepMask agrees.
func (Nop) KeepMask(*Thread, Sigset, Sigset) bool { return true }

// MaskGiven does nothing.
func (Nop) MaskGiven(*Thread) {}

// Lessened knows no such set.
func (Nop) Lessened(*Thread, Sigset) bool { return false }

// Panicked goes on panicking.
func (Nop) Panicked(v any, stack []byte) { panic(fmt.Sprintf("%v\n%s", v, stack)) }

// Delivery is what to do with a signal.
type Delivery uint8

const (
	Deliver Delivery = iota
	Hold             // until RunOn or WithSignal
	Drop             // the program never gets it. What a fault has done to its action and mask is undone
)

// Fate says whether a process stays traced.
type Fate uint8

const (
	Keep Fate = iota
	LetGo
)
