package symbols

import (
	"context"
	"path"
	"slices"
)

// mostSources bounds Sources: a base name such as main.c may be that of many files.
const mostSources = 1000

// Sources lists the source files of a base name that the process was built from, each path as debug information has it: absolute most often, but it may
// be of another machine, or relative. If ctx is done first, the error is ctx.Err(), at once.
func (t *Table) Sources(ctx context.Context, base string) ([]string, error) {
	got := make(chan []string, 1)
	if err := t.Aside(ctx, func() { got <- t.sources(base) }); err != nil {
		return nil, err
	}
	return <-got, nil
}

func (t *Table) sources(base string) []string {
	seen := map[string]bool{}
	add := func(file string) {
		if len(seen) < mostSources && path.Base(file) == base {
			seen[file] = true
		}
	}
	for _, m := range t.Modules() {
		if m.img == nil {
			continue
		}
		d, err := m.img.dwarfOf(t)
		if err != nil {
			if g := m.img.golang(); g != nil {
				g.lines(-1, func(file string) bool { add(file); return false }, nil)
			}
			continue
		}
		for _, u := range d.units {
			if lt := d.lineTable(u); lt != nil {
				for _, name := range lt.names {
					add(name)
				}
			}
		}
	}
	all := make([]string, 0, len(seen))
	for file := range seen {
		all = append(all, file)
	}
	slices.Sort(all)
	return all
}
