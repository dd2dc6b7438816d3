package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/internal/clean"
	"github.com/gokprobe/gokprobe/symbols"
)

// -arg and -filter: the kernel's fetch arguments and filters, by the parsers of its files.

// fetching is what -arg and -filter ask of a probe's hits.
type fetching struct {
	*values.Values
	shown int    // of Args; the others are for the filter
	kept  uint64 // hits that met the filter; counted on the tracer's thread
	exact bool   // the target keeps just these
}

// returnFields is what a filter knows of returns beside what it knows of all hits.
var returnFields = []fetch.Field{
	{Name: "ret", Type: values.TypeOf("s64")},
	{Name: "duration_ns", Type: values.TypeOf("s64")},
}

// fetches tells whether the request has -arg or -filter.
func (r request) fetches() bool { return len(r.fetchArgs) > 0 || r.filter != "" }

// wish is what -arg and -filter want.
func (r request) wish(atReturn bool) values.Wish {
	w := values.Wish{Args: r.fetchArgs, Filter: r.filter, Params: r.args, Return: atReturn}
	if atReturn {
		w.More = returnFields
	}
	return w
}

// checkFetching finds what is wrong with -arg and -filter before there is a process. What only the process
// tells is believed.
func (r request) checkFetching() error {
	kinds := map[bool]bool{}
	for _, spec := range r.specs {
		kinds[r.returns || isReturn(spec)] = true
	}
	for atReturn := range kinds {
		if err := r.wish(atReturn).Check(); err != nil {
			return wishError(err, "-filter")
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

// newFetching is what the request asks of hits at a place; nil if nothing.
func (r request) newFetching(table *symbols.Table, at place) (*fetching, error) {
	if !r.fetches() {
		return nil, nil
	}
	wish := r.wish(at.atReturn)
	if at.atReturn && !at.waits && !returnsWhole(table, at.addr) {
		wish.More = returnFields[1:] // there is no number ret
	}
	v, err := wish.At(table, values.Place{Addr: at.addr, Waits: at.waits})
	var e *values.Error
	switch {
	case at.waits && errors.As(err, &e) && e.Unknown != nil:
		return nil, usagef("-arg %s names a parameter, but the library of %s is not loaded yet; name a register or $arg1, $arg2 …", e.Text, at.name)
	case err != nil:
		return nil, wishError(err, "-filter")
	}
	return &fetching{Values: v, shown: len(r.fetchArgs)}, nil
}

// symbolize prints an address as the kernel's %pS.
func (r *recorder) symbolize(at arch.Addr) string {
	loc, ok := r.sess.Symbols().Lookup(at)
	if !ok || loc.Symbol.Name == "" {
		return ""
	}
	return fmt.Sprintf("%s+%#x/%#x", loc.Symbol.Name, loc.Offset, loc.Symbol.Size)
}

// keeps tells whether a hit meets the filter. more are the values of returnFields.
func (f *fetching) keeps(fetched []fetch.Value, comm string, tid int, more ...fetch.Value) bool {
	return f == nil || f.Keeps(fetched, comm, tid, more...)
}

// returnsWhole tells whether a function returns a whole number or an address, or may do so: nothing is known of what it returns.
func returnsWhole(table *symbols.Table, at arch.Addr) bool {
	results, err := table.Results(at)
	return err != nil || len(results) > 0 && results[0].Whole()
}

// returnValues are those of returnFields.
func returnValues(h *event.Hit) (all []fetch.Value) {
	if h.Ret != nil {
		all = append(all, fetch.Value{U: uint64(*h.Ret)})
	}
	return append(all, fetch.Value{U: uint64(*h.Duration)})
}

// returnWord is the number that a call has returned in the register for those, of which v is the value; nil where the function's results,
// if they are typed, say that it is none.
func returnWord(v uint64, results []symbols.Param, typed bool) *int64 {
	n := int64(v)
	switch {
	case !typed:
	case len(results) == 0 || !results[0].Whole():
		return nil
	default:
		n = results[0].Integer(v)
	}
	return &n
}

// count is how many values are shown.
func (f *fetching) count() int {
	if f == nil {
		return 0
	}
	return f.shown
}

// appendTo appends the values to a record's arguments, in place of those that have their names.
func (f *fetching) appendTo(args []event.Arg, fetched []fetch.Value) []event.Arg {
	fetched = fetched[:min(f.count(), len(fetched))]
	if len(fetched) == 0 {
		return args
	}
	shown := f.Args[:len(fetched)]
	ours := func(a event.Arg) bool {
		return slices.ContainsFunc(shown, func(f fetch.Arg) bool { return f.Name == a.Name })
	}
	return append(slices.DeleteFunc(slices.Clone(args), ours), fetchedArgs(shown, fetched)...)
}

// fetchedArgs are fetched values as a record's.
func fetchedArgs(args []fetch.Arg, fetched []fetch.Value) []event.Arg {
	all := make([]event.Arg, len(fetched))
	for i, v := range fetched {
		t := args[i].Type
		all[i] = event.Arg{Name: args[i].Name, Text: fetchedText(t, v), Value: fetchedJSON(t, v)}
		if t.Count > 0 {
			all[i].Value = composite{all[i].Value}
		}
	}
	return all
}

// fetchedText is a value as the kernel prints it, but for numbers that could not be read.
func fetchedText(t fetch.Type, v fetch.Value) string {
	switch {
	case t.Count > 0:
		t.Count = 0
		elems := make([]string, len(v.Elems))
		for i, e := range v.Elems {
			elems[i] = fetchedText(t, e)
		}
		return "{" + strings.Join(elems, ",") + "}"
	case v.Fault:
		return fetch.FaultText
	}
	return string(t.Append(nil, v))
}

// fetchedJSON is a value by its type, nil if it could not be read.
func fetchedJSON(t fetch.Type, v fetch.Value) any {
	switch {
	case t.Count > 0:
		t.Count = 0
		elems := make([]any, len(v.Elems))
		for i, e := range v.Elems {
			elems[i] = fetchedJSON(t, e)
		}
		return elems
	case v.Fault:
		return nil
	}
	if t.HasSign() {
		return int64(v.U)
	}
	switch t.Kind {
	case fetch.Float:
		return floatJSON(t.Float(v))
	case fetch.Char:
		return string([]byte{byte(v.U)})
	case fetch.String, fetch.UString, fetch.SymbolOff, fetch.SymStr:
		return v.S
	}
	return v.U
}

// floatJSON is a number, or a string if JSON has no such number.
func floatJSON(x float64) any {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	return x
}

// putWords and getWords keep numbers in a call's Data.
func putWords(to []byte, words []uint64) {
	for i, w := range words {
		binary.NativeEndian.PutUint64(to[8*i:], w)
	}
}

func getWords(from []byte) []uint64 {
	words := make([]uint64, len(from)/8)
	for i := range words {
		words[i] = binary.NativeEndian.Uint64(from[8*i:])
	}
	return words
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
