package arch

// Convention is a calling convention, as far as integers are concerned. Registers are
// named as Regs has them.
type Convention struct {
	Args    []string // of the first arguments; further ones lie on the stack, behind the return address
	Results []string
	Vectors int    // vector registers that arguments are passed in
	Stack   string // the stack pointer
}

// Roles are the names of registers that each architecture has under one name or another.
type Roles struct {
	IP, SP string // instruction and stack pointer
	TP     string // thread pointer
}
