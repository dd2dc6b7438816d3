package amd64

import "github.com/gokprobe/gokprobe/arch"

// Arch implements arch.Arch for x86-64 in 64-bit mode. It has no state and is
// safe for concurrent use.
type Arch struct{}

var _ arch.Arch = Arch{}

const maxInsnLen = 15 // SDM vol. 2A §2.3.11

// Name is "amd64".
func (Arch) Name() string { return "amd64" }

// Breakpoint is int3 in its one-byte form (SDM vol. 2A, INT n/INTO/INT3/INT1).
func (Arch) Breakpoint() []byte { return []byte{0xcc} }

// BreakpointAdvance is 1: #BP is a trap, the saved instruction pointer names the
// byte after int3 (SDM vol. 3A §6.15, interrupt 3).
func (Arch) BreakpointAdvance() int { return trapLen }

// trapLen is the length in bytes of int3.
const trapLen = 1

// SyscallInsn is syscall.
func (Arch) SyscallInsn() []byte { return []byte{0x0f, 0x05} }

// SyscallArgs are the kernel's (syscall(2), "Architecture calling conventions").
func (Arch) SyscallArgs() []string { return []string{"rdi", "rsi", "rdx", "r10", "r8", "r9"} }

// SigreturnLoads are mov $15,%rax and mov $15,%eax.
func (Arch) SigreturnLoads() [][]byte {
	return [][]byte{{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0}, {0xb8, 0x0f, 0, 0, 0}}
}

// MaxInsnLen is 15 bytes; the processor raises #GP beyond.
func (Arch) MaxInsnLen() int { return maxInsnLen }

// EntrySkip is 4 if code begins with endbr64, else 0. An int3 in place of
// endbr64 would fail the tracking of indirect branches (SDM vol. 1 §18.3).
func (Arch) EntrySkip(code []byte) int {
	if len(code) >= 4 && [4]byte(code) == [4]byte{0xf3, 0x0f, 0x1e, 0xfa} {
		return 4
	}
	return 0
}

// NewRegs returns zeroed *Regs.
func (Arch) NewRegs() arch.Regs { return new(Regs) }
