package arm64

import (
	"debug/elf"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// Roles are the names of registers with a role of their own.
var Roles = arch.Roles{IP: "pc", SP: "sp", TP: "tpidr"}

// C is the C calling convention (Procedure Call Standard for the Arm 64-bit Architecture §6.4, §6.5).
var C = arch.Convention{Args: []string{"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"}, Results: []string{"x0", "x1"}, Vectors: 8, Stack: "sp"}

// Kernel is that of system calls (syscall(2), "Architecture calling conventions").
var Kernel = arch.Convention{Args: []string{"x0", "x1", "x2", "x3", "x4", "x5"}, Results: []string{"x0"}, Stack: "sp"}

// Go is ABIInternal (src/cmd/compile/abi-internal.md).
var Go = func() arch.Convention {
	first := new(Regs).Names()[:16]
	return arch.Convention{Args: first, Results: first, Vectors: 16, Stack: "sp"}
}()

// Registers by their DWARF numbers (DWARF for the Arm 64-bit Architecture §4.1).
const (
	DwarfFP    = 29
	DwarfSP    = 31
	DwarfIP    = 32
	DwarfCount = 33
)

// DwarfNames are their names: those of Regs in its order.
var DwarfNames = [DwarfCount]string(new(Regs).Names()[:DwarfCount])

// DwarfKept are those that functions leave to their callers as they were (Procedure Call Standard for the Arm 64-bit Architecture §6.1.1).
var DwarfKept = []int{19, 20, 21, 22, 23, 24, 25, 26, 27, 28, DwarfFP}

// DirectCallLen is the length of a call of an address that is in the instruction.
const DirectCallLen = 4

// SignalContext are the DWARF numbers of struct sigcontext's registers (arch/arm64/include/uapi/asm/sigcontext.h), which stand in the
// order of the numbers.
var SignalContext = func() (numbers [DwarfCount]int) {
	for n := range numbers {
		numbers[n] = n
	}
	return numbers
}()

// Relocations that bind functions and words (ELF for the Arm 64-bit Architecture §5.7).
const (
	RelocRelative = uint32(elf.R_AARCH64_RELATIVE)
	RelocIndirect = uint32(elf.R_AARCH64_IRELATIVE)
	RelocSlot     = uint32(elf.R_AARCH64_JUMP_SLOT)
	RelocGlobal   = uint32(elf.R_AARCH64_GLOB_DAT)
	RelocWord     = uint32(elf.R_AARCH64_ABS64)
)

// RegisterName is the name of a whole register; the kernel's are the same.
func RegisterName(name string) (canonical string, ok bool) {
	return name, slices.Contains(new(Regs).Names(), name)
}
