// Package arch says what machine code means, in terms every other room shares:
// addresses, instructions, registers, and the contract an architecture fulfils.
//
// The package is pure: no system call, no build tag. The one whole implementation so
// far is arch/amd64; the tagged file of internal/host picks it.
package arch

import "fmt"

// Addr is an address in the target's address space. It is never a Go pointer.
type Addr uint64

// String prints a as 0x-prefixed lower-case hexadecimal.
func (a Addr) String() string { return fmt.Sprintf("%#x", uint64(a)) }

// Add returns a moved by n bytes; n may be negative. It wraps like the machine.
func (a Addr) Add(n int64) Addr { return a + Addr(n) }

// Range is the half-open address range [Start, End).
type Range struct{ Start, End Addr }

// Len is the size of r in bytes.
func (r Range) Len() uint64 { return uint64(r.End - r.Start) }

// Contains reports whether a lies in r.
func (r Range) Contains(a Addr) bool { return a >= r.Start && a < r.End }

// Overlaps reports whether r and o share at least one byte.
func (r Range) Overlaps(o Range) bool { return r.Start < o.End && o.Start < r.End }

// String prints r as start-end, as /proc/PID/maps does.
func (r Range) String() string { return fmt.Sprintf("%x-%x", uint64(r.Start), uint64(r.End)) }

// Memory is the target's memory as pure code sees it. An access that the target
// itself could not make returns a *FaultError.
type Memory interface {
	// ReadMemory fills p from at.
	ReadMemory(at Addr, p []byte) error
	// WriteMemory stores p at at.
	WriteMemory(at Addr, p []byte) error
}

// Flow is how control leaves an instruction.
type Flow uint8

const (
	FlowNext         Flow = iota // to the following instruction
	FlowJump                     // direct jump to Target
	FlowCond                     // conditional jump to Target or the following instruction
	FlowCall                     // direct call of Target
	FlowIndirectJump             // jump through a register or memory
	FlowIndirectCall             // call through a register or memory
	FlowReturn                   // near return
	FlowSyscall                  // into the kernel and back (syscall, sysenter, int 0x80)
	FlowFar                      // far jump, call, return, iret
	FlowTrap                     // raises an exception by purpose (int3, int n, ud2, hlt)
)

// Insn is one decoded instruction, as answers rather than opcodes.
type Insn struct {
	Addr   Addr
	Bytes  []byte // the original bytes; len(Bytes) is the length
	Flow   Flow
	Target Addr // where FlowJump, FlowCond, FlowCall lead

	// PCRel tells that a memory operand is relative to the following
	// instruction; MemTarget is the address it names.
	PCRel     bool
	MemTarget Addr
}

// Len is the instruction's length in bytes.
func (i Insn) Len() int { return len(i.Bytes) }

// End is the address of the following instruction.
func (i Insn) End() Addr { return i.Addr + Addr(len(i.Bytes)) }

// Range is the bytes that the instruction occupies.
func (i Insn) Range() Range { return Range{i.Addr, i.End()} }

// Method is how a probed instruction's effect is produced while its own first
// byte is hidden by a breakpoint.
type Method uint8

const (
	Copied     Method = iota // its bytes run elsewhere unchanged
	Relocated                // its bytes run elsewhere with an adjusted displacement
	Emulated                 // the tracer performs it on registers and memory
	SystemCall               // its bytes enter the kernel from elsewhere, and the tracer hides that there
)

func (m Method) String() string {
	return [...]string{"copied", "relocated", "emulated", "syscall"}[m]
}

// Plan is an architecture's decision on one instruction. It is made once, at
// registration, and holds no reference to a process.
type Plan struct {
	Insn   Insn
	Method Method

	// MustStep, when not empty, says why no jump back may follow the copy (it is not
	// boostable). The copy may still be run and trapped after.
	MustStep string

	// Leaves reports whether the copy never goes on to the instruction behind it. To
	// have the thread back after it, single-step it in hardware; then Resume.
	Leaves bool

	// Recorded tells that the processor remembers the address of the
	// instruction (x87: the last instruction pointer). After the copy has run,
	// that record names the copy.
	Recorded bool

	// Near is what the slot must reach by a relative displacement.
	Near Range

	// Emulate performs the instruction: on entry r's IP is Insn.Addr, on
	// success it is the architectural successor. It returns a *FaultError and
	// leaves r unchanged where the processor would, or might, raise an
	// exception: then the copy must be run for that. nil unless Method is
	// Emulated.
	Emulate func(r Regs, m Memory) error

	// Resume corrects r and m after the thread has executed the copy at copyAt: they
	// become as if the copy had stood at Insn.Addr. The error is that of the access to
	// m.
	Resume func(r Regs, m Memory, copyAt Addr) error
}

