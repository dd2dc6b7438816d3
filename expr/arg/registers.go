package arg

import "slices"

// registersAMD64 are the whole registers of package arch/amd64.
var registersAMD64 = []string{
	"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
	"rip", "eflags", "cs", "ss", "ds", "es", "fs", "gs", "fs_base", "gs_base", "orig_rax",
}

// kernelAMD64 are the names that the kernel has for some of them, for both word sizes of x86 the same
// (arch/x86/kernel/ptrace.c, regoffset_table).
var kernelAMD64 = map[string]string{
	"ax": "rax", "bx": "rbx", "cx": "rcx", "dx": "rdx", "si": "rsi", "di": "rdi", "bp": "rbp", "sp": "rsp",
	"ip": "rip", "flags": "eflags", "orig_ax": "orig_rax",
}

// AMD64 is a Scope's Register for x86-64: it knows the kernel's names and those of package arch.
func AMD64(name string) (canonical string, ok bool) {
	if c, ok := kernelAMD64[name]; ok {
		return c, true
	}
	return name, slices.Contains(registersAMD64, name)
}
