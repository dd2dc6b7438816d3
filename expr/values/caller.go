package values

import (
	"context"
	"errors"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/arg"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/filter"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/symbols"
)

// callerName is the place that the function returns to, unless the program has a variable of the name.
const callerName = "caller"

var callerType = fetch.Type{Name: callerName, Kind: fetch.Caller, Size: 8}

// callerAt is where a hit finds its caller: the return address on top of the stack, and at returns the place itself.
func callerAt(table *symbols.Table, at Place, atReturn bool) func() (arg.Variable, error) {
	return func() (v arg.Variable, err error) {
		v.Type = callerType
		f, known := table.Function(at.Addr)
		switch {
		case atReturn:
			v.Source = fetch.Source{Base: fetch.Register, Name: host.Roles.IP}
		case at.Inlined || at.Inside || !known || at.Addr != f.Start:
			return v, &arg.UnsureError{Note: "caller: it is known at a function's entry and at its return; here print the frames: -stack 2"}
		default:
			v.Source = fetch.Source{Base: fetch.StackWord}
		}
		return v, nil
	}
}

// mostCallers bounds the functions that a pattern stands for: the target compares with each of them.
const mostCallers = 64

// Callers are the return addresses behind the calls that functions of a name make, as filter.Parser asks for them.
func Callers(table *symbols.Table, name string) (spans []filter.Span) {
	found, err := table.Find(context.Background(), name)
	var several *symbols.AmbiguousError
	if errors.As(err, &several) {
		found = several.Candidates
	}
	for _, l := range found {
		f, known := table.Function(l.Addr)
		if !known || len(spans) == mostCallers {
			return nil
		}
		isIn := func(ret arch.Addr) bool { return f.Contains(table.Caller(ret).Symbol.Addr) }
		first, last := f.Start, f.End
		if !isIn(first) { // behind a call of the function in front of this one
			first++
		}
		if !isIn(last) {
			last--
		}
		spans = append(spans, filter.Span{First: uint64(first), Last: uint64(last)})
	}
	return spans
}