// Slot is the code that runs an instruction elsewhere. It has two entrances: Boost
// ends with a jump to the successor, Step with a breakpoint.
type Slot struct {
	Addr  Addr
	Insn  Insn   // the original
	Code  []byte // Arch.SlotSize bytes
	Boost Addr   // 0 when there is no such entrance
	Alone Addr   // where a thread goes on that nobody watches, 0 when there is no such place; at Trap it then goes on to Next
	Step  Addr   // where the copy stands that is trapped after
	Trap  Addr   // address of the breakpoint that ends Step
	Next  Addr   // where a thread goes on that came to Trap
}

// Range is the bytes that the slot occupies.
func (s *Slot) Range() Range { return Range{s.Addr, s.Addr + Addr(len(s.Code))} }

// Written is called when the code lies in the target: it is forgotten, but for its length.
func (s *Slot) Written() { s.Code = written(s.Code) }

// blank is the code of everything that was written. Nobody changes it.
var blank [4 << 10]byte

func written(code []byte) []byte {
	if len(code) > len(blank) {
		return code
	}
	return blank[:len(code):len(code)]
}

// Origin translates an instruction pointer inside s to where the thread would be
// in unprobed code. executed tells that the instruction's effect has happened;
// then the answer is the successor, else the instruction itself. ok is false if
// no thread can stand at ip.
//
// The copy is one instruction, so a thread stands before it or after it, never
// inside it. A thread that took the Step breakpoint reports Trap plus one.
func (s *Slot) Origin(ip Addr) (orig Addr, executed, ok bool) {
	n := Addr(s.Insn.Len())
	switch {
	case ip == s.Step, s.Boost != 0 && ip == s.Boost:
		return s.Insn.Addr, false, true
	case ip == s.Trap, ip == s.Trap+1:
		return s.Next, true, true
	case s.Boost != 0 && ip == s.Boost+n:
		return s.Insn.End(), true, true
	}
	return 0, false, false
}

// Regs is one thread's general registers. Register names are the architecture's
// own, in lower case ("rdi", "eflags").
type Regs interface {
	IP() Addr
	SetIP(Addr)
	// Trapped is the address of the breakpoint that a thread with this IP has executed, if it has.
	Trapped() Addr
	// SetTrapped makes the IP that of a thread which has executed a breakpoint at a.
	SetTrapped(a Addr)
	SP() Addr
	SetSP(Addr)
	FP() Addr // frame pointer register
	// ThreadPointer is what the thread's own data is found by.
	ThreadPointer() Addr

	// Names lists the registers in the architecture's customary order.
	Names() []string
	// Get returns a register by name. Sub-registers (edi, dil) are accepted
	// for reading.
	Get(name string) (uint64, bool)
	// Set changes a whole register by name.
	Set(name string, v uint64) bool

	// Arg returns the n-th (from 0) integer or pointer argument, if the platform's C
	// calling convention passes it in a register. The thread is about to run the
	// function's first instruction.
	Arg(n int) (uint64, bool)
	SetArg(n int, v uint64) bool
	// ReturnValue is the integer result register.
	ReturnValue() uint64
	SetReturnValue(uint64)

	// TrapFlag tells that the program traces itself: the processor traps after
	// each instruction (TF in eflags).
	TrapFlag() bool
	// ClearTrapFlag ends that.
	ClearTrapFlag()

	// SetSyscall makes the thread perform system call nr when it next executes the
	// system-call instruction at insn. No interrupted call is restarted instead.
	SetSyscall(nr uint64, args [6]uint64, insn Addr)

	// Clone returns an independent copy; CopyFrom overwrites all registers
	// with those of o, which must be of the same architecture; Same compares
	// what a program can see of them.
	Clone() Regs
	CopyFrom(o Regs)
	Same(o Regs) bool
}

