package ptrace

import "github.com/gokprobe/gokprobe/arch"

// Handler gives stops their meaning. Its methods run on the tracer's thread while
// the thread they speak of is stopped; they may use every method of this package.
type Handler interface {
	// Breakpoint is called for a thread that executed a breakpoint instruction;
	// the IP is past it. The answer says whether the SIGTRAP is ours; if it is
	// not, the target gets it.
	Breakpoint(th *Thread) bool
	// SingleStepped is called for a thread that did what Thread.SingleStep asked for.
	// The answer says whether the target gets the SIGTRAP too: it does if it traces
	// itself.
	SingleStepped(th *Thread) bool
	// Entered is called for a thread that has entered a system call after
	// Thread.StopAtSyscall, and may change its registers. It is called while a stop is
	// recorded and must not do more than that, Release, and StopAtReturn.
	Entered(th *Thread)
	// Returned is called for a thread that is about to return from a system call,
	// after Thread.StopAtReturn; and for any whose call is interrupted by a signal
	// handler. In between the kernel may restart the call: see Thread.Restarts.
	Returned(th *Thread)
	// Known reports whether a breakpoint of ours stands at at, in front of th's IP, or
	// stood there. length is that of the instruction it hides, in bytes. It is called
	// while a stop is recorded and must not act.
	Known(th *Thread, at arch.Addr) (ours bool, length int)
	// Signal is called before a signal is delivered, but for one that stops the process: that
	// is seen by no handler. Hold keeps it until Thread.Release.
	Signal(th *Thread, info *Siginfo) Delivery
	// Forked is called for a new process with a copy of its parent's memory,
	// stopped before its first instruction, and says whether to keep it. The
	// thread that has forked is still in its system call.
	Forked(parent *Space, child *Process) Fate
	// Execed is called when p runs a new program: everything that was mapped is
	// gone. old is the Space it had. The answer says whether to keep it.
	Execed(p *Process, old *Space) Fate
	// ThreadExit is called for a thread that will not run user code again.
	ThreadExit(th *Thread)
	// Exited is called when the last thread of p is gone; for a launched process
	// that was let go too, if it ends before the tracer is closed.
	Exited(p *Process)
	// Panicked is called when a bug of ours, or a closure given to Do, has panicked
	// on the tracer's thread. It should let everything go.
	Panicked(value any, stack []byte)
}

// GuardKeeper is what a Handler may be beside: GuardLost is called after p's guard was put back, which had
// gone since a thread that blocks SIGTRAP came to a breakpoint. It may be in a handler of a signal.
//
// GuardTaken is called when the program is found to have set an action for SIGTRAP in the place of p's guard: there is none from now on.
type GuardKeeper interface {
	GuardLost(p *Process)
	GuardTaken(p *Process)
}

// VforkWatcher is what a Handler may be beside: VforkEnded is called for a thread that is about to return from vfork(2), since its child has
// executed another program or ended. It has not run in between, and can make system calls again.
type VforkWatcher interface {
	VforkEnded(th *Thread)
}

// MaskKeeper is what a Handler may be beside, to note what a stopped thread blocks by
// itself, where others find it if we are killed. KeepMask is called before the thread
// is made to block instead; if it answers false, that is not done. MaskGiven is called
// when the thread has its own mask back. Lessened reports whether m was put in place of
// a set that the thread may have passed to rt_sigprocmask(2) (Sigset.Unforced).
type MaskKeeper interface {
	KeepMask(th *Thread, own, instead Sigset) (noted bool)
	MaskGiven(th *Thread)
	Lessened(th *Thread, m Sigset) bool
}

// Sharer is an optional part of a Handler. It learns of new processes as soon as they
// are made: parent is stopped in the call that makes child, which has not run. Shared
// is called if child shares the memory, Copied if it has a copy of its own;
// Handler.Forked comes later, when parent may have run on. Both are called while stops
// are recorded: they change nothing in the target.
type Sharer interface {
	Shared(parent *Thread, child *Process)
	Copied(parent *Thread, child *Process)
}

// Genealogist is an optional part of a Handler. It learns of every thread as soon as it
// is made: creator is stopped in the call that makes born, which has not run. Where
// another thread ends at that moment, creator is the process's leader, and Born is
// called again when the true one reports. It is called while stops are recorded, for
// threads of new processes before Handler.Forked, and changes nothing in the target.
//
// Gone is called for a thread that has ended without a word: Handler.ThreadExit was not called, since a SIGKILL or another
// thread's execve left it no time. Renamed is called when th, which has called execve, gets the ID of its process's leader,
// which has ended; former is the ID that it had.
type Genealogist interface {
	Born(creator, born *Thread)
	Gone(th *Thread)
	Renamed(former int, th *Thread)
}

// Delivery is what to do with a signal.
type Delivery uint8

const (
	Deliver Delivery = iota
	Hold
	Drop
)

// Fate says whether a process stays traced.
type Fate uint8

const (
	Keep Fate = iota
	LetGo
)
