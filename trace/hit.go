package trace

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/symbols"
)

// Arg is one named value of a hit.
type Arg struct {
	Name string

	// Value is an int64, uint64, float64, bool, string, a json.Marshaler of a list or structure, or nil if it could not be read.
	Value any

	// Text is the value as people read it, where that differs from the plain form of Value: an address in hexadecimal, an
	// enumerator, "(fault)".
	Text string
}

// Int is the value of an integer or a bool; ok tells whether it is one.
func (a Arg) Int() (v int64, ok bool) {
	switch x := a.Value.(type) {
	case int64:
		return x, true
	case uint64:
		return int64(x), true
	case bool:
		if x {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// Parts are the members of a structure and the elements of a list, as far as they were read; nil where there are none. An element has its index as name.
func (a Arg) Parts() []Arg {
	c, _ := a.Value.(composite)
	var parts []Arg
	for i, p := range c.parts {
		name := p.Name
		if name == "" {
			name = "[" + strconv.Itoa(i) + "]"
		}
		parts = append(parts, argument(name, p.Value))
	}
	return parts
}

// String is the value as text for people. Characters that must not be printed are escaped.
func (a Arg) String() string { return string(a.Append(nil)) }

// Append appends String to b.
func (a *Arg) Append(b []byte) []byte {
	if a.Text != "" {
		return escape.Append(b, a.Text)
	}
	switch v := a.Value.(type) {
	case int64:
		return strconv.AppendInt(b, v, 10)
	case uint64:
		return strconv.AppendUint(b, v, 10)
	case bool:
		return strconv.AppendBool(b, v)
	case string:
		return escape.Append(b, strconv.Quote(v))
	case float64:
		return strconv.AppendFloat(b, v, 'g', -1, 64)
	case json.Marshaler:
		if j, err := json.Marshal(v); err == nil {
			return escape.Append(b, string(j))
		}
	}
	return append(b, '?')
}

// Frame is one frame of a backtrace. Its texts come from the target, and are not fit to be printed as they are.
type Frame struct {
	Addr   arch.Addr
	Symbol string // with offset, as in "main+0x12"; empty if unknown
	Module string // base name of the mapped file
	File   string // base name of the source file, empty if unknown
	Line   int    // from 1; 0 if unknown
	Path   string // of the source file, as debug information has it; empty if unknown
}

// Hit is one thread that has reached one place, or returned from one followed call. Its texts come from the target, and are not fit to
// be printed as they are; String escapes them.
type Hit struct {
	Time     time.Time
	PID, TID int
	Comm     string    // name of the thread
	Probe    string    // the place, Place.Name
	Label    string    // that of the want Label; empty without
	Kind     string    // "kprobe", "kretprobe"
	Addr     arch.Addr // 0 for a hit that was recorded in a followed child which executes another file
	Symbol   string    // with offset, as in "foo+0x0"
	Module   string    // base name of the mapped file
	Args     []Arg     // the values for Args, Fetch and Regs, in this order
	Locals   []Arg     // nil without Locals
	Globals  []Arg     // nil without Globals
	Stack    []Frame   // the innermost frame first; nil without Stack

	// Ret, Duration and Results are those of returns only: the integer in the register for results, nil if the function is known to return none; the time from entry to return; and
	// what the function returned by its debug information: nil if that is not known, empty if it returns nothing.
	Ret      *int64
	Duration *time.Duration
	Results  []Arg
	// Stops is how often the thread was stopped for the session between entry and return, also for other probes; 0 where the target has measured
	// Duration by itself. What the stops have cost at the least is taken off Duration: the truth is not above it, and seldom below DurationMin. If that is
	// 0, the call's own time can't be told from the cost of the stops.
	Stops       int
	DurationMin time.Duration
	// Injected is what package inject has done to the call; nil where it has done nothing.
	Injected *Injected
}

// Injected lists the actions on a call that was made to fail.
type Injected struct {
	N       uint64   // its number among those of the fault, from 1
	Actions []string // in their order
	DryRun  bool     // it would have been done
}

// Arg is the value of that name; its Value is nil if there is none.
func (h *Hit) Arg(name string) Arg {
	if i := slices.IndexFunc(h.Args, func(a Arg) bool { return a.Name == name }); i >= 0 {
		return h.Args[i]
	}
	return Arg{Name: name}
}

// String is the hit as a call is written: name(a=1, b="x") = 5 in 12µs.
func (h *Hit) String() string {
	b := escape.AppendName(nil, strings.TrimSuffix(h.Probe, ReturnSuffix))
	b = append(appendArgs(append(b, '('), h.Args), ')')
	switch {
	case h.Results == nil && h.Ret == nil:
	case h.Results == nil:
		b = strconv.AppendInt(append(b, " = "...), *h.Ret, 10)
	case len(h.Results) == 1:
		b = h.Results[0].Append(append(b, " = "...))
	case len(h.Results) > 1:
		b = append(appendArgs(append(b, " = ("...), h.Results), ')')
	}
	if h.Duration != nil {
		b = fmt.Appendf(b, " in %s%v", h.DurationMark(), *h.Duration)
	}
	return string(b)
}

func appendArgs(b []byte, args []Arg) []byte {
	for i := range args {
		if i > 0 {
			b = append(b, ", "...)
		}
		if name := args[i].Name; !strings.HasPrefix(name, "~") { // Go's ~r0, ~r1 …
			b = append(escape.Append(b, name), '=')
		}
		b = args[i].Append(b)
	}
	return b
}

// Frames adds symbols and source lines to a backtrace.
func Frames(table *symbols.Table, stack []symbols.Frame) []Frame {
	out := make([]Frame, len(stack))
	for i, f := range stack {
		out[i] = Frame{Addr: f.Addr, Module: f.Symbol.ModuleName()}
		if f.Symbol.Name != "" {
			out[i].Symbol = f.String()
		}
		at := f.Addr
		if i > 0 && !stack[i-1].Signal {
			at-- // a return address may belong to the next line
		}
		if file, line, ok := table.Line(at); ok {
			out[i].File, out[i].Line, out[i].Path = file[strings.LastIndexByte(file, '/')+1:], line, file
		}
	}
	return out
}
