package ptrace

import "github.com/gokprobe/gokprobe/arch"

// Verdict is what a stopped thread does next, decided by whoever knows what its stop means. The registers say where it goes on; a Verdict says
// what that place is, what becomes of the signal that the thread stopped for, and what it stops for next. It is made by one of the functions
// below, so nothing contradictory can be asked for, and replaces the one before as a whole.
//
// What must hold:
//
//   - The Handler's methods about a stop return one, on every way out. It is applied in one place, when the method has returned, and only if the
//     thread stands at that stop still. The method may have let it go, or the thread may be in another program since.
//   - Thread.Go gives one earlier, in two cases alone. The first is a thread that a Freeze holds, and that is moved: no method is about it.
//   - The second is the method's own thread when its instruction has been done, but probes' handlers are still to run. They may call a function of the
//     target, freeze the thread, or let everything go, and all of these go by what it was told. The method returns AsTold or NotOurs then.
type Verdict struct {
	way            way
	original, trap arch.Addr
}

type way uint8

const (
	undecided way = iota
	asTold
	notOurs
	runOn
	withSignal
	dropSignal
	intoCopy
	stepOnce
	intoKernel
)

// Undecided takes back what the last Verdict asked for: the thread is as it stopped.
func Undecided() Verdict { return Verdict{} }

// AsTold leaves it at what the thread was told last: by Go in this stop, or before. The stop itself is done, and the program gets no signal for it.
func AsTold() Verdict { return Verdict{way: asTold} }

// NotOurs gives the program the signal that the thread stopped for. Else it is AsTold.
func NotOurs() Verdict { return Verdict{way: notOurs} }

// RunOn makes the thread go on in the program's code, and stop for nothing. A breakpoint or single step of ours that it
// stopped for is done. Handler.Signal's Delivery still decides about a signal of the program's. Held signals are delivered.
func RunOn() Verdict { return Verdict{way: runOn} }

// WithSignal is RunOn, but the program gets the signal that the thread stopped for, whatever raised it.
func WithSignal() Verdict { return Verdict{way: withSignal} }

// DropSignal keeps the signal that the thread stopped for from the program. The thread is then like one that stopped for
// nothing.
func DropSignal() Verdict { return Verdict{way: dropSignal} }

// IntoCopy sends a thread that is at a breakpoint into code of ours, from where it comes back to the program by itself. A guard knows that code.
func IntoCopy() Verdict { return Verdict{way: intoCopy} }

// IntoCopyUntil is IntoCopy into code that ends with a breakpoint, which leaves the instruction pointer at trap. Nothing but that breakpoint may lead
// to trap: if it is the thread's next stop, nobody asks for the siginfo.
func IntoCopyUntil(trap arch.Addr) Verdict { return Verdict{way: intoCopy, trap: trap} }

// StepOnce makes the thread execute one instruction of ours when it is resumed, by the processor's own single-stepping. Handler.SingleStepped is
// called when the processor reports the step's end. An instruction that raises an exception has no such end: Handler.Breakpoint or
// Handler.Signal is called for that instead, and the request holds. Like IntoKernel's it holds over all other stops, until another Verdict.
func StepOnce() Verdict { return Verdict{way: stepOnce} }

// IntoKernel asks for Handler.Entered when the thread enters a system call by the copy of an instruction, which copied
// follows. Whether the call may be made is decided as for the original, which original follows.
func IntoKernel(original, copied arch.Addr) Verdict {
	return Verdict{way: intoKernel, original: original, trap: copied}
}

// signals tells whether the program gets the signal of a trap that is told v.
func (v Verdict) signals() bool { return v.way == notOurs || v.way == withSignal }

// Go gives the thread, which must be stopped, its Verdict. A thread that was killed meanwhile is no error.
func (th *Thread) Go(v Verdict) {
	switch v.way {
	case asTold:
		return
	case notOurs:
		th.notOurs()
		return
	}
	th.takeRequestBack()
	th.at.moved, th.at.inCopy, th.at.trapAt = false, false, 0
	switch v.way {
	case runOn:
		th.at.moved, th.at.trapped = th.at.stop.Reason != Signal, 0
		th.releaseHeld()
	case withSignal:
		th.notOurs()
		th.releaseHeld()
	case dropSignal:
		th.at.stop.Reason = Interrupt
	case intoCopy:
		th.at.inCopy, th.at.trapAt = true, v.trap
	case stepOnce:
		th.at.inCopy = true
		th.stepOnce()
	case intoKernel:
		th.at.inCopy = true
		th.imitateDispatch(v.original, v.trap)
		th.at.next = nextEntry
	}
}

// HasLeft tells whether the thread, which stopped for us, was told to RunOn in this stop: its instruction pointer is in the program's code.
func (th *Thread) HasLeft() bool { return th.at.moved }

// stepOnce asks for a single step.
func (th *Thread) stepOnce() {
	if regs, err := th.hostRegs(); err == nil {
		th.at.next, th.at.stepFrom, th.at.ownTrap = nextStep, regs.IP(), regs.TrapFlag()
	}
}

// takeRequestBack makes the thread stop for nothing. After a single step it clears the trap flag that the program does not have: the kernel
// hides its own, but not before an instruction that may set the flag (is_setting_trap_flag in arch/x86/kernel/step.c).
func (th *Thread) takeRequestBack() {
	if th.at.next == nextStep && !th.at.ownTrap {
		if regs, err := th.hostRegs(); err == nil {
			regs.ClearTrapFlag()
		}
	}
	th.restoreDispatch()
	th.at.next = nextAny
}

// notOurs: the program gets the signal that the thread stopped for.
func (th *Thread) notOurs() {
	if th.at.stop.Reason == Breakpoint || th.at.stop.Reason == SingleStep {
		th.at.stop.Reason = Signal
	}
	th.unmark()
}

// releaseHeld is release, if anything waits for that.
func (th *Thread) releaseHeld() {
	if th.owed.any() {
		th.release()
	}
}
