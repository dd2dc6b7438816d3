package patch

import "errors"

// Why a change of the target's code was refused or went wrong.
var (
	// ErrOverlap: another patch already owns one of the bytes.
	ErrOverlap = errors.New("the bytes overlap another patch")
	// ErrChanged: memory shows bytes that are neither expected nor ours.
	ErrChanged = errors.New("the code was changed by somebody else")
	// ErrLength: the two byte strings of a patch are empty, of different
	// lengths, or run over the end of the address space.
	ErrLength = errors.New("a patch replaces bytes by as many bytes, at least one")
	// ErrUnknown: the patch is not, or no longer, one of this text.
	ErrUnknown = errors.New("no such patch")
	// ErrRunning: threads may run in the code.
	ErrRunning = errors.New("more than one byte of code is changed only while no thread runs")
	// ErrTorn: a write failed, and taking it back failed as well. The patch stays
	// known; Remove and RestoreAll try again.
	ErrTorn = errors.New("the code may be partly changed")
)
