package arch

// Tailed is a Body that does something behind the displaced instructions as well, in front of the jump back.
//
// What a tail changes, the code that follows does not need: at each of its instructions a thread may be sent to Detour.End,
// as from the jump back itself.
type Tailed interface {
	Body
	// Tail is the code. It must not be changed: many detours may have the same.
	Tail() TailCode
}

// TailCode is a generated tail, the same wherever it stands. Addresses in it count from its beginning.
type TailCode struct {
	Code   []byte
	Starts []Addr // of its instructions
	Stops
}

// MaskTable is memory of the target. A tail looks up the set that the target passes to
// rt_sigprocmask(2), bit n-1 for signal n, and finds the set to block in its place. The
// value is the table's address. All fields have 8 bytes, except Looked and Less.
//
// A tail reads the set s. If Looked says no of its lowest byte, it passes that. Else it
// goes through the entries: it adds Difference(0) to s, then Difference(1), and so on;
// the first sum that is 0 is of the entry whose Cell it passes. If there is none, it
// asks the tracer, unless Closed. If nobody answers, and the set has the last eight
// signals, as a set of nearly all signals has, the tail replaces its lowest byte in the
// target's own memory; Less has the new one.
//
// So an entry n is made by writing its cell, and then, in one store, Difference(n): the
// set of entry n-1 (0 for the first) minus its own. The differences behind it are 0,
// and find nothing that was not found before. A thread that looks meanwhile finds the
// entry or asks.
type MaskTable Addr

// MaskEntries is how many sets a table has room for.
const MaskEntries = 24

const lowestBytes = 256

// Closed is the address of a word that is not 0 if tails ask no more.
func (t MaskTable) Closed() Addr { return Addr(t) }

// Looked is the address of 256 bytes, indexed by the lowest byte of a set: 0 if the
// target's own set is right.
func (t MaskTable) Looked() Addr { return Addr(t) + 8 }

// Less is the address of 256 bytes, indexed by the lowest byte of a set: that byte
// without the signals that breakpoints raise.
func (t MaskTable) Less() Addr { return t.Looked() + lowestBytes }

// Difference is the address of entry i's difference.
func (t MaskTable) Difference(i int) Addr { return t.Less() + lowestBytes + Addr(8*i) }

// Cell is the address of the set that is passed in place of entry i's.
func (t MaskTable) Cell(i int) Addr { return t.Difference(MaskEntries) + Addr(8*i) }

// End is where the table ends.
func (t MaskTable) End() Addr { return t.Cell(MaskEntries) }

// MaskWork is what a tail in front of a call of rt_sigprocmask needs to know.
type MaskWork struct {
	// Known is the address from where the call shall read its set, if the target always
	// takes it from one read-only place; 0 if it takes sets from anywhere.
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
	MaskTail(MaskWork) TailCode
	// ActionTail is a tail in front of a call of rt_sigaction: where that is about sig,
	// it asks the tracer. Without one, a call that would set the default action only
	// reads the action: the present one must stay, and a child of posix_spawn(3) gets
	// the default from execve(2).
	ActionTail(sig int) TailCode
	// MaskPointers returns the pointer to a set that r passes to rt_sigprocmask. In
	// front of the call, if a tail has changed it, it also returns the one that the
	// target has passed.
	MaskPointers(r Regs) (passed, own Addr)
	// SetMaskPointer has r pass another one.
	SetMaskPointer(r Regs, p Addr)
	// PassMask does for r, in front of the call, what a tail does: the call reads the set at cell, and MaskPointers knows the program's own.
	PassMask(r Regs, cell Addr)
	// MaskPointerUse tells whether i, which is behind a call, needs the register of
	// that pointer, and whether it gives it another value. If that is uncertain, the
	// answer is yes.
	MaskPointerUse(i Insn) (needs, sets bool)
}
