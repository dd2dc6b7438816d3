package arm64

import "github.com/gokprobe/gokprobe/arch"

// Arch is as much of arch.Arch as there is.
type Arch struct{}

var _ arch.Arch = Arch{}

const insnLen = 4

// Name is "arm64".
func (Arch) Name() string { return "arm64" }

// Breakpoint is brk #0 (Arm ARM C6.2, BRK), which a thread does not advance behind.
func (Arch) Breakpoint() []byte     { return []byte{0x00, 0x00, 0x20, 0xd4} }
func (Arch) BreakpointAdvance() int { return 0 }

// SyscallInsn is svc #0.
func (Arch) SyscallInsn() []byte { return []byte{0x01, 0x00, 0x00, 0xd4} }

// SyscallArgs are the kernel's (syscall(2), "Architecture calling conventions").
func (Arch) SyscallArgs() []string { return []string{"x0", "x1", "x2", "x3", "x4", "x5"} }

// MaxInsnLen is 4, as of all instructions.
func (Arch) MaxInsnLen() int { return insnLen }

// NewRegs returns zeroed *Regs.
func (Arch) NewRegs() arch.Regs { return new(Regs) }

// What follows is not known yet: it refuses, or has nothing to tell.

func (Arch) Decode([]byte, arch.Addr) (arch.Insn, error) { return arch.Insn{}, ErrUnsupported }
func (Arch) Disassemble(arch.Insn) string                { return "" }
func (Arch) Plan(arch.Insn) (arch.Plan, error)           { return arch.Plan{}, ErrUnsupported }
func (Arch) EntrySkip([]byte) int                        { return 0 }
func (Arch) StackCheck([]byte) int                       { return 0 }
func (Arch) SigreturnLoads() [][]byte                    { return nil }
func (Arch) KeepsNumber(arch.Insn) bool                  { return false }
func (Arch) Padding(arch.Insn) bool                      { return false }
func (Arch) SkipCall(arch.Regs, arch.Addr)               {}

func (Arch) Load(arch.Insn, arch.Regs, arch.Memory) error            { return ErrUnsupported }
func (Arch) Returned(arch.Regs, arch.Memory, arch.Insn) bool         { return false }
func (Arch) Caller(arch.Regs, arch.Memory) (_, _ arch.Addr, _ error) { return 0, 0, ErrUnsupported }

func (Arch) Goroutine(arch.Regs, arch.Memory) (_, _ arch.Addr, ok bool) { return 0, 0, false }
func (Arch) Parked(arch.Addr, arch.Memory) (_, _, _ arch.Addr, ok bool) { return 0, 0, 0, false }

func (Arch) SetCall(arch.Regs, arch.Memory, arch.Addr, arch.Addr, []uint64) error {
	return ErrUnsupported
}

func (Arch) EachBranch([]byte, arch.Addr, func(at, to arch.Addr)) {}
