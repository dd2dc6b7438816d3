package debugfs

import (
	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/debugfs/dynevent"
	"github.com/gokprobe/gokprobe/expr/arg"
	"github.com/gokprobe/gokprobe/expr/values"
)

// prototype finds the function that d probes in debug information.
func (t *Tree) prototype(d *dynevent.Definition) (arg.Function, error) {
	table := t.session.Symbols()
	at := arch.Addr(d.Addr)
	if d.Symbol != "" {
		found, err := t.resolve(symbolName(d))
		if err != nil {
			return nil, err
		}
		at = found[0].Addr
	}
	return values.Prototype(table, at, d.Kind == dynevent.Return)
}

// hasData tells whether @SYM can be read.
func (t *Tree) hasData(symbol string) bool {
	_, ok := t.symbol(symbol)
	return ok
}
