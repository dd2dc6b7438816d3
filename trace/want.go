package trace

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/symbols"
)

// Want is something that is wanted of a probe's hits.
type Want func(*wanted)

// wanted is all that is wanted of a probe's hits.
type wanted struct {
	specs      []string // beside the one that the probe was asked for with
	args       bool
	locals     bool
	globals    []string
	fetch      []string
	goExprs    []goExpr // those of fetch that Delve evaluates, which are not there any more
	filter     string
	asInSource bool // values of fetch are printed so, where no type is given
	bounds     symbols.Bounds
	returns    bool
	inlined    bool // calls too that the compiler has replaced by the function's body
	maxActive  int
	regs       bool
	stack      int // frames
	first      firstStack
	count      bool
	limit      uint64      // 0 for none
	pace       *Pace       // nil for none
	only       func() bool // nil for all
	label      string      // Hit.Label
	queue      *Queue
	budget     *budget   // nil for one of the probe alone
	told       *sync.Map // warnings that were given, by their text, for the probe in all processes; nil for one of the probe alone
}

// firstStack is a place whose first hit alone has a stack.
type firstStack struct {
	place  string
	frames int
}

// ManyActive is how many calls of a function are followed at once by default. Who looks at a server from outside does not know how many of its threads wait
// in a function; and each of its threads may be in one that takes no time, where both ends of a call stop it. So it is more than the kernel's trace events
// allow (4096, KRETPROBE_MAXACTIVE_MAX in kernel/trace/trace_kprobe.c).
const ManyActive = arch.MaxCalls

func newWanted(wants []Want) wanted {
	w := wanted{maxActive: ManyActive}
	for _, want := range wants {
		want(&w)
	}
	w.takeGo()
	return w
}

// Also adds SPECs to the probe's.
func Also(specs ...string) Want { return func(w *wanted) { w.specs = append(w.specs, specs...) } }

// Args wants all parameters of the function, typed by its debug information. At a line or an instruction in the function they are as they are there.
func Args() Want { return func(w *wanted) { w.args = true } }

// Locals wants the local variables of the blocks around the place, typed by debug information (symbols.Table.Variables). They are those of the function that is
// inlined there, if one is. Returns have none.
func Locals() Want { return func(w *wanted) { w.locals = true } }

// Globals wants variables outside of functions, by the names that the source has for them at the place (symbols.Table.Global), or by patterns: 'conf*', 'main.*'.
func Globals(names ...string) Want {
	return func(w *wanted) { w.globals = append(w.globals, names...) }
}

// Fetch wants fetch arguments of the kernel's, [NAME=]FETCHARG[:TYPE], as in "n=$arg1:s32" or "path=+0($arg2):string". Where there is debug information they may name
// variables as the source does: "own.y", "p->next->items[3]", "*p", "&x", "len(list)". A whole structure is printed as Args does. In a Go program "[NAME=]go:EXPR" is
// an expression of Go's, which Delve evaluates; for it threads stop at each hit, and Delve reads all debug information before. It runs in a process of its own, which is
// this program started again: main must have called kprobes.GuardianMain.
func Fetch(texts ...string) Want { return func(w *wanted) { w.fetch = append(w.fetch, texts...) } }

// AsInSource wants what Fetch names without a type as the language of the source writes it, as Args does: texts, structures, lists, names of enumerators.
func AsInSource() Want { return func(w *wanted) { w.asInSource = true } }

// If wants hits that meet a filter of the kernel's, over Fetch's names, comm and common_pid, and all that Fetch could name, as in "len(o.items) > 3 && $arg2 < 8"; of returns
// over ret and duration_ns. Other hits are not counted. The target filters by itself as far as it can.
func If(filter string) Want { return func(w *wanted) { w.filter = filter } }

// Returns wants the returns of the functions, in place of their entries.
func Returns() Want { return func(w *wanted) { w.returns = true } }

// MaxActive wants n calls of each function followed at once, in place of ManyActive. Further ones are counted as missed.
func MaxActive(n int) Want { return func(w *wanted) { w.maxActive = n } }

// Regs wants the general registers, which stand in Hit.Args as %rdi and so on.
func Regs() Want { return func(w *wanted) { w.regs = true } }

