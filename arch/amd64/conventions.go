package amd64

import (
	"debug/elf"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// Roles are the names of registers with a role of their own.
var Roles = arch.Roles{IP: "rip", SP: "rsp", TP: "fs_base"}

// C is the C calling convention (System V ABI, AMD64 supplement §3.2.3).
var C = arch.Convention{Args: []string{"rdi", "rsi", "rdx", "rcx", "r8", "r9"}, Results: []string{"rax", "rdx"}, Vectors: 8, Stack: "rsp"}

// Kernel is that of system calls (syscall(2), "Architecture calling conventions").
var Kernel = arch.Convention{Args: []string{"rdi", "rsi", "rdx", "r10", "r8", "r9"}, Results: []string{"rax"}, Stack: "rsp"}

// Go is ABIInternal (src/cmd/compile/abi-internal.md).
var Go = arch.Convention{
	Args:    []string{"rax", "rbx", "rcx", "rdi", "rsi", "r8", "r9", "r10", "r11"},
	Results: []string{"rax", "rbx", "rcx", "rdi", "rsi", "r8", "r9", "r10", "r11"},
	Vectors: 15, Stack: "rsp",
}

// Registers by their DWARF numbers (System V ABI, AMD64 supplement §3.6.2).
const (
	DwarfFP    = 6
	DwarfSP    = 7
	DwarfIP    = 16
	DwarfCount = 17
)

// DwarfNames are their names.
var DwarfNames = [DwarfCount]string{
	"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp",
	"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip",
}

// DwarfKept are those that functions leave to their callers as they were (System V ABI, AMD64 supplement §3.2.1).
var DwarfKept = []int{3, DwarfFP, 12, 13, 14, 15}

// DirectCallLen is the length of a call of an address that is in the instruction.
const DirectCallLen = 5

// SignalContext are the DWARF numbers of struct sigcontext's first words
// (arch/x86/include/uapi/asm/sigcontext.h).
var SignalContext = [...]int{
	8, 9, 10, 11, 12, 13, 14, 15,
	5, 4, DwarfFP, 3, 1, 0, 2, DwarfSP, DwarfIP,
}

// Relocations that bind functions and words (System V ABI, AMD64 supplement §4.4).
const (
	RelocRelative = uint32(elf.R_X86_64_RELATIVE)
	RelocIndirect = uint32(elf.R_X86_64_IRELATIVE)
	RelocSlot     = uint32(elf.R_X86_64_JMP_SLOT)
	RelocGlobal   = uint32(elf.R_X86_64_GLOB_DAT)
	RelocWord     = uint32(elf.R_X86_64_64)
)

// kernelNames are the names that the kernel has for some registers, for both word sizes of x86 the same
// (arch/x86/kernel/ptrace.c, regoffset_table).
var kernelNames = map[string]string{
	"ax": "rax", "bx": "rbx", "cx": "rcx", "dx": "rdx", "si": "rsi", "di": "rdi", "bp": "rbp", "sp": "rsp",
	"ip": "rip", "flags": "eflags", "orig_ax": "orig_rax",
}

// RegisterName is the name of a whole register by that or by the kernel's name for it.
func RegisterName(name string) (canonical string, ok bool) {
	if c, ok := kernelNames[name]; ok {
		return c, true
	}
	return name, slices.Contains(regNames, name)
}
