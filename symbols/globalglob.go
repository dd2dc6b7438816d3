package symbols

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// mostGlobs is how many variables a pattern may stand for.
const mostGlobs = 64

// Globals lists the variables outside of functions that a name means in the function at a, as Global has it, or, for a pattern as those of Resolve, all of
// the function's file whose names match it, by name: but for those that Global does not find, as where static ones have the same name. The error is that of Global.
func (t *Table) Globals(a arch.Addr, pattern string) ([]Param, error) {
	if !strings.ContainsAny(pattern, "*?[") {
		p, err := t.Global(a, pattern)
		p.Name = pattern
		return []Param{p}, err
	}
	names, err := t.globalNames(a, pattern)
	if err != nil {
		return nil, err
	}
	var all []Param
	for _, name := range names {
		if p, err := t.Global(a, name); err == nil {
			p.Name = name
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil, ErrNoGlobal
	}
	return all, nil
}

// globalNames lists the full names in the file of the function at a which match a pattern, as the source writes them.
func (t *Table) globalNames(a arch.Addr, pattern string) (names []string, err error) {
	m := t.module(a)
	if m == nil {
		return nil, errNotMapped(a)
	}
	if m.img == nil {
		return nil, fmt.Errorf("%w: %w", ErrNoGlobal, m.Err)
	}
	d, err := m.img.dwarfOf(t)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoGlobal, err)
	}
	seen := map[string]bool{}
	for _, alike := range d.globalIndex().byName {
		for _, x := range alike {
			e := d.entryAt(x.off)
			if e == nil {
				continue
			}
			full, _ := globalName(d.origins(e), x.space)
			if full = plainScope(full); !seen[full] && matchesGlob(pattern, full) {
				seen[full] = true
				names = append(names, full)
			}
			if len(names) > mostGlobs {
				return nil, fmt.Errorf("%w that is meant: more than %d match", ErrNoGlobal, mostGlobs)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}
