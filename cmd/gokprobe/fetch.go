package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/internal/clean"
	"github.com/gokprobe/gokprobe/trace"
)

// -arg and -filter: the kernel's fetch arguments and filters, by the parsers of its files.

// checkFetching finds what is wrong with -arg and -filter before there is a process. What only the process
// tells is believed.
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

// wishError makes a usage error of what is wrong with a wish, whose filter is that of a flag, with a caret.
func wishError(err error, filter string) error {
	var e *values.Error
	switch {
	case !errors.As(err, &e):
		return usagef("-arg: %w", err)
	case e.Unknown != nil:
		return usagef("-arg %s names a parameter, but %w", e.Text, e.Unknown)
	case e.InFilter:
		return pointAt(filter, e.Err)
	}
	return pointAt("-arg", e.Err)
}

// placedError gives what is wrong with a place, or with what is wanted of it, its exit status.
func placedError(err error) error {
	var wrong *trace.WantError
	var at *trace.PlaceError
	var none *trace.NoPlaceError
	var e *values.Error
	switch {
	case errors.As(err, &wrong) && wrong.Waits && errors.As(err, &e) && e.Unknown != nil:
		return usagef("-arg %s names a parameter, but the library of %s is not loaded yet; name a register or $arg1, $arg2 …", e.Text, wrong.Place)
	case errors.As(err, &wrong):
		return wishError(wrong.Err, "-filter")
	case errors.As(err, &at):
		return &classed{errPlace, advised(err, at)}
	case errors.As(err, &none):
		return &classed{errPlace, err}
	}
	return err
}

// caretError is a mistake in a flag's text. The command shows the text and where in it.
type caretError struct {
	flag string
	err  *caret.Error
}

// pointAt makes a usage error of a parser's.
func pointAt(flag string, err error) error {
	var e *caret.Error
	if !errors.As(err, &e) {
		return usagef("%s: %w", flag, err)
	}
	return &classed{errUsage, &caretError{flag, e}}
}

// Error is the sentence.
func (e *caretError) Error() string { return fmt.Sprintf("%s: %s (%s)", e.flag, e.err.Text, e.err.ID) }

// Unwrap is what the parser said.
func (e *caretError) Unwrap() error { return e.err }

// Picture is two lines: the text, and a caret below what is wrong; below them what to write instead.
func (e *caretError) Picture() string {
	text := strings.Map(printable, e.err.Command)
	before := strings.Map(printable, e.err.Command[:min(e.err.Column, len(e.err.Command))])
	return "  " + text + "\n  " + strings.Repeat(" ", len([]rune(before))) + "^\n" + e.Advice()
}

// printable is r, or a question mark, which is as wide, for one that may not be printed: a caret below points into the text.
func printable(r rune) rune {
	if !clean.Printable(r) {
		return '?'
	}
	return r
}
