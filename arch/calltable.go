package arch

// A call table is memory in which the target follows calls itself: a body at a function's
// entry notes the call, one at its return address forgets it and counts. Nothing on a stack
// is changed, but by FollowWork.Replaces. The tracer sees the same table.
//
// The target handles the plain calls. Everything else traps, before anything was done,
// and the tracer does it: an unknown return address, a frame that holds a call already
// which this one can't be a tail of, a limit that is reached, a table that is full, an
// arrival at a return address by another way than a return.

// FollowedCall is one call, or several that share a frame by tail calls of one function to
// itself, directly or not.
type FollowedCall struct {
	CFA   Addr   // the stack pointer after the return
	Ret   Addr   // what stands in the place of the return address: that, or a relay's
	Line  uint16 // that the call is counted in
	Count int    // calls
	Jumps bool   // the function may end by a jump to another, or to itself
	Began uint64 // when, in ticks of the time-stamp counter; of calls whose line is timed
}

// CallTable is the tracer's view of a table. Its methods are for one goroutine; threads of the
// target change the table all the time.
type CallTable interface {
	// Close makes all entries trap, until Open.
	Close()
	Open()
	// Line is a line of the table, 1 to MaxLines.
	Line(n uint16) CallLine
	// Know makes ret a return address that calls counted in a line may have. Others' entries
	// trap. Forget is the opposite, for all return addresses.
	Know(ret Addr, line uint16)
	Forget(line uint16)
	// Replace makes ret a return address that calls counted in a line may have whose body Replaces it: by relay, which leads there (Relays).
	// ForgetRelays is the opposite, for all.
	Replace(ret Addr, line uint16, relay Addr)
	ForgetRelays()
	// Hold adds n, which may be negative, to the number of calls that return to ret and
	// that only the tracer follows. While that is not 0, entries with that return
	// address trap. Returns to ret trap as well, unless their call is in the table.
	Hold(ret Addr, n int)
	// Put follows a call. It is false if there is no room.
	Put(FollowedCall) bool
	// Frame lists the calls with a CFA; All lists all.
	Frame(cfa Addr) []CallSlot
	All(func(CallSlot))
	// Take removes a call from the table. It is false if that was removed before. The thread
	// whose call it is must be stopped outside of all bodies, or not in the call any more.
	Take(CallSlot) bool
	// Mark is 40 bytes, aligned to 8: a word of four, which may hold what the tracer likes, and from MarkNode on a node with room in front (internal/robust). While the word
	// has the bit MarkDied bodies replace no return address, and calls that want it go on without being followed.
	Mark() []byte
	// Redirect makes ret what stands in the place of a call's return address. The thread must be stopped as for Take.
	Redirect(s CallSlot, ret Addr)
}

// CallSlot is a call and where it is in the table.
type CallSlot struct {
	FollowedCall
	At int
}

// CallLine is where the target counts the calls of one probe. Its methods may be called
// concurrently.
type CallLine interface {
	// Calls tells at one moment how many calls are in the table and how many have returned.
	Calls() (active int, returns uint64)
	// Add changes the number of those in the table.
	Add(n int)
	// SetLimit bounds Active: entries above it trap. At most MaxCalls.
	SetLimit(n int)
}

const (
	MaxCalls = 1 << 15 // the highest limit of a CallLine: as many threads may be about to find that it is reached
	MaxLines = 4095

	MarkNode = 32      // the offset in CallTable.Mark
	MarkDied = 1 << 30 // FUTEX_OWNER_DIED
)

// FollowWork is what a body at a function's entry needs to know.
type FollowWork struct {
	Table CallTable
	Line  uint16
	Jumps bool // as in FollowedCall
	Timed bool // note the time. Calls that share a frame with others trap
	// Replaces tells that the body puts a relay's address into the place of a return address, where CallTable.Replace has told so. It does before the call is in
	// the table. It never puts one there that does not lead to where the return address did: it looks at the relay itself.
	Replaces bool
	Dead     Dead // need not be put back, since no body behind looks at them
}

// ReturnWork is what a body at a return address needs to know.
type ReturnWork struct {
	Table CallTable
	Ret   Addr
	Relay bool // Ret is a relay's: who comes there without a call in the table traps
	Dead  Dead // as in FollowWork; Then looks at registers
	// Then, if it is not nil, runs when a call has ended here, after it was counted. Calls
	// that share their frame trap. It begins and ends with the stack pointer ThenBelow bytes
	// lower than the thread has it, may use ThenRoom bytes below, and finds words there.
	Then Body
}

// The words at the stack pointer of ReturnWork.Then: first ThenWords[0], and so on.
const (
	ThenBelow = 144
	ThenRoom  = 256
)

// ThenWords are the names of those words: the time that the call took, in ticks, and its line
// (0 if no call has ended).
var ThenWords = []string{"duration", "line"}

// CallBodies is what following calls in the target needs of an architecture.
type CallBodies interface {
	// CallTableSize is the size in bytes of a table, zeroed and aligned to 64.
	CallTableSize() int
	// CallTable views a table, which the tracer has at mem and the target at at.
	CallTable(mem []byte, at Addr) CallTable
	// FollowBody notes a call in front of a function's first instruction. It counts nothing
	// but Active.
	FollowBody(FollowWork) Body
	// ReturnBody ends the calls that return to an address, in front of the instruction there.
	ReturnBody(ReturnWork) Body
}
