package ptrace

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Reason says why a thread stopped, in ptrace(2)'s terms.
type Reason uint8

const (
	Exited      Reason = iota // ended by exit; Stop.Code is the status
	Killed                    // ended by Stop.Signal
	Signal                    // signal-delivery-stop for Stop.Signal
	Breakpoint                // signal-delivery-stop for the SIGTRAP of a breakpoint instruction
	SingleStep                // signal-delivery-stop for the SIGTRAP that StepOnce asked for
	GroupStop                 // job-control stop by Stop.Signal
	Interrupt                 // PTRACE_INTERRUPT, a new thread's first stop, or the end of a group-stop
	SyscallStop               // entry to or exit from a system call
	Clone
	Fork
	Vfork
	VforkDone
	Exec
	Exiting // about to exit, still has its memory
	Other
)

var reasonNames = [...]string{"exited", "killed", "signal", "breakpoint", "single-step", "group-stop", "interrupt", "syscall-stop",
	"clone", "fork", "vfork", "vfork-done", "exec", "exiting", "other"}

func (r Reason) String() string { return reasonNames[r] }

// Stop is one wait status, decoded once.
type Stop struct {
	TID    int
	Reason Reason
	Signal unix.Signal // Signal, GroupStop, Killed
	Code   int         // Exited: the exit status
}

func (s Stop) String() string {
	switch s.Reason {
	case Signal, GroupStop, Killed:
		return fmt.Sprintf("%d: %s %s", s.TID, s.Reason, unix.SignalName(s.Signal))
	}
	return fmt.Sprintf("%d: %s", s.TID, s.Reason)
}

// Ended tells that the thread is gone and was reaped.
func (s Stop) Ended() bool { return s.Reason == Exited || s.Reason == Killed }

var eventReasons = map[int]Reason{
	unix.PTRACE_EVENT_CLONE:      Clone,
	unix.PTRACE_EVENT_FORK:       Fork,
	unix.PTRACE_EVENT_VFORK:      Vfork,
	unix.PTRACE_EVENT_VFORK_DONE: VforkDone,
	unix.PTRACE_EVENT_EXEC:       Exec,
	unix.PTRACE_EVENT_EXIT:       Exiting,
}

// decode turns a wait status into a Stop. A SIGTRAP stays a Signal here: only its
// siginfo tells a breakpoint from a kill(2).
func decode(tid int, ws unix.WaitStatus) Stop {
	s := Stop{TID: tid}
	switch {
	case ws.Exited():
		s.Reason, s.Code = Exited, ws.ExitStatus()
	case ws.Signaled():
		s.Reason, s.Signal = Killed, ws.Signal()
	case !ws.Stopped():
		s.Reason = Other
	default:
		decodeStopped(&s, ws)
	}
	return s
}

func decodeStopped(s *Stop, ws unix.WaitStatus) {
	sig, event := ws.StopSignal(), int(ws>>16)&0xffff
	switch {
	case event == eventStop && sig == unix.SIGTRAP:
		s.Reason = Interrupt
	case event == eventStop:
		s.Reason, s.Signal = GroupStop, sig
	case event != 0:
		s.Reason = Other
		if r, ok := eventReasons[event]; ok {
			s.Reason = r
		}
	case sig == unix.SIGTRAP|0x80:
		s.Reason = SyscallStop
	default:
		s.Reason, s.Signal = Signal, sig
	}
}
