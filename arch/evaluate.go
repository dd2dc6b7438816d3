package arch

// Evaluator is what an Arch may be beside: it computes what small functions return, such as
// __errno_location, without a thread that runs them.
type Evaluator interface {
	// Evaluate computes the integer result of the function at fn, if that only loads,
	// adds and returns. A thread with the given registers calls it without arguments. r
	// and m are not changed. The error wraps ErrNotPlain if the function does more than
	// that, or a *FaultError if memory can't be read.
	Evaluate(r Regs, m Memory, fn Addr) (uint64, error)
}
