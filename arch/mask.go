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
	Stops
}

// MaskTable is memory of the target where tails look up the set that a program passes to rt_sigprocmask(2), bit n-1 for signal n, and find the one that is to
// be blocked in its place. It is where the table begins. Everything in it is 8 bytes long, but for Looked and Less.
//
// A tail reads the set s. If Looked says no of its lowest byte, it passes that. Else it goes through the entries: it adds Difference(0) to s, then
// Difference(1), and so on; the first sum that is 0 is of the entry whose Cell it passes. If there is none, it asks the tracer, unless Closed. If nobody
// answers, and the set has the last eight signals, as those of nearly all have, its lowest byte becomes, where the program has it, what Less says of it.
//
// So an entry n is made by writing its cell, and then, in one store, Difference(n): the set of entry n-1 (0 for the first) minus its own.
// Those behind it are 0, by which nothing is found that was not found before. A thread that looks meanwhile finds it or asks.
type MaskTable Addr

// MaskEntries is how many sets a table has room for.
const MaskEntries = 24

const lowestBytes = 256

// Closed is where a word lies that is not 0 if tails ask no more.
func (t MaskTable) Closed() Addr { return Addr(t) }

// Looked is where 256 bytes lie, by the lowest byte of a set: 0 if the program's own is right.
func (t MaskTable) Looked() Addr { return Addr(t) + 8 }

// Less is where 256 bytes lie: the lowest byte of a set without the signals that breakpoints raise, by that byte.
func (t MaskTable) Less() Addr { return t.Looked() + lowestBytes }

// Difference is where that of entry i lies.
func (t MaskTable) Difference(i int) Addr { return t.Less() + lowestBytes + Addr(8*i) }

// Cell is where the set lies that is passed for that of entry i.
func (t MaskTable) Cell(i int) Addr { return t.Difference(MaskEntries) + Addr(8*i) }

// End is where the table ends.
func (t MaskTable) End() Addr { return t.Cell(MaskEntries) }

// MaskWork is what a tail in front of a call of rt_sigprocmask needs to know.
type MaskWork struct {
	// Known is where to have the call read its set, which the program always takes from one place that it can't
	// write to; 0 if it takes sets from anywhere.
	Known Addr
	// Table is for sets from anywhere.
	Table MaskTable
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
	// PassMask does for r, in front of the call, what a tail does: the call reads the set at cell, and MaskPointers knows the program's own.
	PassMask(r Regs, cell Addr)
	// MaskPointerUse tells whether i, which is behind a call, needs the register of that pointer, and whether it gives it
	// another value. What is not known well needs it.
	MaskPointerUse(i Insn) (needs, sets bool)
}
