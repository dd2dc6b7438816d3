package dynevent

import (
	"fmt"
	"syscall"

	"github.com/gokprobe/gokprobe/expr/caret"
)

// Part is a part of a command that an error can be about.
type Part int

// The parts. Argument n, from 0, is PartArg+n; behind the last one it is the command's end.
const (
	PartCommand   Part = iota // the command's first byte
	PartMaxActive             // the number behind the letter
	PartGroup                 // where the group's name is, or would be
	PartEvent                 // where the event's name is, or would be
	PartPlace                 // the symbol or address, the path
	PartArg
)

// Error is the error id of the kernel's table (such as NON_UNIQ_SYMBOL), about a part of d's command. It is an
// *caret.Error with the errno that the kernel has for it.
func (d *Definition) Error(id string, p Part) error { return d.ErrorAs(id, p, 0) }

// ErrorAs is Error with another errno, as that of a symbol that was not found: BAD_PROBE_ADDR and ENOENT.
func (d *Definition) ErrorAs(id string, p Part, errno syscall.Errno) error {
	word, column := 0, 0
	switch p {
	case PartCommand:
	case PartMaxActive:
		column = 1
	case PartGroup:
		column = d.groupColumn
	case PartEvent:
		column = d.eventColumn
	case PartPlace:
		word = 1
	default:
		word = len(d.words)
		if n := int(p - PartArg); n < len(d.argWords) {
			word = d.argWords[n]
		}
	}
	return (&caret.Fault{ID: id, Column: column, Errno: errno}).In(d.Family.System(), d.words, word)
}

// refused is for lines that the kernel refuses without a word in its log.
func refused(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, syscall.EINVAL)...)
}
