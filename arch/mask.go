package arch

// Tailed is a Body that does something behind the displaced instructions as well, in front of the jump back.
//
// What a tail changes, the code that follows does not need: at each of its instructions a thread may be sent to Detour.End,
// as from the jump back itself.
type Tailed interface {
	Body
	// Tail generates the code at at. Its length does not depend on at.
	Tail(at Addr) TailCode
}

// TailCode is a generated tail.
type TailCode struct {
	Code   []byte
	Starts []Addr // of its instructions
	Fixups []Fixup
	// Asks are breakpoints that call the tracer, with all registers as in front of the call but the two that every system call changes. A thread
	// that goes on behind one does what is right without a tracer.
	Asks []Addr
}

// MaskCell is a set of signals as rt_sigprocmask(2) takes it, bit n-1 for signal n, and where in the target the
// set lies that is to be blocked in its place.
type MaskCell struct {
	Set uint64
	At  Addr
}

// MaskWork is what a tail in front of a call of rt_sigprocmask needs to know.
type MaskWork struct {
	// Known is where to have the call read its set, which the program always takes from one place that it can't
	// write to; 0 if it takes sets from anywhere.
	Known Addr
	// Cells are for sets from anywhere; those that are not listed are blocked as they are.
	Cells []MaskCell
}

// Masks is an architecture on which code in the target can keep threads from blocking the signals that breakpoints raise.
// Nor from taking the guard away that is the action of one of them.
//
// A tail stands in front of the system-call instruction. It gives the call another pointer, to a set if it blocks one of MaskWork's, or
// sets the mask to it. It changes that register, the two that every system call changes, and no flag.
type Masks interface {
	// MaskTail is such a tail, to be had from a Tailed body.
	MaskTail(MaskWork) func(at Addr) TailCode
	// ActionTail is a tail in front of a call of rt_sigaction: where that is about sig, it asks the tracer. Without one, what would set the
	// action to the default has the call read it only: the one that is there is wanted, and a child that posix_spawn(3) makes
	// gets the default from execve(2).
	ActionTail(sig int) func(at Addr) TailCode
	// MaskPointers are the pointer to a set that r passes to rt_sigprocmask, and, in front of the call, the one that the
	// program has passed, if a tail has changed it.
	MaskPointers(r Regs) (passed, own Addr)
	// SetMaskPointer has r pass another one.
	SetMaskPointer(r Regs, p Addr)
	// MaskPointerUse tells whether i, which is behind a call, needs the register of that pointer, and whether it gives it
	// another value. What is not known well needs it.
	MaskPointerUse(i Insn) (needs, sets bool)
}
