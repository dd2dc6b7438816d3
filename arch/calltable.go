package arch

// A call table is memory in which the target follows calls itself: a body at a function's
// entry notes the call, one at its return address forgets it and counts. Nothing on a stack
// is changed. The tracer sees the same table, and both sides end a call by exchanging its
// slot's key, so that each call ends once.
//
// The target does what is plain. Everything else traps, before anything was done, and the
// tracer does it: an unknown return address, a frame that holds a call already which this
// one can't be a tail of, a limit that is reached, a table that is full, an arrival at a return address
// by another way than a return.

// FollowedCall is one call, or several that share a frame by tail calls of one function to
// itself, directly or not.
type FollowedCall struct {
	CFA   Addr // the stack pointer after the return
	Ret   Addr
	Line  Addr // of the CallLine that the call is counted in
	Count int  // calls
	Jumps bool // the function may end by a jump to another, or to itself
}

// CallTable is the tracer's view of a table. Its methods are for one goroutine; threads of the
// target change the table all the time.
type CallTable interface {
	// Close has all entries trap, until Open.
	Close()
	Open()
	// Know makes ret a return address that calls counted in the line with this id may have.
	// Others' entries trap. Forget is the opposite, for all return addresses.
	Know(ret Addr, id uint16)
	Forget(id uint16)
	// Hold says that n more calls (or, negative, fewer) that return to ret are followed by the
	// tracer alone: while there are any, entries with that return address trap, and so do
	// returns to there of calls that are not in the table.
	Hold(ret Addr, n int)
	// Put follows a call. It is false if there is no room.
	Put(FollowedCall) bool
	// Frame lists the calls with a CFA; All lists all.
	Frame(cfa Addr) []CallSlot
	All(func(CallSlot))
	// Take removes a call from the table. It is false if the target was faster.
	Take(CallSlot) bool
}

// CallSlot is a call and where it is in the table.
type CallSlot struct {
	FollowedCall
	At int
}

// CallLine is 64 bytes shared with the target in which it counts the calls of one probe. Its
// methods may be called concurrently.
type CallLine interface {
	// Active is how many of the calls are in the table.
	Active() int
	// Add changes Active.
	Add(n int)
	// Returns is how many calls have returned.
	Returns() uint64
	// SetLimit bounds Active: entries above it trap. At most MaxCalls.
	SetLimit(n int)
}

// MaxCalls is the highest limit of a CallLine.
const MaxCalls = 4096

// FollowWork is what a body at a function's entry needs to know.
type FollowWork struct {
	Table CallTable
	Line  Addr
	ID    uint16 // of the line, not 0
	Jumps bool   // as in FollowedCall
}

// CallBodies is what following calls in the target needs of an architecture.
type CallBodies interface {
	// CallTableSize is the size in bytes of a table, zeroed and aligned to 64.
	CallTableSize() int
	// CallTable views a table, which the tracer has at mem and the target at at.
	CallTable(mem []byte, at Addr) CallTable
	// CallLine views a line.
	CallLine(mem []byte) CallLine
	// FollowBody notes a call in front of a function's first instruction. It counts nothing
	// but Active.
	FollowBody(FollowWork) Body
	// ReturnBody ends the calls that return to ret, in front of the instruction there.
	ReturnBody(t CallTable, ret Addr) Body
}
