package main

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// The exit statuses. run exits with its program's own status instead.
const (
	exitDone   = 0
	exitFailed = 1 // failed while running
	exitUsage  = 2 // wrong usage
	exitAttach = 3 // cannot attach
	exitPlace  = 4 // cannot place a probe; nothing is left armed
)

// Classes of errors. The class decides the exit status, its text is not printed.
var (
	errUsage  = errors.New("wrong usage")
	errAttach = errors.New("cannot attach")
	errPlace  = errors.New("cannot place a probe")
)

// classed is an error of one of the classes.
type classed struct {
	class error
	err   error
}

func (e *classed) Error() string   { return e.err.Error() }
func (e *classed) Unwrap() []error { return []error{e.class, e.err} }

func usagef(format string, args ...any) error {
	return &classed{errUsage, fmt.Errorf(format, args...)}
}

func attachError(err error) error { return &classed{errAttach, err} }

func placeError(name string, err error) error {
	return &classed{errPlace, trace.NewPlaceError(name, err)}
}

// statusError is run's exit status: that of its program. Nothing is printed.
type statusError int

func (statusError) Error() string { return "" }

// exitStatuses is which errors end in which status; the first match counts.
var exitStatuses = []struct {
	errs   []error
	status int
}{
	{[]error{errUsage, symbols.ErrBadSpec}, exitUsage},
	{[]error{errAttach}, exitAttach},
	{[]error{errPlace}, exitPlace},
	{[]error{symbols.ErrUnknownSymbol, symbols.ErrUnknownModule, symbols.ErrAmbiguous, symbols.ErrNotMapped,
		symbols.ErrNotCode, symbols.ErrNoLines, symbols.ErrNoLine, symbols.ErrUnknownSize, symbols.ErrIFuncUnbound}, exitPlace},
	{[]error{kprobes.ErrUnknownSymbol, kprobes.ErrAmbiguousSymbol, kprobes.ErrNotMapped, kprobes.ErrNotExecutable,
		kprobes.ErrBlacklisted, kprobes.ErrNotBoundary, kprobes.ErrUndecodable, kprobes.ErrException,
		kprobes.ErrUnsupported, kprobes.ErrNoSlot, kprobes.ErrShadowStack, kprobes.ErrGone,
		kprobes.ErrNotEntry, kprobes.ErrData, kprobes.ErrRestartable}, exitPlace},
}

func exitStatus(err error) int {
	var status statusError
	var refused *ptrace.AttachError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &status):
		return int(status)
	}
	for _, row := range exitStatuses {
		for _, e := range row.errs {
			if errors.Is(err, e) {
				return row.status
			}
		}
	}
	if errors.As(err, &refused) {
		return exitAttach
	}
	return exitFailed
}

// sentence is what is printed of an error.
func sentence(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// brokenPipe tells that the reader of our output has gone.
func brokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

// fileError is err without the name of the call and the file, which the sentence
// around it says.
func fileError(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// errOutputStuck means that the user did not want to wait for a blocked output.
var errOutputStuck = errors.New("the output takes no more data")
