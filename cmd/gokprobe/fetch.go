package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/trace"
)

// -arg and -filter: the kernel's fetch arguments and filters, by the parsers of its files.

// checkFetching finds mistakes in -arg and -filter before gokprobe attaches. It accepts names
// that only the process can tell, such as parameters.
func (r request) checkFetching() error {
	kinds := map[bool]bool{}
	for _, spec := range r.specs {
		kinds[r.returns || isReturn(spec)] = true
	}
	for atReturn := range kinds {
		if err := trace.Check(atReturn, r.wants()...); err != nil {
			return placedError(err)
		}
	}
	return nil
}

// wishError makes a usage error, with a caret if it can, of a mistake in -arg or in the
// condition. filter is the flag of the condition: -filter or -if.
func wishError(err error, filter string) error {
	var e *values.Error
	switch {
	case !errors.As(err, &e):
		return usagef("-arg: %w", err)
	case e.Unknown != nil:
		return usagef("-arg %s names a parameter or a variable, but %w", e.Text, e.Unknown)
	case e.IsGlobal:
		return pointAt("-globals", e.Err)
	case e.InFilter:
		return pointAt(filter, e.Err)
	}
	return pointAt("-arg", e.Err)
}

// placedError gives an error of placing probes its exit status: wrong usage for a mistake in
// -arg or -filter, "cannot place a probe" for a SPEC.
func placedError(err error) error {
	var wrong *trace.WantError
	var at *trace.PlaceError
	var none *trace.NoPlaceError
	var e *values.Error
	switch {
	case errors.As(err, &wrong) && wrong.Waits && errors.As(err, &e) && e.Unknown != nil:
		return usagef("-arg %s names a parameter or a variable, but the library of %s is not loaded yet; name a register or $arg1, $arg2 …", e.Text, wrong.Place)
	case errors.As(err, &wrong):
		return wishError(wrong.Err, "-filter")
	case errors.As(err, &at):
		return &classed{errPlace, advised(err, at)}
	case errors.As(err, &none):
		return &classed{errPlace, err}
	}
	return err
}

// caretError is a mistake in the text of a flag, at a known place.
type caretError struct {
	flag string
	err  *caret.Error
}

// pointAt makes a usage error of a parser's error about a flag, with a caret if the
// parser says where the mistake is.
func pointAt(flag string, err error) error {
	var e *caret.Error
	if !errors.As(err, &e) {
		return usagef("%s: %w", flag, err)
	}
	return &classed{errUsage, &caretError{flag, e}}
}

// Error implements error.
func (e *caretError) Error() string { return fmt.Sprintf("%s: %s (%s)", e.flag, e.err.Text, e.err.ID) }

// Unwrap returns the parser's error.
func (e *caretError) Unwrap() error { return e.err }

// Picture returns the text, a line with a caret below the mistake, and a line of advice if
// there is one.
func (e *caretError) Picture() string {
	text := strings.Map(printable, e.err.Command)
	before := strings.Map(printable, e.err.Command[:min(e.err.Column, len(e.err.Command))])
	return "  " + text + "\n  " + strings.Repeat(" ", len([]rune(before))) + "^\n" + e.Advice()
}

// printable returns r, or a question mark if r must not be printed. Both are one column
// wide, so the caret stands below the right character.
func printable(r rune) rune {
	if !escape.Printable(r) {
		return '?'
	}
	return r
}
