package values

import (
	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/arg"
	"github.com/gokprobe/gokprobe/symbols"
)

// Names that are no variables of the program's, unless it has such.
const (
	errnoName = "errno"
	goidName  = "goid" // the number of the goroutine that the thread works for
)

// outside is what the source names at an address that is no variable of a function: variables outside of functions, and what each thread has.
func outside(table *symbols.Table, at arch.Addr) arg.Function {
	return &prototype{elsewhere: func(name string) (symbols.Param, error) {
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
	}}
}

// goid is the number of the goroutine; the runtime works for none itself, and that is 0.
func goid(table *symbols.Table, at arch.Addr) (symbols.Param, error) {
	g, err := table.Goroutine(at)
	if err != nil {
		return g, err
	}
	return g.At(goidName, symbols.Step{Kind: symbols.StepMember, Member: "goid"})
}