// Arch is what gokprobe needs to know of an architecture: it decodes and plans. Code
// generates the planned code, and a program.Compiler that of programs; internal/host
// has all three. Implementations are stateless and safe for concurrent use.
type Arch interface {
	Name() string // as in GOARCH

	// Breakpoint is the breakpoint instruction's bytes. A thread that executed
	// it reports an IP of its address plus BreakpointAdvance.
	Breakpoint() []byte
	BreakpointAdvance() int
	// SyscallInsn is the system-call instruction's bytes.
	SyscallInsn() []byte

	// SyscallArgs are the registers of a system call's arguments.
	SyscallArgs() []string

	// Load performs i if it does nothing but set one general register, or nothing at all; else the error wraps
	// ErrNoLoad, or is that of reading m, and r is unchanged. r's IP does not move.
	Load(i Insn, r Regs, m Memory) error
	// KeepsNumber reports whether i leaves the register of a system call's number
	// alone, and the next instruction is executed after it, always or sometimes.
	KeepsNumber(i Insn) bool
	// SkipCall makes r those behind the system-call instruction at insn, with the result that they have.
	SkipCall(r Regs, insn Addr)

	// SigreturnLoads are the instructions with which C libraries load the number of
	// rt_sigreturn in front of the system-call instruction that signal handlers
	// return to.
	SigreturnLoads() [][]byte

	// MaxInsnLen is the length in bytes of the longest instruction.
	MaxInsnLen() int
	// Decode decodes the first instruction in code, which stands at at. It
	// returns ErrTruncated if code ends inside it, ErrUndecodable if the bytes
	// are no instruction.
	Decode(code []byte, at Addr) (Insn, error)
	// Disassemble prints i in the GNU assembler's syntax.
	Disassemble(i Insn) string
	// EntrySkip is the number of bytes at a function's entry that must stay in
	// place for indirect branches to land on (endbr64: 4).
	EntrySkip(code []byte) int
	// StackCheck is the number of bytes with which a Go function's code begins that
	// make sure of enough stack. They are executed again after the stack has grown or
	// the goroutine was preempted. The instruction behind them is executed once a call,
	// with the stack pointer as it was at the entry. 0 if code begins with something
	// else.
	StackCheck(code []byte) int

	// EachBranch calls f for each place of code, which is at start, that may be a direct branch out of a function. All places are
	// looked at, so that some are taken for one for no reason.
	EachBranch(code []byte, start Addr, f func(at, to Addr))
	// Padding tells that i is one that assemblers and linkers fill gaps with.
	Padding(i Insn) bool

	// Caller says, at a function's first instruction, where the function returns to
	// and its canonical frame address: the stack pointer after it has returned.
	Caller(r Regs, m Memory) (ret, cfa Addr, err error)
	// Returned reports whether a thread came to i by a return and not by a jump. It is
	// in front of i, where calls return, but the handler of an exception may go on
	// there, too.
	Returned(r Regs, m Memory, i Insn) bool
	// Goroutine says whose stack r's stack pointer is on, in a Go program: the address
	// of the g, and where its stack begins (g.stack.hi). ok is false if it is nobody's.
	Goroutine(r Regs, m Memory) (g, stackBase Addr, ok bool)
	// Parked says where g, which no thread runs, has stopped, and where its stack begins;
	// a g that has ended and waits for another use is one of those. ok is false if it runs.
	Parked(g Addr, m Memory) (pc, sp, stackBase Addr, ok bool)

	// SetCall sets r so that the thread calls fn with args, by the platform's C calling
	// convention: it is about to run fn's first instruction, and will return to ret.
	// What the code there has on its stack stays as it is. The error is that of a write
	// to the stack; r is then unchanged.
	SetCall(r Regs, m Memory, fn, ret Addr, args []uint64) error

	// Plan decides how i is run elsewhere, or returns an error that wraps one
	// of the package's Err… values and says why it can't be.
	Plan(i Insn) (Plan, error)

	NewRegs() Regs
}

// Code is an Arch that makes code of ours. An implementation may also have Detours,
// CallBodies, Upcalls, Guards, Masks and Relays.
type Code interface {
	Arch

	// SlotSize is the size in bytes of every slot, a power of two.
	SlotSize() int
	// Assemble generates the slot at addr for a plan. It returns ErrReach if an
	// operand or the way back is out of reach from there.
	Assemble(p Plan, addr Addr) (*Slot, error)
	// Reach is how far, in bytes, a slot may lie from the code it serves.
	Reach() uint64
}
