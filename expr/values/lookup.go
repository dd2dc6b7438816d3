package values

import (
	"context"
	"errors"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/filter"
	"github.com/gokprobe/gokprobe/symbols"
)

// longestPad is the bytes of endbr64, behind which a probe at an entry lies.
const longestPad = 4

func atEntry(table *symbols.Table, at arch.Addr) bool {
	f, known := table.Function(at)
	return known && at <= f.Start+longestPad
}

// Object is the address of a variable or function that is written @NAME.
func Object(table *symbols.Table, name string) (arch.Addr, bool) {
	if v, err := table.Object(name); err == nil {
		return v.Addr, true
	}
	if found, err := table.Resolve(context.Background(), name); err == nil && len(found) == 1 {
		return found[0].Addr, true
	}
	return 0, false
}

// Function is the function of a name or address, as filter.Parser asks for it.
func Function(table *symbols.Table, name string) (start, end uint64, ok bool) {
	found, err := table.Resolve(context.Background(), name)
	if err != nil || len(found) != 1 {
		return 0, 0, false
	}
	f, known := table.Function(found[0].Addr)
	return uint64(f.Start), uint64(f.End), known
}

// rulesAt are those of the language that the function at a place is written in.
func rulesAt(table *symbols.Table, at Place) filter.Rules {
	switch {
	case at.Waits:
	case table.GoFunction(at.Addr):
		return filter.GoRules
	case table.RustFunction(at.Addr):
		return filter.RustRules
	}
	return filter.CRules
}

// NoParams is why nothing is known of the parameters at an address, and what to do: err is that of symbols.Table.Params. Where debug files were looked for is
// left out: the package knows its place.
func NoParams(table *symbols.Table, at arch.Addr, err error) error {
	loc, ok := table.Lookup(at)
	if !errors.Is(err, symbols.ErrNoDebugInfo) || !ok {
		return err
	}
	id := "it has no build ID"
	if loc.Symbol.Module.BuildID != "" {
		id = "build ID " + loc.Symbol.Module.BuildID
	}
	return fmt.Errorf("%s has no debug information; install its debug package (%s) or use a build that is not stripped",
		loc.Symbol.Module.Name, id)
}

// Host is how the values that a thread's hit has recorded are made: by the thread's name, and addresses as the kernel's %pS. leads is fetch.Host's.
func Host(table *symbols.Table, comm string, leads func(arch.Addr) arch.Addr) fetch.Host {
	return fetch.Host{
		Comm: comm, Symbolize: func(at arch.Addr) string { return Symbolize(table, at) }, Leads: leads,
		Caller: func(at arch.Addr) string {
			if loc := table.Caller(at); loc.Symbol.Name != "" {
				return loc.String()
			}
			return ""
		},
	}
}

// Symbolize prints an address as the kernel's %pS, name+offset/size. It is empty if there is no symbol.
func Symbolize(table *symbols.Table, at arch.Addr) string {
	loc, ok := table.Lookup(at)
	if !ok || loc.Symbol.Name == "" {
		return ""
	}
	return Symbol(loc)
}

// Symbol is a location as the kernel's %pS, name+offset/size.
func Symbol(loc symbols.Location) string {
	return fmt.Sprintf("%s+%#x/%#x", loc.Symbol.Name, loc.Offset, loc.Symbol.Size)
}
