// Package values is what somebody wants to know of a probe's hits, and which of them: the kernel's fetch arguments and
// filters, where there is debug information with parameters by their names.
package values

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/arg"
	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/filter"
	"github.com/gokprobe/gokprobe/expr/lex"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/symbols"
)

// Wish is a request for values of a probe's hits.
type Wish struct {
	Args    []string // fetch arguments, [NAME=]FETCHARG[:TYPE]
	Hidden  []string // further ones, whose values follow those of Args
	Globals []string // variables outside of functions, by their names or patterns
	Filter  string   // which hits are wanted; empty: all
	// Params lets the Filter look at the function's parameters too, as far as they are known and can be compared.
	Params bool
	// Return tells that the values are those when the function has returned.
	Return bool
	// Inside tells that names are those of the variables there, where the place is inside of a function; else they are the function's parameters, as the kernel
	// has it.
	Inside bool
	// Whole lets Args name what no fetch argument has a type for, such as a whole structure: Values.Wholes.
	Whole bool
	// Operands lets the Filter compare what no fetch argument has a type for; Whole does, too. Such a filter needs KeepsAt.
	Operands bool
	// AsInSource wants all that the source names as Wholes, unless a type is given.
	AsInSource bool
	// Syscall tells that it is about a system call: $argN are its arguments, and there are no other parameters.
	Syscall bool
	// Bounds are how much of a value is shown.
	Bounds symbols.Bounds
	// More is what the Filter may look at beside all that.
	More []fetch.Field
}

// HitFields lists the fields that filters have for every hit; Values.Keeps takes their
// values.
var HitFields = []fetch.Field{
	{Name: "comm", Type: TypeOf("string")},
	{Name: "common_pid", Type: TypeOf("s32")},
}

// ReturnFields lists what filters have for every return besides: a Wish's More.
var ReturnFields = []fetch.Field{
	{Name: "ret", Type: TypeOf("s64")},
	{Name: "duration_ns", Type: TypeOf("s64")},
}

// TypeOf is a type by its name, such as "s32", which must be one.
func TypeOf(name string) fetch.Type {
	t, _ := arg.TypeOf(name)
	return t
}

// Place is where a probe is.
type Place struct {
	Addr   arch.Addr
	Waits  bool // it is in a library that is not loaded yet, so that nothing is known of it
	Inside bool // of a function, not at its entry: see Wish.Inside
	// Inlined says that an inlined call begins there. The function around it may begin there as well, whose parameters are others.
	Inlined bool
}

// Values is how a wish is met at one place. It is not changed after it was made; any number of goroutines may use it.
type Values struct {
	Args   []fetch.Arg // those of Wish.Args and Hidden but for Wholes, then others that only the filter needs
	Layout *fetch.Layout
	Filter *filter.Filter // nil if every hit is wanted
	// Wholes are values of Wish.Args that are read and printed as the source's language has them, at the hit.
	Wholes []symbols.Param
	// Operands are values that the filter compares and no fetch argument has. They are read as Wholes are, and follow Wish.More among the filter's fields.
	Operands []Operand
	// Globals are those of Wish.Globals, read as Wholes are.
	Globals []symbols.Param
	// Outside says that some are variables outside of functions, or that the filter names functions, which lie elsewhere in another program, or when their file is mapped again.
	Outside bool
	// Moves says of Outside that it may come true while the process runs: then the target can't tell which hits are wanted.
	Moves bool
	// Shown is where each of Wish.Args is.
	Shown []Shown
	// Bounds are the wish's.
	Bounds symbols.Bounds
	more   int // Wish.More
	files  files
}

// Whole is Wholes, none of nil.
func (v *Values) Whole() []symbols.Param {
	if v == nil {
		return nil
	}
	return v.Wholes
}

// Alike reports whether v and o fetch the same values from the same places. Their filters may differ.
func (v *Values) Alike(o *Values) bool {
	return reflect.DeepEqual(v.Args, o.Args) && slices.EqualFunc(v.Read(), o.Read(), symbols.Param.Alike)
}

// Shown is where one of Wish.Args is: among Values.Wholes or Values.Args.
type Shown struct {
	IsWhole bool
	Index   int
}

