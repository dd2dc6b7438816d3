package values

import (
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/symbols"
)

// Names that are no variables of the program's, unless it has such.
const (
	errnoName = "errno"
	goidName  = "goid" // the number of the goroutine that the thread works for
)

// outside is what the source names at an address that is no variable of a function: variables outside of functions, and what each thread has. isUsed is set when there is
// one.
func outside(table *symbols.Table, at arch.Addr, isUsed *bool) *prototype {
	find := func(name string) (symbols.Param, error) {
		if slices.Contains(hitNames, name) {
			return symbols.Param{}, symbols.ErrNoGlobal
		}
		if err := memberOfThis(table, at, name); err != nil {
			return symbols.Param{}, err
		}
		p, err := table.Global(at, name)
		switch {
		case err == nil:
			return p, nil
		case name == errnoName:
			return table.Errno()
		case name == goidName && table.GoFunction(at):
			return goid(table, at)
		}
		return p, err
	}
	return &prototype{elsewhere: func(name string) (symbols.Param, error) {
		p, err := find(name)
		*isUsed = *isUsed || err == nil
		return p, err
	}}
}

// hitNames are what hits have: where a hit has none of such a name, no variable is meant either.
var hitNames = []string{"ret", "duration", "duration_ns", "comm", "common_pid", "pid", "tid", "symbol"}

// memberOfThis returns an error if a name is, in a method of C++'s, that of a member of its object.
func memberOfThis(table *symbols.Table, at arch.Addr, name string) error {
	params, err := table.Params(at)
	if err != nil || len(params) == 0 || params[0].Name != "this" {
		return nil
	}
	if _, err := params[0].At(name, symbols.Step{Kind: symbols.StepMember, Member: name}); err != nil {
		return nil
	}
	return &symbols.HiddenError{What: "it is a member of the object: name it this->" + name}
}

// goid is the number of the goroutine; the runtime works for none itself, and that is 0.
func goid(table *symbols.Table, at arch.Addr) (symbols.Param, error) {
	g, err := table.Goroutine(at)
	if err != nil {
		return g, err
	}
	return g.At(goidName, symbols.Step{Kind: symbols.StepMember, Member: "goid"})
}
