package program

import "github.com/gokprobe/gokprobe/arch"

// Target is what a program is compiled for: one site of one process.
type Target struct {
	// Site is the address of the probed instruction.
	Site arch.Addr
	// Maps are where the memory of Program.Maps begins in the target, in their order; multiples
	// of LineSize.
	Maps []arch.Addr
	// Far, if it is not nil, tells which of the Maps, all of them states, may be anywhere. Code reaches the others by a displacement.
	Far []bool
	// Dead is what the code need not put back.
	Dead arch.Dead
	// RedZone tells that the code at the site may keep data below its stack pointer.
	RedZone bool
	// Below is how many bytes the stack pointer is lower than at the site, when the body begins and
	// ends. Words are the names of registers that are 8 bytes each from there on.
	Below int
	Words []string
	// HWCAP2 is AT_HWCAP2 of the auxiliary vector: what the kernel allows programs to do.
	HWCAP2 uint64
	// ThreadPointer tells that threads keep their own address where the thread pointer
	// points, as those of C libraries do (ELF Handling for Thread-Local Storage §3.4.6).
	ThreadPointer bool
}

// Compiler is an architecture that makes machine code of programs. Implementations are
// stateless and safe for concurrent use.
type Compiler interface {
	// Compile makes the body of a detour that does what Checked.Run does. The error names what
	// the program needs and the target does not offer; then Run has to do.
	//
	// Where the stack has no room for the body, it stops at a breakpoint (arch.StopNoRoom)
	// having done nothing: Run has to do then, too.
	Compile(c *Checked, t Target) (arch.Body, error)
}
