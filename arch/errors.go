package arch

import (
	"errors"
	"fmt"
)

// Why an instruction can't be decoded or can't be probed. ErrUnsupported is so of all instructions.
var (
	ErrTruncated   = errors.New("code ends inside the instruction")
	ErrUndecodable = errors.New("not an instruction")
	ErrBreakpoint  = errors.New("a breakpoint of the program's own")
	ErrEnclave     = errors.New("an enclave returns to the instruction that entered it")
	ErrOperandSize = errors.New("the branch's operand-size prefix means different things on different processors")
	ErrNotPlain    = errors.New("the function does more than to compute an address")
	ErrReach       = errors.New("out of reach of a 32-bit displacement")
	ErrNoLoad      = errors.New("the instruction does more than to set a register")
	ErrUnsupported = errors.New("this processor's architecture is not supported yet")
)

// FaultError is an access to target memory that the target itself could not
// make. Cause is the tracer's errno, for the log.
type FaultError struct {
	Addr  Addr
	Write bool
	Cause error
}

func (e *FaultError) Error() string {
	verb := "read"
	if e.Write {
		verb = "write"
	}
	return fmt.Sprintf("target memory: cannot %s at %s: %v", verb, e.Addr, e.Cause)
}

func (e *FaultError) Unwrap() error { return e.Cause }
