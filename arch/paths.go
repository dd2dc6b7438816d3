package arch

// Paths is what an architecture knows of ways through code beyond an instruction's Flow. It looks at instructions as they
// follow each other by address.
type Paths interface {
	// JumpTable finds the table from which the last of insns, a FlowIndirectJump, takes
	// its target. ok is false if that is none of the forms that compilers use.
	JumpTable(insns []Insn) (t JumpTable, ok bool)
	// Ends tells that the thread does not come back from the last of insns, a FlowSyscall: it exits, or goes on elsewhere.
	Ends(insns []Insn) bool
	// Taken reports whether the instructions behind insns[0] jump to or call the
	// address that it computes, and do not read from it.
	Taken(insns []Insn) bool
	// PopsReturn tells that i takes the word at the top of the stack. A call that leads there does not come back by itself.
	PopsReturn(i Insn) bool
	// Improbable tells that i is valid, but that no program means to execute it: bytes that decode to it are data.
	Improbable(i Insn) bool
}

// JumpTable is where the targets of an indirect jump are.
type JumpTable struct {
	Base Addr
	Size int  // bytes of an entry, 4 or 8; 0: there is no table, Base is the target
	From Addr // entries of 4 bytes are signed distances from it, others addresses
	Len  int  // how many entries there are; 0 if nothing tells
}