// Error is a mistake in a wish.
type Error struct {
	InFilter bool
	IsGlobal bool   // it is in Wish.Globals
	Text     string // the argument or the filter
	Err      error  // an *caret.Error where the text is wrong, which tells the column
	// Unknown is why nothing is known of the function, where Text names one of its parameters.
	Unknown error
}

// Error implements error.
func (e *Error) Error() string {
	what := "argument"
	if e.IsGlobal {
		what = "variable"
	}
	if e.InFilter {
		what = "filter"
	}
	if e.Unknown != nil {
		return fmt.Sprintf("%s %s names a parameter or a variable, but %v", what, e.Text, e.Unknown)
	}
	var parse *caret.Error
	if errors.As(e.Err, &parse) {
		return fmt.Sprintf("%s %s: %s (%s)", what, e.Text, parse.Text, parse.ID)
	}
	return fmt.Sprintf("%s %s: %v", what, e.Text, e.Err)
}

// UnknownName tells that a name is wrong at this place, and may be right at another.
func (e *Error) UnknownName() bool {
	var parse *caret.Error
	return errors.As(e.Err, &parse) && (parse.ID == "NO_BTFARG" || parse.ID == "FIELD_NOT_FOUND")
}

// Unwrap is what the parser said.
func (e *Error) Unwrap() error { return e.Err }

// errNotLoaded is why nothing is known of a function.
var errNotLoaded = errors.New("its library is not loaded yet; name a register or $arg1, $arg2 …")

// errInlined is why nothing is known of a function where it is inlined.
var errInlined = errors.New("a call of it is inlined there; name registers")

// errSyscall is why a system call has no parameters with names.
var errSyscall = errors.New("of a system call's arguments only the registers are known; name $arg1, $arg2 …")

// Check finds mistakes in a wish before there is a process. What only the process tells
// is believed.
func (w Wish) Check() error {
	_, err := w.parse(arg.Scope{Inside: w.Inside && !w.Return}, functions{
		func(string) (uint64, uint64, bool) { return 0, 1, true }, func(string) []filter.Span { return []filter.Span{{}} },
		func() filter.Rules { return filter.AnyRules },
	})
	var e *caret.Error
	if errors.As(err, &e) && w.mayBeMended(e) {
		return nil
	}
	return err
}

// mayBeMended tells of an error that the process's debug information may make one no more.
func (w Wish) mayBeMended(e *caret.Error) bool {
	switch e.ID {
	case "FIELD_NOT_FOUND":
		return true // it may be a variable
	case "BAD_STRING":
		return strings.Contains(e.Command, "$retval")
	}
	return slices.Contains(byDebugInfo, e.ID)
}

// byDebugInfo are the errors about what debug information would tell.
var byDebugInfo = []string{"NOSUP_BTFARG", "NO_BTF_ENTRY"}

// At meets the wish at a place. The error is an *Error, or that of an argument that can't be fetched there.
func (w Wish) At(table *symbols.Table, at Place) (*Values, error) {
	var prototype arg.Function
	var unknown error // why nothing is known of the function
	isOutside := false
	named := functionsOf{table: table}
	inside := w.Inside && at.Inside && !w.Return && !w.Syscall && !at.Waits && !at.Inlined
	var scope arg.Scope
	index := func(path arg.Path) (symbols.Param, bool) { return wholeOf(path, scope) }
	scope = arg.Scope{
		Inside:  inside,
		AtEntry: func() bool { return at.Waits || w.Syscall || !at.Inlined && atEntry(table, at.Addr) },
		Data:    func(symbol string) bool { _, ok := Object(table, symbol); return ok },
		Function: func() (arg.Function, error) {
			switch {
			case w.Syscall:
				unknown = errSyscall
			case at.Waits:
				unknown = errNotLoaded
			case at.Inlined:
				unknown = errInlined
			case prototype != nil || unknown != nil:
			case inside:
				prototype, unknown = surroundings(table, at.Addr)
			default:
				prototype, unknown = Prototype(table, at.Addr, w.Return)
			}
			indexedBy(prototype, index)
			return prototype, unknown
		},
	}
	if !at.Waits && !w.Syscall {
		elsewhere := outside(table, at.Addr, &isOutside)
		elsewhere.index, elsewhere.caller = index, callerAt(table, at, w.Return)
		scope.Elsewhere = elsewhere
	}
	v, err := w.parse(scope, functions{
		named.function, named.callers,
		func() filter.Rules { return rulesAt(table, at) },
	})
	if err != nil {
		var wrong *Error
		var e *caret.Error
		if unknown != nil && errors.As(err, &wrong) && errors.As(err, &e) && slices.Contains(byDebugInfo, e.ID) {
			if wrong.Unknown = unknown; !at.Waits && !w.Syscall {
				wrong.Unknown = NoParams(table, at.Addr, unknown)
			}
		}
		return nil, err
	}
	v.Outside, v.Moves, v.files = isOutside || named.isUsed, isOutside || named.isMoving, w.readFrom(table)
	if err := v.addGlobals(table, at, w); err != nil {
		return nil, err
	}
	abi := host.Kernel
	if !w.Syscall {
		abi = ABIOf(table, at.Addr)
	}
	env := fetch.Env{ABI: abi, Return: w.Return, Text: w.Bounds.Bytes, Symbol: func(name string) (arch.Addr, bool) { return Object(table, name) }}
	v.Layout, err = fetch.NewLayout(v.Args, env)
	return v, err
}

