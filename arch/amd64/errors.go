package amd64

import "errors"

// ErrNonCanonical is the Cause of the *arch.FaultError of an emulated branch to
// an address that is not canonical: the processor raises #GP at the branch.
var ErrNonCanonical = errors.New("branch target is not a canonical address")
