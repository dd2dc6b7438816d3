package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/debugfs"
	"github.com/gokprobe/gokprobe/debugfs/dynevent"
	"github.com/gokprobe/gokprobe/debugfs/errlog"
	"github.com/gokprobe/gokprobe/debugfs/fetch"
	"github.com/gokprobe/gokprobe/debugfs/filter"
	"github.com/gokprobe/gokprobe/event"
	"github.com/gokprobe/gokprobe/symbols"
)

// -arg and -filter: the kernel's fetch arguments and filters, by the parsers of its files.

// fetching is what -arg and -filter ask of a probe's hits.
type fetching struct {
	args   []fetch.Arg
	shown  int // of args; the others are for the filter
	layout *fetch.Layout
	filter *filter.Filter // nil if every hit is kept
	kept   uint64         // hits that met the filter; counted on the tracer's thread
	exact  bool           // the target keeps just these
}

// What a filter knows beside the arguments: those of all hits, and those of returns.
var (
	hitFields = []fetch.Field{
		{Name: "comm", Type: typeOf("string")},
		{Name: "common_pid", Type: typeOf("s32")},
	}
	returnFields = []fetch.Field{
		{Name: "ret", Type: typeOf("s64")},
		{Name: "duration_ns", Type: typeOf("s64")},
	}
)

func typeOf(name string) fetch.Type {
	t, _ := dynevent.TypeOf(name)
	return t
}

// fetches tells whether the request has -arg or -filter.
func (r request) fetches() bool { return len(r.fetchArgs) > 0 || r.filter != "" }

// parseFetching reads -arg and -filter. Errors are the user's, with a caret.
func (r request) parseFetching(atReturn bool, c dynevent.Context, function func(string) (uint64, uint64, bool)) (*fetching, error) {
	d := &dynevent.Definition{Symbol: "function"}
	fields := hitFields
	if atReturn {
		d.Kind, fields = dynevent.Return, append(fields[:len(fields):len(fields)], returnFields...)
	}
	for i, text := range r.fetchArgs {
		a, err := dynevent.ParseArg(text, i, d, c)
		if err != nil {
			return nil, caret("-arg", err)
		}
		d.Args = append(d.Args, a)
	}
	f := &fetching{args: d.Args, shown: len(d.Args)}
	if r.filter == "" {
		return f, nil
	}
	if r.args {
		f.args = append(f.args, parametersOf(d, c)...)
	}
	return f, f.parseFilter(r.filter, fields, function)
}

// parametersOf are the parameters of the function, as -args prints them and as far as they can be compared.
func parametersOf(d *dynevent.Definition, c dynevent.Context) (all []fetch.Arg) {
	if c.Function == nil {
		return nil
	}
	function, err := c.Function(d)
	if err != nil {
		return nil
	}
	for _, name := range function.Params() {
		a, err := dynevent.ParseArg(name+":string", len(d.Args), d, c)
		if err != nil {
			a, err = dynevent.ParseArg(name, len(d.Args), d, c)
		}
		if err == nil {
			all = append(all, a)
		}
	}
	return all
}

// parseFilter reads -filter, over f's arguments and more, and keeps of the arguments that are not shown those that it looks at.
func (f *fetching) parseFilter(text string, more []fetch.Field, function func(string) (uint64, uint64, bool)) error {
	for {
		p := filter.Parser{Fields: append(fetch.Fields(f.args), more...), Function: function}
		made, err := p.Parse(text)
		if err != nil {
			return caret("-filter", err)
		}
		used, kept := made.Fields(), f.args[:f.shown:f.shown]
		for i := f.shown; i < len(f.args); i++ {
			if slices.Contains(used, i) {
				kept = append(kept, f.args[i])
			}
		}
		if len(kept) == len(f.args) {
			f.filter = made
			return nil
		}
		f.args = kept
	}
}

// checkFetching finds what is wrong with -arg and -filter before there is a process. What only the process
// tells is believed.
func (r request) checkFetching() error {
	kinds := map[bool]bool{}
	for _, spec := range r.specs {
		kinds[r.returns || isReturn(spec)] = true
	}
	for atReturn := range kinds {
		_, err := r.parseFetching(atReturn, dynevent.Context{}, func(string) (uint64, uint64, bool) { return 0, 1, true })
		var e *errlog.Error
		if err != nil && !(errors.As(err, &e) && r.mayBeMended(e)) {
			return err
		}
	}
	return nil
}

// mayBeMended tells of an error that the process's debug information may make one no more.
func (r request) mayBeMended(e *errlog.Error) bool {
	switch e.ID {
	case "FIELD_NOT_FOUND":
		return r.args
	case "BAD_STRING":
		return strings.Contains(e.Command, "$retval")
	}
	return slices.Contains(byDebugInfo, e.ID)
}

// byDebugInfo are the errors about what debug information would tell.
var byDebugInfo = []string{"NOSUP_BTFARG", "NO_BTF_ENTRY"}

