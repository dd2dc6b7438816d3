package arch

// An upcall calls the tracer's handlers without stopping the thread: the thread puts its
// registers into a mailbox, which is memory that it shares with the tracer, and waits,
// spinning, for the answer. It does so only while the tracer says that it looks, and no
// longer than a bounded number of turns; else it traps.

// BoxState is the state of a mailbox. Only the side that is named makes a change:
//
//	free ──thread──> claimed ──thread──> posted ──tracer──> taken ──tracer──┬─> declined ──thread──> free
//	  ^                                    │                                ├─> answered ──thread──> free
//	  └────────────────thread──────────────┘ (the wait was too long)        └─> called   ──tracer──> free
//
// The two ways out of posted exclude each other by compare and exchange. Every way that
// begins at posted ends without the other side: a thread whose mailbox was not taken takes
// it back and traps; one whose mailbox is taken when its patience ends, and one that is
// called, traps at StopWaiting, where the tracer finishes the upcall by ptrace. So
// nobody ever waits for somebody who may have gone.
type BoxState uint32

const (
	BoxFree     BoxState = iota
	BoxClaimed           // a thread fills it
	BoxPosted            // it waits to be taken
	BoxTaken             // the tracer handles it
	BoxDeclined          // no handler has run: the thread shall trap
	BoxAnswered          // handlers have run: the thread loads its registers and goes on at the first copy
	BoxCalled            // handlers have run: the thread shall come to StopWaiting
)

// Mailbox is the tracer's view of one mailbox. Its methods are for one goroutine; the
// thread at the other end is the only concurrency.
type Mailbox interface {
	// Take takes a posted mailbox. It is false if the thread was faster.
	Take() bool
	// State returns the mailbox's present state.
	State() BoxState
	// Regs are the thread's registers in the mailbox itself, as at a breakpoint at the site: IP is the
	// site plus BreakpointAdvance. They are valid from Take to Answer, Call or Free.
	Regs() Regs
	// Thread is the identity of the thread: its thread pointer.
	Thread() Addr
	// Noted returns the word of the stack at at, as it was at the site, if the body
	// that posted the mailbox was asked to note it (UpcallWork.Notes) and could. It
	// says nothing of a mailbox that another body has posted.
	Noted(at Addr) (word uint64, ok bool)
	// Decline makes the thread trap, as if the tracer did not look.
	Decline()
	// Answer lets the thread go on with Regs at the first copy; their IP is ignored. If
	// more has changed than the thread can load, it comes to StopWaiting first.
	Answer()
	// Call makes the thread stop at StopWaiting, to go on with Regs at their IP.
	Call()
	// Free makes the mailbox free, on behalf of a thread that is stopped or gone.
	Free()
}

// Mailboxes is the tracer's view of the memory that upcalls share.
type Mailboxes interface {
	// Poll takes a posted mailbox and returns it, nil if there is none. Every thread that keeps
	// posting is met.
	Poll() Mailbox
	// SetLooking tells the threads whether the tracer looks.
	SetLooking(bool)
	// SetPatience limits a thread's wait, in turns of some 20 to 60 ns each.
	SetPatience(turns uint32)
	// At is the mailbox at a target address; nil if there is none.
	At(Addr) Mailbox
}

// UpcallEnd is how an upcall that was cut short ended.
type UpcallEnd uint8

const (
	UpcallUndone UpcallEnd = iota // no handler has run: the thread is in front of the site's instruction
	UpcallDone                    // handlers have run: the thread is where they sent it, 0 meaning the first copy
	UpcallTaken                   // handlers are running: the thread's registers are the mailbox's
)

// UpcallBody is a Body that makes upcalls.
type UpcallBody interface {
	Body
	// Unwind takes a stopped thread out of the body assembled at at, from any place in
	// it, and frees its mailbox, if it has one. r becomes that of the original code, as
	// far as UpcallEnd says. When undone, IP is the site; when done, it is 0 for the
	// first copy, or the place where the handlers sent the thread. If the mailbox is
	// still taken, box is it, and r is unchanged. The error is that of reading the
	// stack; r is then unchanged, too.
	Unwind(at Addr, r Regs, m Memory) (end UpcallEnd, box Mailbox, err error)
	// Box is the mailbox of a thread that stands at one of the body's StopWaiting.
	Box(r Regs) Mailbox
}

// Upcalls is the part of an architecture that upcalls need.
type Upcalls interface {
	// UpcallSize is the size in bytes of the memory shared for n mailboxes, which must be
	// aligned to pages.
	UpcallSize(n int) int
	// Mailboxes views the memory for n mailboxes (a power of two, at most 64), which the
	// tracer has at mem and the target at at. It is set up for use: nobody may use it yet.
	Mailboxes(mem []byte, at Addr, n int) Mailboxes
	// UpcallBody makes upcalls.
	UpcallBody(UpcallWork) UpcallBody
}

// UpcallWork is what a body that makes upcalls needs to know.
type UpcallWork struct {
	Boxes   Mailboxes
	Site    Addr      // of the breakpoint that hits are told to have come to
	RedZone bool      // the code there may keep data in the 128 bytes below its stack pointer
	Notes   StackWord // what lies on the stack there is wanted
}

// StackWord is a word of a thread's stack, by where it lies at a site.
type StackWord uint8

const (
	NoWord     StackWord = iota
	ReturnWord           // where a call has put its return address, in front of a function's first instruction
	PoppedWord           // where a return has found it, behind the return; only with RedZone
)
