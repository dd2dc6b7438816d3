package ptrace

import (
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// standing is all that is true of a thread where it stands: its stop, and what we are in the middle of with it there. A Thread has one
// at a time, by pointer. Three things replace it as a whole: a call of a function (Call), system calls for us (remote), and an exec.
//
// What must hold:
//
//   - Whoever puts a standing aside gives the thread a new one, made by elsewhere, and takes the old one back when the thread stands
//     there again. No field is copied by hand: what is here comes back, what is in Thread goes on.
//   - A standing that was put aside and not taken back is past: whoever began something at it must not go on (Tracer.holds).
//   - What the kernel has of the thread goes on by itself. So taking back is always by resettle, which takes over the kernel's side.
//   - Stops change a standing in place (halted). No stop allocates.
type standing struct {
	halt

	moved     bool // RunOn: what it stopped for us for is done, and its instruction pointer is in the program's code
	deciding  bool // the Handler is asked about the signal that the thread stopped for
	returned  bool // it returns from a system call and the Handler has not been told yet
	errand    errand
	lonely    bool // its call would have failed with EINTR, and is restarted (restart.go)
	next      nextStop
	stepFrom  arch.Addr     // where StepOnce found the thread
	ownTrap   bool          // and whether the program traced itself
	restartAt arch.Addr     // if not 0: a system-call instruction that the kernel makes it execute again when it is resumed
	trapAt    arch.Addr     // if not 0: the instruction pointer at which it will trap next, which nothing but the breakpoint before it leads to
	calls     syscallState  // of the system call that it is in
	wait      time.Duration // that the Handler asks for, before it is resumed
}

// errand is what is true of a thread while it makes system calls for us.
type errand struct {
	on        bool      // no stop is the Handler's then
	sheltered bool      // if it is left in that, it goes on as it was (refuge.go)
	mark      arch.Addr // where frameMark lies on its stack; 0: nowhere
}

// halt is a ptrace-stop: what the kernel has told of it, and what is changed of that.
type halt struct {
	stop       Stop
	injectable bool      // a signal-delivery-stop, from which one signal can be delivered
	inCopy     bool      // the thread was sent into code of ours, which a guard knows: it needs no mark for that (reap.go)
	again      bool      // the signal is one that we have sent again, to this thread alone: see sendOn
	sight      trapSight // what the action of SIGTRAP tells of its breakpoint
	judged     bool      // it was judged whether the thread blocks SIGTRAP (restoreTrap)
	committed  bool      // the stop that is about to be taken ends where its registers say already (Commit)
	trapped    arch.Addr // if not 0: the instruction pointer that TrappedAt has given it, behind a breakpoint that it has not executed
	regs       registers
	mask       Sigset // what the thread blocks, read once in a stop: meanwhile nobody changes it but we
	maskRead   bool
	told       Siginfo  // what the kernel tells of the signal
	toldRead   bool     // nobody but we changes it in a stop
	info       Siginfo  // scratch for siginfo
	kept       *Siginfo // of a stop that system calls for us came after
	unmarked   *Siginfo // what was told of the stop before mark
}

// registers are read once in a stop, at first use, and written when the thread is resumed.
type registers struct {
	own    host.Regs // with our changes
	kernel host.Regs // as the kernel has them
	valid  bool
}

// halted begins a new stop.
func (s *standing) halted(stop Stop) {
	s.stop, s.regs.valid, s.injectable, s.inCopy, s.again, s.sight, s.maskRead = stop, false, false, false, false, asks, false
	s.judged = false
	s.trapped, s.toldRead = 0, false
}

// left ends the stop: the thread is about to run.
func (s *standing) left() {
	s.regs.valid, s.maskRead, s.toldRead, s.kept, s.unmarked = false, false, false, nil, nil
}

// discardStop forgets a stop signal that is kept.
func (h *halt) discardStop() {
	if h.kept != nil && stopSignals.Has(h.kept.Signo()) {
		h.kept = nil
	}
}

// elsewhere is a new standing of a thread that is about to leave s for a while. It begins at the same stop.
func (s *standing) elsewhere() *standing { return &standing{halt: s.halt} }

// resettle prepares s to be taken back by a thread that is stopped at now: registers are to be those of s when it is resumed. No
// signal can be delivered where now has none; then kept is the siginfo of the one that s was at, or nil.
func (s *standing) resettle(now *standing, kept *Siginfo) {
	s.regs.kernel, s.regs.valid = now.regs.kernel, true
	s.injectable, s.inCopy, s.maskRead, s.toldRead = s.injectable && now.injectable, false, false, false
	if s.kept = nil; !s.injectable {
		s.kept = kept
	}
}
