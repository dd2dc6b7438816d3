package symbols

import (
	"bytes"
	"sort"

	"github.com/gokprobe/gokprobe/arch"
)

// Lookup returns the symbol that covers a. ok is false if a is in no module. If the module has
// no symbol there, the location has the Module but no Name. Lookup costs two binary searches,
// so it can be called for every hit and stack frame. It does not fill in File and Line.
func (t *Table) Lookup(a arch.Addr) (Location, bool) {
	s := t.snap.Load()
	m := s.module(a)
	if m == nil {
		return Location{Addr: a}, false
	}
	if m.img == nil {
		return Location{Addr: a, Symbol: Symbol{Module: m}}, true
	}
	if e := m.symbols().find(m.link(a)); e != nil {
		sym := m.named(e)
		return Location{Symbol: sym, Addr: a, Offset: uint64(a - sym.Addr)}, true
	}
	if sym, ok := t.implAt(s, m, a); ok {
		return Location{Symbol: sym, Addr: a, Offset: uint64(a - sym.Addr)}, true
	}
	if r, ok := m.frameRange(a); ok {
		sym := Symbol{Module: m, Addr: r.Start, Size: r.Len(), Func: true, Source: SourceFrames}
		return Location{Symbol: sym, Addr: a, Offset: uint64(a - r.Start)}, true
	}
	return Location{Addr: a, Symbol: Symbol{Module: m}}, true
}

// named is symbol with its demangled name kept for the next time.
func (m *Module) named(e *entry) Symbol {
	if v, ok := m.names.Load(e); ok {
		return v.(Symbol)
	}
	sym := m.symbol(e)
	if !m.img.isCommon && m.img.f.kept.Take(sym.cost(), "names of symbols") == nil { // else it would be taken for each process
		m.names.Store(e, sym)
	}
	return sym
}

// Function returns the bounds of the function that contains a: by symbol size,
// by call-frame information where that is missing. known is false if neither
// covers a.
func (t *Table) Function(a arch.Addr) (r arch.Range, known bool) {
	m := t.module(a)
	if m == nil || m.img == nil {
		return arch.Range{}, false
	}
	e := m.symbols().find(m.link(a))
	if e != nil && e.size > 0 {
		return arch.Range{Start: m.addr(e.value), End: m.addr(e.value + e.size)}, true
	}
	return m.frameRange(a)
}

// Symbols lists the functions and variables that match a glob pattern (see
// Resolve; empty for all), by address. Of several names at one address all that
// match are listed. A pattern module:glob lists one module.
func (t *Table) Symbols(pattern string) []Symbol {
	if pattern == "" {
		pattern = "*"
	}
	s := t.snap.Load()
	mods := s.named
	if m, rest, ok := cutModule(pattern); ok {
		if only, _ := s.modulesNamed(m); len(only) > 0 {
			mods, pattern = only, rest
		}
	}
	var out []Symbol
	type key struct {
		addr arch.Addr
		name string
	}
	seen := map[key]bool{}
	names := gather()
	defer names.close()
	for _, m := range mods {
		st := m.symbols()
		for i := range st.entries {
			e := &st.entries[i]
			if !matchesPattern(st, e, pattern) {
				continue
			}
			sym := m.symbol(e)
			if err := names.add(sym); err != nil {
				_ = m.img.f.refuse(err) // the rest is not listed
				break
			}
			if k := (key{sym.Addr, sym.Linkage}); !seen[k] {
				seen[k] = true
				out = append(out, sym)
			}
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Addr < out[j].Addr })
	return out
}

// HasPrefix tells whether a symbol's name begins so in the object file. It demangles
// nothing, so it costs little where Symbols costs much: among the names of C++.
func (t *Table) HasPrefix(prefix string) bool {
	for _, m := range t.snap.Load().named {
		st := m.symbols()
		for i := range st.entries {
			if e := &st.entries[i]; bytes.HasPrefix(st.rawName(e), []byte(prefix)) {
				return true
			}
		}
	}
	return false
}

func matchesPattern(st *symtab, e *entry, pattern string) bool {
	name := st.linkage(e)
	if matchesGlob(pattern, name) {
		return true
	}
	return isMangled(name) && (matchesGlob(pattern, demangleShort(name)) || matchesGlob(pattern, demangleFull(name)))
}

// Object returns the variable of a name, module:name or plain. It returns
// ErrUnknownSymbol if no module has one, ErrAmbiguous if several differ.
func (t *Table) Object(name string) (Symbol, error) {
	s := t.snap.Load()
	queries, err := parseSpec(name)
	if err != nil {
		return Symbol{}, err
	}
	for _, q := range queries {
		mods, _ := s.modulesNamed(q.module)
		if q.name == "" {
			continue
		}
		found := findName(mods, q.name)
		var objects []match
		for _, x := range found {
			if !x.e.isCode() {
				objects = append(objects, x)
			}
		}
		if len(objects) == 0 {
			continue
		}
		if objects = interposed(objects); len(objects) > 1 {
			return Symbol{}, &AmbiguousError{Spec: name, Candidates: t.locate(objects, name)}
		}
		return objects[0].m.symbol(objects[0].e), nil
	}
	return Symbol{}, t.unknown(s, queries, true)
}