// ABIOf is how the function at an address is called.
func ABIOf(table *symbols.Table, at arch.Addr) fetch.ABI {
	if table.GoFunction(at) {
		return host.Go
	}
	return host.C
}

// functions are how filters find some.
type functions struct {
	function func(name string) (start, end uint64, ok bool)
	callers  func(name string) []filter.Span
	rules    func() filter.Rules
}

// parse reads all texts of a wish.
func (w Wish) parse(scope arg.Scope, known functions) (*Values, error) {
	scope.Return, scope.AsInSource = w.Return, true
	v := &Values{Bounds: w.Bounds, more: len(w.More)}
	for i, text := range slices.Concat(w.Args, w.Hidden) {
		if err := v.add(w, text, scope); err != nil {
			return nil, &Error{Text: text, Err: err}
		}
		if i == len(w.Args)-1 {
			v.Shown = v.Shown[:len(w.Args):len(w.Args)]
		}
	}
	v.Shown = v.Shown[:len(w.Args)]
	if w.Filter == "" {
		return v, nil
	}
	wanted := len(v.Args)
	if w.Params {
		v.Args = append(v.Args, paramsOf(v.Args, scope)...)
	}
	more := slices.Concat(HitFields, w.More)
	if err := v.addOperands(w, more, scope); err != nil {
		return nil, &Error{InFilter: true, Text: w.Filter, Err: err}
	}
	if err := v.parseFilter(w.Filter, wanted, more, known); err != nil {
		return nil, &Error{InFilter: true, Text: w.Filter, Err: err}
	}
	return v, nil
}

// add adds the value that text names.
func (v *Values) add(w Wish, text string, scope arg.Scope) error {
	isWhole := (w.AsInSource || w.Whole) && v.addWhole(text, scope, !w.AsInSource)
	if isWhole && (w.AsInSource || w.Filter == "") {
		return nil
	}
	a, err := arg.Parse(text, v.Args, scope)
	if isWhole { // the filter may compare its number
		if err == nil {
			v.Args = append(v.Args, a)
		}
		return nil
	}
	var fault *caret.Error
	switch {
	case err == nil:
		v.Args, v.Shown = append(v.Args, a), append(v.Shown, Shown{Index: len(v.Args)})
		return nil
	case w.Whole && errors.As(err, &fault) && slices.Contains([]string{"NOSUP_DAT_ARG", "NO_BTFARG", "BAD_STRING"}, fault.ID) && v.addWhole(text, scope, false):
		return nil
	}
	return err
}

