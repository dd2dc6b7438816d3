package amd64

var regNames = []string{
	"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp",
	"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
	"rip", "eflags", "cs", "ss", "ds", "es", "fs", "gs", "fs_base", "gs_base", "orig_rax",
}

// Names lists the registers in the debuggers' customary order. The slice is the
// caller's.
func (r *Regs) Names() []string { return append([]string(nil), regNames...) }

// Get returns a register by name: a whole one, or its low 32, 16 or 8 bits, or
// bits 8 to 15, by the names of SDM vol. 1 §3.4.1.1 (eax, r8d, ax, r8w, al, r8b,
// ah). The value is zero-extended.
func (r *Regs) Get(name string) (uint64, bool) {
	if p := r.whole(name); p != nil {
		return *p, true
	}
	return r.part(name)
}

// Set changes a whole register by name; rflags is accepted for eflags. It does not what the kernel would refuse when the
// registers are written (putreg in arch/x86/kernel/ptrace.c), or to change back: a base of fs or gs in the upper half, a selector that is
// not 0 and not of privilege level 3.
func (r *Regs) Set(name string, v uint64) bool {
	p := r.whole(name)
	if p == nil || *p != v && !(r.takes(name, v) && r.takes(name, *p)) {
		return false
	}
	*p = v
	return true
}

func (r *Regs) takes(name string, v uint64) bool {
	const baseEnd, ownLevel = 1<<47 - 4096, 3
	switch name {
	case "fs_base", "gs_base":
		return v < baseEnd
	case "cs", "ss":
		return v < 1<<16 && v&3 == ownLevel
	case "ds", "es", "fs", "gs":
		return v < 1<<16 && (v == 0 || v&3 == ownLevel)
	}
	return true
}

func (r *Regs) whole(name string) *uint64 {
	switch name {
	case "rax":
		return &r.Rax
	case "rbx":
		return &r.Rbx
	case "rcx":
		return &r.Rcx
	case "rdx":
		return &r.Rdx
	case "rsi":
		return &r.Rsi
	case "rdi":
		return &r.Rdi
	case "rbp":
		return &r.Rbp
	case "rsp":
		return &r.Rsp
	case "rip":
		return &r.Rip
	case "eflags", "rflags":
		return &r.Eflags
	}
	if p := r.numbered(name); p != nil {
		return p
	}
	return r.system(name)
}

func (r *Regs) numbered(name string) *uint64 {
	switch name {
	case "r8":
		return &r.R8
	case "r9":
		return &r.R9
	case "r10":
		return &r.R10
	case "r11":
		return &r.R11
	case "r12":
		return &r.R12
	case "r13":
		return &r.R13
	case "r14":
		return &r.R14
	case "r15":
		return &r.R15
	}
	return nil
}

func (r *Regs) system(name string) *uint64 {
	switch name {
	case "cs":
		return &r.Cs
	case "ss":
		return &r.Ss
	case "ds":
		return &r.Ds
	case "es":
		return &r.Es
	case "fs":
		return &r.Fs
	case "gs":
		return &r.Gs
	case "fs_base":
		return &r.Fs_base
	case "gs_base":
		return &r.Gs_base
	case "orig_rax":
		return &r.Orig_rax
	}
	return nil
}

// part reads a sub-register.
func (r *Regs) part(name string) (uint64, bool) {
	if len(name) < 2 {
		return 0, false
	}
	stem, last := name[:len(name)-1], name[len(name)-1]
	if p := r.numbered(stem); p != nil {
		switch last {
		case 'd':
			return *p & 0xffffffff, true
		case 'w':
			return *p & 0xffff, true
		case 'b':
			return *p & 0xff, true
		}
		return 0, false
	}
	if name[0] == 'e' {
		v, ok := r.word(name[1:])
		return v & 0xffffffff, ok
	}
	if v, ok := r.word(name); ok {
		return v & 0xffff, true
	}
	return r.octet(name)
}

// word reads the register whose 16-bit name is given, whole.
func (r *Regs) word(name string) (uint64, bool) {
	switch name {
	case "ax":
		return r.Rax, true
	case "bx":
		return r.Rbx, true
	case "cx":
		return r.Rcx, true
	case "dx":
		return r.Rdx, true
	case "si":
		return r.Rsi, true
	case "di":
		return r.Rdi, true
	case "bp":
		return r.Rbp, true
	case "sp":
		return r.Rsp, true
	}
	return 0, false
}

// octet reads an 8-bit register: al, ah, and the low bytes that need REX.
func (r *Regs) octet(name string) (uint64, bool) {
	stem, last := name[:len(name)-1], name[len(name)-1]
	if last == 'l' {
		if v, ok := r.word(stem); ok && (stem[1] == 'i' || stem[1] == 'p') {
			return v & 0xff, true
		}
	}
	if len(stem) != 1 {
		return 0, false
	}
	v, ok := r.word(stem + "x")
	switch last {
	case 'l':
		return v & 0xff, ok
	case 'h':
		return v >> 8 & 0xff, ok
	}
	return 0, false
}
