package arch

import (
	"errors"
	"fmt"
)

// Why an instruction can't be decoded or can't be probed.
var (
	ErrTruncated      = errors.New("code ends inside the instruction")
	ErrUndecodable    = errors.New("not an instruction")
	ErrException      = errors.New("the instruction raises an exception on purpose")
	ErrSystemCall     = errors.New("system-call instructions can't be run out of line")
	ErrFarTransfer    = errors.New("far transfers can't be run out of line")
	ErrPrivileged     = errors.New("the instruction is privileged")
	ErrSSBlock        = errors.New("loading ss holds back the trap that follows the copy")
	ErrTransaction    = errors.New("a transaction's abort address can't be moved")
	ErrOperandSize    = errors.New("the branch's operand-size prefix means different things on different processors")
	ErrReach          = errors.New("out of reach of a 32-bit displacement")
	ErrNotRelocatable = errors.New("the instruction can't be moved")
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
