package symbols

import "strings"

// resolveGlob answers q if its name is a pattern.
func (t *Table) resolveGlob(s *snapshot, q query) ([]Location, error) {
	if q.name == "" || !isGlob(q.name) {
		return nil, nil
	}
	mods, err := s.modulesFor(q.module)
	if err != nil {
		return nil, nil
	}
	var found []match
	for _, x := range globSymbols(mods, q.name) {
		if x.e.kind == kindFunc || x.e.kind == kindIFunc && t.isBound(s, x) {
			found = append(found, x)
		}
	}
	return t.place(s, found, q)
}

// isBound reports whether an indirect function's implementation is known; a
// pattern passes over the others.
func (t *Table) isBound(s *snapshot, x match) bool {
	_, err := t.implementations(s, x.m.symbol(x.e))
	return err == nil
}

// globSymbols collects the symbols of mods that match pattern in one of their
// spellings. Parts that the compiler split off (foo.cold) are no functions of
// their own and only match by name.
func globSymbols(mods []*Module, pattern string) []match {
	hint := globHint(pattern)
	parts := strings.Contains(pattern, "cold") || strings.Contains(pattern, "warm")
	return scan(mods, func(st *symtab, e *entry) bool {
		if !containsName(st.rawName(e), hint) {
			return false
		}
		name := st.linkage(e)
		_, suffix := splitClone(name)
		// A function of Go may be called warm, in a package that looks like the whole.
		if !parts && isSplitOff(suffix) && (isMangled(name) || suffix != ".warm") {
			return false
		}
		return matchesGlob(pattern, name) ||
			isMangled(name) && (matchesGlob(pattern, demangleShort(name)) || matchesGlob(pattern, demangleFull(name)))
	})
}