// newFetching is what the request asks of hits at a place; nil if nothing.
func (r request) newFetching(table *symbols.Table, at place) (*fetching, error) {
	if !r.fetches() {
		return nil, nil
	}
	var prototype dynevent.Function
	var unknown error // why nothing is known of the function
	c := dynevent.Context{
		AtEntry: func(*dynevent.Definition) bool { return at.waits || atEntry(table, at.addr) },
		Data:    func(symbol string) bool { _, ok := object(table, symbol); return ok },
		Function: func(*dynevent.Definition) (dynevent.Function, error) {
			if prototype == nil && unknown == nil {
				prototype, unknown = debugfs.Prototype(table, at.addr, at.atReturn)
			}
			return prototype, unknown
		},
	}
	f, err := r.parseFetching(at.atReturn, c, func(name string) (uint64, uint64, bool) { return functionOf(table, name) })
	var e *errlog.Error
	switch {
	case at.waits && errors.As(err, &e) && slices.Contains(byDebugInfo, e.ID):
		return nil, usagef("-arg %s names a parameter, but the library of %s is not loaded yet; name a register or $arg1, $arg2 …", e.Command, at.name)
	case unknown != nil && errors.As(err, &e) && slices.Contains(byDebugInfo, e.ID):
		return nil, usagef("-arg %s names a parameter, but %s", e.Command, noParamsReason(table, at.addr, unknown))
	case err != nil:
		return nil, err
	}
	env := fetch.Env{ABI: fetch.AMD64, Return: at.atReturn, Symbol: func(name string) (arch.Addr, bool) { return object(table, name) }}
	if table.GoFunction(at.addr) {
		env.ABI = fetch.GoAMD64
	}
	if f.layout, err = fetch.NewLayout(f.args, env); err != nil {
		return nil, usagef("-arg: %w", err)
	}
	return f, nil
}

// longestPad is the bytes of endbr64, behind which a probe at an entry lies.
const longestPad = 4

func atEntry(table *symbols.Table, at arch.Addr) bool {
	f, known := table.Function(at)
	return known && at <= f.Start+longestPad
}

// object is the address of a variable or function.
func object(table *symbols.Table, name string) (arch.Addr, bool) {
	if v, err := table.Object(name); err == nil {
		return v.Addr, true
	}
	if found, err := table.Resolve(name); err == nil && len(found) == 1 {
		return found[0].Addr, true
	}
	return 0, false
}

// functionOf is the function of a name or address.
func functionOf(table *symbols.Table, name string) (start, end uint64, ok bool) {
	found, err := table.Resolve(name)
	if err != nil || len(found) != 1 {
		return 0, 0, false
	}
	f, known := table.Function(found[0].Addr)
	return uint64(f.Start), uint64(f.End), known
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
func (f *fetching) keeps(values []fetch.Value, comm string, tid int, more ...fetch.Value) bool {
	if f == nil || f.filter == nil {
		return true
	}
	all := append(values[:len(values):len(values)], fetch.Value{S: comm}, fetch.Value{U: uint64(tid)})
	return f.filter.Match(append(all, more...))
}

// returnValues are those of returnFields.
func returnValues(h *event.Hit) []fetch.Value {
	return []fetch.Value{{U: uint64(*h.Ret)}, {U: uint64(*h.Duration)}}
}

// count is how many values are shown.
func (f *fetching) count() int {
	if f == nil {
		return 0
	}
	return f.shown
}

// appendTo appends the values to a record's arguments, in place of those that have their names.
func (f *fetching) appendTo(args []event.Arg, values []fetch.Value) []event.Arg {
	values = values[:min(f.count(), len(values))]
	if len(values) > 0 {
		ours := func(a event.Arg) bool {
			return slices.ContainsFunc(f.args[:f.shown], func(f fetch.Arg) bool { return f.Name == a.Name })
		}
		args = slices.DeleteFunc(slices.Clone(args), ours)
	}
	for i, v := range values {
		t := f.args[i].Type
		a := event.Arg{Name: f.args[i].Name, Text: fetchedText(t, v), Value: fetchedJSON(t, v)}
		if t.Count > 0 {
			a.Value = composite{a.Value}
		}
		args = append(args, a)
	}
	return args
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
	switch t.Kind {
	case fetch.Signed:
		return int64(v.U)
	case fetch.Char:
		return string([]byte{byte(v.U)})
	case fetch.String, fetch.UString, fetch.SymbolOff, fetch.SymStr:
		return v.S
	}
	return v.U
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
	err  *errlog.Error
}

// caret makes a usage error of a parser's.
func caret(flag string, err error) error {
	var e *errlog.Error
	if !errors.As(err, &e) {
		return usagef("%s: %w", flag, err)
	}
	return &classed{errUsage, &caretError{flag, e}}
}

// Error is the sentence.
func (e *caretError) Error() string { return fmt.Sprintf("%s: %s (%s)", e.flag, e.err.Text, e.err.ID) }

// Unwrap is what the parser said.
func (e *caretError) Unwrap() error { return e.err }

// picture is two lines: the text, and a caret below what is wrong.
func (e *caretError) picture() string {
	text := strings.Map(printable, e.err.Command)
	before := strings.Map(printable, e.err.Command[:min(e.err.Column, len(e.err.Command))])
	return "  " + text + "\n  " + strings.Repeat(" ", len([]rune(before))) + "^\n"
}
