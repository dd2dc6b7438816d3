package ptrace

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Step has a thread that Freeze holds execute one instruction. All others stay stopped. A
// signal that it was stopped for, or that arrives, is held until Release, but one that stops the process does that. Whatever the thread
// was stopped for, its stop is a SingleStep afterwards, which MovedOut was called for; or a Signal
// that the instruction has raised, or a Breakpoint. The
// error is ErrExited if it has come to its end instead.
func (s *Space) Step(th *Thread) error {
	t := s.tracer
	th.keepForLater()
	th.SingleStep()
	for {
		th.cont(unix.PTRACE_SINGLESTEP, th.stopSignal())
		if err := t.await(th); err != nil {
			return err
		}
		switch th.stop.Reason {
		case SingleStep:
			th.MovedOut()
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
	if th.stop.Reason != Signal || th.stopSignal() != 0 {
		return
	}
	if info, err := th.siginfo(); err == nil {
		th.hold(info)
	}
	th.stop.Reason = Interrupt
}
