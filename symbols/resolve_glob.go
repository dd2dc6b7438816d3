package symbols

import "strings"

// resolveGlob answers q if its name is a pattern. It passes over indirect functions whose implementation is not chosen yet.
func (t *Table) resolveGlob(s *snapshot, q query) ([]Location, error) {
	return t.place(s, s.globFunctions(q), q, false)
}

// Unbound lists the indirect functions that a pattern stands for, and that Resolve passes over: nothing has chosen their implementation. In a program that
// is still in its dynamic linker these may be all.
func (t *Table) Unbound(pattern string) (all []Symbol) {
	queries, err := parseSpec(pattern)
	if err != nil {
		return nil
	}
	s := t.snap.Load()
	for _, q := range queries {
		for _, x := range s.globFunctions(q) {
			if sym := x.m.symbol(x.e); sym.IFunc {
				if _, err := t.implementations(s, sym); err != nil {
					all = append(all, sym)
				}
			}
		}
		if len(all) > 0 {
			break
		}
	}
	return all
}

// globFunctions is the functions that q stands for, if its name is a pattern.
func (s *snapshot) globFunctions(q query) (found []match) {
	if q.name == "" || !isGlob(q.name) {
		return nil
	}
	mods, _ := s.modulesNamed(q.module)
	for _, x := range globSymbols(mods, q.name) {
		if x.e.kind == kindFunc || x.e.kind == kindIFunc {
			found = append(found, x)
		}
	}
	return found
}

// globSymbols collects the symbols of mods that match pattern in one of their
// spellings. Parts that the compiler split off (foo.cold) are no functions of
// their own and only match by name.
func globSymbols(mods []*Module, pattern string) []match {
	hint := globHint(pattern)
	found := scan(mods, "glob "+pattern, among{}, func(st *symtab, e *entry) bool {
		if !containsName(st.rawName(e), hint) {
			return false
		}
		name := st.linkage(e)
		return matchesGlob(pattern, name) ||
			isMangled(name) && (matchesGlob(pattern, demangleShort(name)) || matchesGlob(pattern, demangleFull(name)))
	})
	if strings.Contains(pattern, "cold") || strings.Contains(pattern, "warm") {
		return found
	}
	return keep(found, func(x match) bool { return !x.isPart() })
}

// isPart reports whether the symbol is that of a part of a function. Go splits none off, and has functions whose names end so, in a package that looks like the whole.
func (x match) isPart() bool {
	_, suffix := splitClone(x.m.symbols().linkage(x.e))
	return isSplitOff(suffix) && !x.m.hasGo(x.e.value)
}
