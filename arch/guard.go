package arch

// GuardPlace tells a guard where things are. All addresses are the target's.
type GuardPlace struct {
	// Resume is where the address of the resume table stands. The table has a 64-bit shift and
	// a mask, and from ResumeEntries on pairs of addresses: where an exception was raised (0:
	// none was ever here), and where the thread goes on (0: nowhere). The entry of address a
	// is looked for from number a*ResumeHash>>shift on, in a circle as the mask says.
	Resume        Addr
	ResumeHash    uint64
	ResumeEntries int

	// Count is where the 32-bit number of our mappings of code stands. They are listed from First
	// on, every Step bytes, with their start at Start and their end at End.
	Count, First     Addr
	Step, Start, End int

	// Trap is the breakpoint behind the system-call instruction by which the tracer has threads
	// make system calls: see SavedContext.
	Trap Addr

	// Data is GuardDataLen bytes, all zero before the guard is installed.
	Data Addr
}

// The guard's data: the target's own actions for signals, as rt_sigaction(2) takes
// them, by number of the signal. Behind them are the default action, with a mask of all
// signals, and one for free use; the installer of the guard writes both.
const (
	ActionLen    = 32
	guardSignals = 16
	GuardDataLen = guardContext + ContextLen
	guardDefault = ActionLen * guardSignals
	guardScratch = guardDefault + ActionLen
	guardContext = guardScratch + ActionLen
	ContextLen   = 256 // at most, of what Arch.Context makes
	// GuardMarkCode is si_errno of a SIGTRAP whose thread stands at si_addr, where it is to go on.
	GuardMarkCode = 0x676b
	// GuardOwnCode is that of a SIGTRAP that an instruction of the program's own has raised. A guard takes it away.
	GuardOwnCode = 0x676f
)

// SavedAction is where the program's own action for a signal stands.
func (p GuardPlace) SavedAction(sig int) Addr { return p.Data + Addr(ActionLen*sig) }

// DefaultAction is where the default action stands: 24 bytes of zero and 8 of 0xff.
func (p GuardPlace) DefaultAction() Addr { return p.Data + guardDefault }

// ScratchAction is where an action can be put for a system call.
func (p GuardPlace) ScratchAction() Addr { return p.Data + guardScratch }

// SavedContext is where Context puts what the thread goes on with that comes to Trap.
func (p GuardPlace) SavedContext() Addr { return p.Data + guardContext }

// Guard is code in the target that handles signals when the tracer has died.
type Guard struct {
	Code     []byte
	Handler  Addr // for sa_handler, with SA_SIGINFO
	Restorer Addr // for sa_restorer
}

// Guards is the part of an architecture that guards need.
type Guards interface {
	// AssembleGuard generates a guard at at. Its length does not depend on addresses.
	// It uses no stack. So inside of it, except at its last instruction, the stack
	// pointer tells where the signal's frame is.
	AssembleGuard(at Addr, p GuardPlace) Guard
	// Context returns the data with which a guard makes a thread go on with r and the
	// given signals blocked.
	Context(r Regs, mask uint64) []byte
	// Alone generates code at at that does what the planned instruction does and goes on
	// behind it, for a thread that nobody watches. What the processor or the kernel
	// records of the place (x87, rcx after a system call) names the copy. The error wraps
	// ErrReach, or says why there is no such code.
	Alone(at Addr, p Plan) ([]byte, error)
}

// Frames is an architecture on which a thread can load all its registers from memory,
// by returning from a signal's handler that never ran.
type Frames interface {
	// SyscallReturn is a system-call instruction and a return from a function behind it.
	SyscallReturn() []byte
	// SigreturnLoads returns the instructions that stand in front of the system call by
	// which handlers return.
	SigreturnLoads() [][]byte
	// SignalFrame returns the bytes of a signal's frame, to lie at sp and below end. A
	// thread whose stack pointer is sp, and that executes a return, comes to restorer,
	// which makes the call that returns from a handler. Then it goes on with r, the
	// given signals blocked, and the extended state, as PTRACE_GETREGSET reads it. The
	// frame is nil if that is not known.
	SignalFrame(end, restorer Addr, r Regs, mask uint64, xstate []byte) (frame []byte, sp Addr)
	// InHandler reports whether stack, which is aligned to 8 bytes, has the frame of a
	// handler of sig. The handler returns by restorer, and to code that does not block
	// sig.
	InHandler(stack []byte, sig int, restorer Addr) bool
}
