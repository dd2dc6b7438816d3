// Package errlog is tracing/error_log: what was wrong with a command, and where in it
// (kernel/trace/trace.c, tracing_log_err).
//
// The package is pure: no system call, no build tag.
package errlog

import "syscall"

// Error is what is wrong with a command that was written to a file. errors.Is matches its Errno.
type Error struct {
	System  string        // who complains: trace_kprobe, trace_uprobe, event filter …
	ID      string        // the kernel's name of the error, BAD_PROBE_ADDR
	Text    string        // the kernel's sentence for it
	Command string        // as it is printed: the words, one blank between them
	Column  int           // bytes of Command in front of what is wrong
	Errno   syscall.Errno // what write(2) fails with
}

// Error implements error: one line, for whoever sees no error_log.
func (e *Error) Error() string { return e.System + ": " + e.Text + " (" + e.ID + ")" }

// Unwrap makes the error match its errno.
func (e *Error) Unwrap() error { return e.Errno }