// Within wants no more than that shown of each value, in place of symbols.DefaultBounds. Where a record is too small for it, threads stop at hits. A text of Fetch that
// no record holds is an error.
func Within(b symbols.Bounds) Want { return func(w *wanted) { w.bounds = b } }

// shown are values within the bounds that are wanted.
func (w wanted) shown(params []symbols.Param) []symbols.Param {
	all := slices.Clone(params)
	for i := range all {
		all[i] = all[i].Within(w.bounds)
	}
	return all
}

// Stack wants up to n frames of the stack.
func Stack(n int) Want { return func(w *wanted) { w.stack = n } }

// FirstStack wants up to n frames of the stack at the first hit of the place with that name only.
func FirstStack(place string, n int) Want {
	return func(w *wanted) { w.first = firstStack{place, n} }
}

// Count wants no hits, only their number (Probe.Stats). That costs the target least.
func Count() Want { return func(w *wanted) { w.count = true } }

// Limit wants n hits over all places of the probe, which is disabled then.
func Limit(n uint64) Want { return func(w *wanted) { w.limit = n } }

// Only wants those hits for which f says so. It is asked for each that meets If, before its values are read and before At counts it; all others are counted, too
// (Stats.Hits). It is called by one goroutine at a time, while a thread of the target may be waiting for it.
func Only(f func() bool) Want { return func(w *wanted) { w.only = f } }

// Label wants text as the Label of each hit.
func Label(text string) Want { return func(w *wanted) { w.label = text } }

// To wants the hits in q, which other probes may use too, in place of a queue for this probe alone (Probe.Hits).
func To(q *Queue) Want { return func(w *wanted) { w.queue = q } }

// Check finds mistakes in wants before there is a process. The error is a *WantError. Names that only the process can tell, such as
// parameters, are accepted.
func Check(atReturn bool, wants ...Want) error {
	w := newWanted(wants)
	if err := w.checkGo(); err != nil {
		return err
	}
	if err := w.wish(atReturn || w.returns).Check(); err != nil {
		return &WantError{Err: err}
	}
	return nil
}

// WantError is a mistake in Fetch or If.
type WantError struct {
	Place string // the place for which it is wrong; empty if for all
	Waits bool   // the place waits for its library
	Err   error  // most often an *values.Error
}

// Error implements error.
func (e *WantError) Error() string {
	if e.Place == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s: %v", e.Place, e.Err)
}

// Unwrap is the cause.
func (e *WantError) Unwrap() error { return e.Err }

// returnValues are those of values.ReturnFields. What a return has not is absent.
func returnValues(h *Hit) []fetch.Value {
	ret, duration := fetch.Value{Absent: true}, fetch.Value{Absent: true}
	if h.Ret != nil {
		ret = fetch.Value{U: uint64(*h.Ret)}
	}
	if h.Duration != nil {
		duration = fetch.Value{U: uint64(*h.Duration)}
	}
	return []fetch.Value{ret, duration}
}

// returnsWhole reports whether a function returns a whole number or an address. It reports true if the results are unknown.
func returnsWhole(table *symbols.Table, at arch.Addr) bool {
	results, err := table.Results(at)
	return err != nil || len(results) > 0 && results[0].Whole()
}

// wish is what Fetch and If want.
func (w wanted) wish(atReturn bool) values.Wish {
	wish := values.Wish{Args: w.fetch, Globals: w.globals, Filter: w.filter, Params: w.args || w.locals, Inside: true, Return: atReturn, Whole: true, AsInSource: w.asInSource, Bounds: w.bounds}
	if atReturn {
		wish.More = values.ReturnFields
	}
	return wish
}

// fetching is what Fetch and If want of a place's hits; nil if nothing.
func (w wanted) fetching(table *symbols.Table, at Place) (*values.Values, error) {
	if len(w.fetch) == 0 && len(w.globals) == 0 && w.filter == "" {
		return nil, nil
	}
	wish := w.wish(at.Return)
	if at.Return && !at.Waits && !returnsWhole(table, at.Addr) {
		wish.More = values.ReturnFields[1:] // there is no number ret
	}
	v, err := wish.At(table, values.Place{Addr: at.Addr, Waits: at.Waits, Inside: at.isInside(table), Inlined: at.inlined != nil})
	if err != nil {
		return nil, &WantError{Place: at.Name, Waits: at.Waits, Err: err}
	}
	return v, nil
}
