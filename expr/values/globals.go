package values

import (
	"errors"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/symbols"
)

// addGlobals adds the variables outside of functions that w.Globals names at a place. Of a pattern as much is shown as the target can record.
func (v *Values) addGlobals(table *symbols.Table, at Place, w Wish) error {
	for _, name := range w.Globals {
		if at.Waits || w.Syscall {
			return &Error{IsGlobal: true, Text: name, Err: errNotLoaded}
		}
		found, err := table.Globals(at.Addr, name)
		if err != nil {
			return &Error{IsGlobal: true, Text: name, Err: noGlobal(name, err)}
		}
		for _, p := range found {
			if p = p.Within(w.Bounds); p.Name != name {
				p = p.Brief()
			}
			v.Globals = append(v.Globals, p)
		}
	}
	v.Outside = v.Outside || len(v.Globals) > 0
	return nil
}

// noGlobal is a fault of a name, or the error of the debug information.
func noGlobal(name string, err error) error {
	if !errors.Is(err, symbols.ErrNoGlobal) && !errors.Is(err, symbols.ErrAmbiguous) && !errors.Is(err, symbols.ErrNoPlace) {
		return err
	}
	return (&caret.Fault{ID: "NO_GLOBAL", Note: err.Error()}).In("trace_kprobe", []string{name}, 0)
}
