package values

import (
	"regexp"
	"slices"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/filter"
	"github.com/gokprobe/gokprobe/symbols"
)

// files is which files a wish was met in, and whether it needs any.
type files struct {
	table   *symbols.Table
	reading symbols.Reading
	isAlone func() bool
}

// atVariable finds @SYMBOL in fetch arguments and filters.
var atVariable = regexp.MustCompile(`@[^0-9+]`)

// readFrom tells that w is met in a table, as it is now.
func (w Wish) readFrom(table *symbols.Table) files {
	return files{table, table.Reading(), sync.OnceValue(func() bool {
		if slices.ContainsFunc(slices.Concat(w.Args, w.Hidden, []string{w.Filter}), atVariable.MatchString) {
			return false
		}
		v, err := w.At(table, Place{Waits: true})
		return err == nil && !v.Outside
	})}
}

// Stands tells that v is right for a hit in a process that has this table: of the same files, mapped where they were, or where v needs none.
func (v *Values) Stands(table *symbols.Table) bool {
	switch {
	case v == nil || v.files.table == nil || table.Stands(v.files.reading):
		return true
	case v.Outside:
		return false
	}
	return table == v.files.table || v.files.isAlone()
}

// functionsOf finds functions for a filter. isUsed tells that one was asked for, isMoving that one is in a library, which may be mapped elsewhere.
type functionsOf struct {
	table            *symbols.Table
	isUsed, isMoving bool
}

func (f *functionsOf) function(name string) (start, end uint64, ok bool) {
	start, end, ok = Function(f.table, name)
	f.note(start)
	return start, end, ok
}

func (f *functionsOf) callers(name string) []filter.Span {
	spans := Callers(f.table, name)
	for _, s := range spans {
		f.note(s.First)
	}
	return spans
}

// note takes down that the filter looks at an address.
func (f *functionsOf) note(at uint64) {
	loc, known := f.table.Lookup(arch.Addr(at))
	f.isUsed, f.isMoving = true, f.isMoving || !known || loc.Symbol.Module == nil || loc.Symbol.Module.Kind != symbols.KindExecutable
}
