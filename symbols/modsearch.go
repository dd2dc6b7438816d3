package symbols

import (
	"strings"
)

// modulesFor returns the modules that a base name or a path stands for, all of
// them for the empty name. Without an exact match a name that ends before a dot
// or dash fits (libc for libc.so.6), if it fits only one module.
func (s *snapshot) modulesFor(name string) ([]*Module, error) {
	if name == "" {
		return s.named, nil
	}
	var exact, prefix []*Module
	for _, m := range s.named {
		switch {
		case m.Name == name || m.Path == name || m.Kind == KindVDSO && (name == "vdso" || name == "linux-vdso.so.1"):
			exact = append(exact, m)
		case len(m.Name) > len(name) && strings.HasPrefix(m.Name, name) && strings.IndexByte(".-", m.Name[len(name)]) >= 0:
			prefix = append(prefix, m)
		}
	}
	if len(exact) > 0 {
		return exact, nil
	}
	if len(prefix) == 1 {
		return prefix, nil
	}
	if len(prefix) > 1 {
		return nil, errNear(ErrUnknownModule, name, "", moduleNames(prefix))
	}
	return nil, errNear(ErrUnknownModule, name, "", nearest(name, func(yield func(string) bool) {
		for _, m := range s.modules {
			if !yield(m.Name) {
				return
			}
		}
	}))
}

func moduleNames(mods []*Module) []string {
	var out []string
	for _, m := range mods {
		out = append(out, m.Name)
	}
	return out
}

// unknown is the error for a specification that names nothing, about its most
// plausible reading.
func (t *Table) unknown(s *snapshot, queries []query) error {
	q := queries[len(queries)-1]
	where := q.module
	mods, err := s.modulesFor(q.module)
	if err != nil {
		return err
	}
	if q.module != "" {
		where = mods[0].Name
	}
	if isGlob(q.name) {
		return errNear(ErrUnknownSymbol, q.name, where, nil)
	}
	return errNear(ErrUnknownSymbol, q.name, where, nearSymbols(mods, q.name))
}