// addWhole adds the value that text names as [NAME=]PATH, if it names one; if ofLibrary is set, only one that a library's type gives another form than
// a number.
func (v *Values) addWhole(text string, scope arg.Scope, ofLibrary bool) bool {
	name, expr, named := lex.CutName(text)
	if !named {
		name, expr = text, text
	}
	path, ok := arg.ParsePath(expr)
	if !ok || !arg.IsPath(expr) || scope.Function == nil || v.isTaken(name) {
		return false
	}
	whole, ok := wholeOf(path, scope)
	if !ok || ofLibrary && !whole.HasForm() {
		return false
	}
	whole = whole.Shown().Within(v.Bounds)
	whole.Name = name
	v.Wholes, v.Shown = append(v.Wholes, whole), append(v.Shown, Shown{IsWhole: true, Index: len(v.Wholes)})
	return true
}

// wholeOf is what a path leads to, from a name of the function's or else from one that is known elsewhere.
func wholeOf(path arg.Path, scope arg.Scope) (whole symbols.Param, ok bool) {
	function, err := scope.Function()
	if p, isOne := function.(*prototype); err == nil && isOne {
		if whole, ok = p.whole(path.Name, path.Steps); ok || p.isParam(path.Name) {
			return whole, ok
		}
	}
	if p, isOne := scope.Elsewhere.(*prototype); isOne {
		return p.whole(path.Name, path.Steps)
	}
	return whole, false
}

// isTaken tells that another value has that name.
func (v *Values) isTaken(name string) bool {
	return slices.ContainsFunc(v.Args, func(a fetch.Arg) bool { return a.Name == name }) ||
		slices.ContainsFunc(v.Wholes, func(p symbols.Param) bool { return p.Name == name })
}

// paramsOf are the parameters of the function, as far as they can be compared, behind what is wanted anyway.
func paramsOf(wanted []fetch.Arg, scope arg.Scope) (all []fetch.Arg) {
	if scope.Function == nil {
		return nil
	}
	function, err := scope.Function()
	if err != nil {
		return nil
	}
	for _, name := range function.Params() {
		a, err := arg.Parse(name+":string", wanted, scope)
		if err != nil {
			a, err = arg.Parse(name, wanted, scope)
		}
		if err == nil {
			all = append(all, a)
		}
	}
	return all
}

// parseFilter reads a filter, over v's arguments and more, and keeps of the arguments behind those that are wanted the ones that it
// looks at.
func (v *Values) parseFilter(text string, wanted int, more []fetch.Field, known functions) error {
	for {
		p := filter.Parser{Fields: slices.Concat(fetch.Fields(v.Args), more, operandFields(v.Operands)), Function: known.function, Callers: known.callers, Rules: known.rules, Exprs: true}
		made, err := p.Parse(text)
		if err != nil {
			return err
		}
		used, kept := made.Fields(), v.Args[:wanted:wanted]
		for i := wanted; i < len(v.Args); i++ {
			if slices.Contains(used, i) {
				kept = append(kept, v.Args[i])
			}
		}
		if len(kept) == len(v.Args) {
			v.Filter = made
			return nil
		}
		v.Args = kept
	}
}

// Keeps tells whether a hit meets the filter: by the values of v.Args, the thread's name and ID, the values of Wish.More, which are the last ones of more.
// Operands are unknown: see KeepsAt.
func (v *Values) Keeps(values []fetch.Value, comm string, tid int, more ...fetch.Value) bool {
	return v.keeps(func(Operand) fetch.Value { return fetch.Value{Absent: true} }, values, comm, tid, more)
}

// keeps is Keeps where operands are found by find, each at most once and only if it decides.
func (v *Values) keeps(find func(Operand) fetch.Value, values []fetch.Value, comm string, tid int, more []fetch.Value) bool {
	if v == nil || v.Filter == nil {
		return true
	}
	all := append(values[:len(values):len(values)], fetch.Value{S: comm}, fetch.Value{U: uint64(tid)})
	for i := len(more) - v.more; i < len(more); i++ {
		if i < 0 {
			all = append(all, fetch.Value{Absent: true})
		} else {
			all = append(all, more[i])
		}
	}
	found := make([]*fetch.Value, len(v.Operands))
	return v.Filter.MatchBy(func(field int) fetch.Value {
		i := field - len(all)
		switch {
		case i < 0:
			return all[field]
		case found[i] == nil:
			x := find(v.Operands[i])
			found[i] = &x
		}
		return *found[i]
	})
}
