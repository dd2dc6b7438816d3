package arch

// Contexts is an architecture of Guards that can read again what Context has made.
type Contexts interface {
	// SetContext makes r the registers of context, as they are to go on with: the kernel restarts no system call any more. mask is the
	// signals that are blocked then. ok is false if context is too short.
	SetContext(r Regs, context []byte) (mask uint64, ok bool)
}
