// Package caret reports mistakes in a text that a user wrote, each with its place: in
// arguments, filters, and commands to the kernel's files. Who prints the text puts a
// caret below the place, as error_log does.
//
// The package is pure: no system call, no build tag.
package caret

import "syscall"

// Error is a mistake in a command. errors.Is matches its Errno.
type Error struct {
	System  string        // who complains, as error_log names it: trace_kprobe, trace_uprobe, event filter …
	ID      string        // the kernel's name of the error, BAD_PROBE_ADDR
	Text    string        // the kernel's sentence for it
	Command string        // as it is printed: the words, one blank between them
	Column  int           // bytes of Command in front of the mistake
	Errno   syscall.Errno // what write(2) fails with
	Known   []string      // the names that there are, where one was not found; nil if that is not known
	Note    string        // what more there is to say about a name; empty for nothing
}

// Error implements error: one line, for users who see no error_log.
func (e *Error) Error() string { return e.System + ": " + e.Text + " (" + e.ID + ")" }

// Unwrap makes the error match its errno.
func (e *Error) Unwrap() error { return e.Errno }
