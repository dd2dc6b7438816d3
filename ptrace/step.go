package ptrace

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Step makes a thread that Freeze holds execute one instruction. All others stay
// stopped. A signal that it was stopped for, or that arrives, is held until RunOn or WithSignal,
// but one that stops the process does that. Whatever the thread was stopped for, its
// stop is a SingleStep afterwards, which is done; or a Signal that the
// instruction has raised, or a Breakpoint. The error is ErrExited if it has come to its
// end instead.
func (s *Space) Step(th *Thread) error {
	t := s.tracer
	th.keepForLater()
	th.Go(StepOnce())
	for {
		th.cont(unix.PTRACE_SINGLESTEP, th.stopSignal())
		if err := t.await(th); err != nil {
			return err
		}
		switch th.at.stop.Reason {
		case SingleStep:
			th.at.moved = true
			return nil
		case Signal:
			if info, err := th.siginfo(); err == nil && info.Synchronous() {
				return nil
			}
			th.keepForLater()
		case Breakpoint:
			return nil
		case Interrupt, GroupStop:
		default:
			return fmt.Errorf("thread %d: %w", th.TID, ErrExited)
		}
	}
}

// keepForLater holds the signal that the thread has stopped for.
func (th *Thread) keepForLater() {
	if th.at.stop.Reason != Signal || th.stopSignal() != 0 {
		return
	}
	if info, err := th.siginfo(); err == nil {
		th.hold(info)
	}
	th.at.stop.Reason = Interrupt
}

// endStep takes back a single step that is in force still. The kernel forgets it when the thread is resumed in another way, or let go by PTRACE_DETACH, but not
// when we die: then the thread traps behind its next instruction, or system call. It gets no further than to another stop for that, an Interrupt or a
// GroupStop. A signal of the program's that it was stopped for is sent again. The error is ErrExited.
func (th *Thread) endStep() error {
	t := th.Proc.tracer
	for th.stepping || th.at.stop.Reason != Interrupt && th.at.stop.Reason != GroupStop {
		if th.at.stop.Reason == Exiting {
			return fmt.Errorf("thread %d: %w", th.TID, ErrExited)
		}
		th.leaveStop()
		if err := th.interrupt(); err != nil {
			return err
		}
		th.cont(unix.PTRACE_CONT, th.stopSignal())
		th.at.moved = false
		if err := t.await(th); err != nil {
			return err
		}
	}
	return nil
}

// leaveStop does the work that is due before a thread leaves its stop for another one.
func (th *Thread) leaveStop() {
	switch th.at.stop.Reason {
	case Breakpoint, SingleStep:
		if th.at.moved {
			th.Proc.tracer.restoreTrap(th)
			th.resendTrap()
			return
		}
	case Signal:
		if th.stopSignal() != 0 {
			return
		}
	default:
		return
	}
	th.postpone()
}

// EndStep gives a stopped thread that was stepped a new stop at the same place, as if
// nobody had stepped it. Other threads stay as they are. The error is ErrExited.
func (th *Thread) EndStep() error {
	if th.state != stopped || !th.stepping {
		return nil
	}
	th.takeRequestBack()
	return th.endStep()
}

// Part prepares the threads that Freeze holds for our death before Detach, when nothing
// of ours is left in the target, not even a guard. Each goes on correctly: the kernel
// has its registers, its own mask and the signals that were held, and knows of no
// single step.
func (s *Space) Part(*Frozen) {
	for _, th := range s.Threads() {
		if th.state != stopped || th.at.stop.Ended() {
			continue
		}
		th.release()
		th.resendHeld()
		_ = th.EndStep() // its end follows
		th.block()
		th.Commit()
	}
}
