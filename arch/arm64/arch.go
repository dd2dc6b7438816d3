package arm64

import "github.com/gokprobe/gokprobe/arch"

// Arch is as much of arch.Arch as there is.
type Arch struct{}

var _ arch.Arch = Arch{}

const insnLen = 4

// Name is "arm64".
func (Arch) Name() string { return "arm64" }

// Breakpoint is brk #0 (Arm ARM C6.2, BRK).
func (Arch) Breakpoint() []byte { return []byte{0x00, 0x00, 0x20, 0xd4} }

// BreakpointAdvance is 0: a thread does not advance behind brk.
func (Arch) BreakpointAdvance() int { return 0 }

// SyscallInsn is svc #0.
func (Arch) SyscallInsn() []byte { return []byte{0x01, 0x00, 0x00, 0xd4} }

// SyscallArgs are the kernel's.
func (Arch) SyscallArgs() []string { return Kernel.Args }

// MaxInsnLen is 4, as of all instructions.
func (Arch) MaxInsnLen() int { return insnLen }

// NewRegs returns zeroed *Regs.
func (Arch) NewRegs() arch.Regs { return new(Regs) }

// The methods below are not there yet: each refuses, or returns nothing.

// Decode refuses.
func (Arch) Decode([]byte, arch.Addr) (arch.Insn, error) { return arch.Insn{}, ErrUnsupported }

// Disassemble returns nothing.
func (Arch) Disassemble(arch.Insn) string { return "" }

// Plan refuses.
func (Arch) Plan(arch.Insn) (arch.Plan, error) { return arch.Plan{}, ErrUnsupported }

// EntrySkip is 0.
func (Arch) EntrySkip([]byte) int { return 0 }

// StackCheck is 0.
func (Arch) StackCheck([]byte) int { return 0 }

// SigreturnLoads returns nothing.
func (Arch) SigreturnLoads() [][]byte { return nil }

// KeepsNumber knows no instruction.
func (Arch) KeepsNumber(arch.Insn) bool { return false }

// Padding knows no instruction.
func (Arch) Padding(arch.Insn) bool { return false }

// EachBranch knows no instruction.
func (Arch) EachBranch([]byte, arch.Addr, func(at, to arch.Addr)) {}

// SkipCall moves r behind the instruction.
func (Arch) SkipCall(r arch.Regs, insn arch.Addr) { r.SetIP(insn + insnLen) }

// Load refuses.
func (Arch) Load(arch.Insn, arch.Regs, arch.Memory) error { return ErrUnsupported }

// Returned knows no call.
func (Arch) Returned(arch.Regs, arch.Memory, arch.Insn) bool { return false }

// Caller refuses.
func (Arch) Caller(arch.Regs, arch.Memory) (ret, cfa arch.Addr, err error) {
	return 0, 0, ErrUnsupported
}

// Goroutine knows none.
func (Arch) Goroutine(arch.Regs, arch.Memory) (g, stackBase arch.Addr, ok bool) { return 0, 0, false }

// Parked knows none.
func (Arch) Parked(arch.Addr, arch.Memory) (pc, sp, stackBase arch.Addr, ok bool) {
	return 0, 0, 0, false
}

// SetCall refuses.
func (Arch) SetCall(arch.Regs, arch.Memory, arch.Addr, arch.Addr, []uint64) error {
	return ErrUnsupported
}
