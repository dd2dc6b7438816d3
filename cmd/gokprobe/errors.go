package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// The exit statuses. run exits with the status of its COMMAND instead.
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

// strayArgument is the error for an argument that a command does not take, with advice unless
// it looks like a process ID without its -p.
func strayArgument(c *cli.Context, advice string) error {
	arg := c.Args().First()
	if _, err := strconv.ParseUint(arg, 10, 31); err == nil && !c.IsSet("p") && !c.IsSet("x") {
		advice = "; a process is named with -p, write -p " + arg
	}
	return usagef("unexpected argument %q%s", arg, advice)
}

func attachError(err error) error { return &classed{errAttach, err} }

func placeError(name string, err error) error {
	return &classed{errPlace, trace.NewPlaceError(name, err)}
}

// statusError is an exit status without a message: that of run's COMMAND, or one whose reason
// has been printed already.
type statusError int

func (statusError) Error() string { return "" }

// exitStatuses maps errors to exit statuses. The first match counts.
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
		kprobes.ErrUnsupported, kprobes.ErrNoSlot, kprobes.ErrShadowStack, kprobes.ErrGone, kprobes.ErrExecuted,
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

// sentence is the message of an error, or "" without one.
func sentence(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// brokenPipe reports whether err says that the reader of our output has gone.
func brokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

// fileError returns err without the names of the system call and the file. The sentence
// around it says these in its own words.
func fileError(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// errOutputStuck is the error of an output that blocks when the user no longer wants to wait.
var errOutputStuck = errors.New("the output takes no more data")
