package symbols

import (
	"bytes"
	"cmp"
	"fmt"
	"sort"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// resolve is Resolve without a context. With explain an error suggests names that exist.
func (t *Table) resolve(spec string, explain bool) ([]Location, error) {
	queries, err := parseSpec(spec)
	if err != nil {
		return nil, err
	}
	s := t.snap.Load()
	if q := queries[0]; q.addr != 0 && q.module == "" {
		return t.resolveAddr(s, q.addr)
	} else if q.file != "" {
		return t.resolveLine(s, q)
	}
	for _, find := range []finder{findLinkage, findSpelling} { // the former is quick, so first for all queries
		for _, q := range queries {
			locs, err := t.resolveExact(s, q, spec, find)
			if err != nil || len(locs) > 0 {
				return locs, err
			}
		}
	}
	for _, q := range queries {
		if locs, err := t.resolveGlob(s, q); err != nil || len(locs) > 0 {
			return locs, err
		}
	}
	return nil, t.unknown(s, queries, explain)
}

// resolveAddr answers an absolute address. Executable memory of no module (a
// just-in-time compiler's) is allowed; its location has no symbol.
func (t *Table) resolveAddr(s *snapshot, a arch.Addr) ([]Location, error) {
	if s.module(a) != nil {
		loc, _ := t.Lookup(a)
		return []Location{loc}, nil
	}
	if t.pid == 0 {
		return nil, errNotMapped(a)
	}
	maps, err := t.maps()
	if err != nil {
		return nil, fmt.Errorf("read the mappings of process %d: %w", t.pid, err)
	}
	for _, mp := range maps {
		switch {
		case !mp.Range.Contains(a):
		case mp.Exec:
			return []Location{{Addr: a}}, nil
		default:
			return nil, fmt.Errorf("%w: %s is in %s of %s", ErrNotExecutable, a, mp.Range, cmp.Or(mp.Path, "anonymous memory"))
		}
	}
	return nil, errNotMapped(a)
}

// match is one symbol that a name stands for.
type match struct {
	m *Module
	e *entry
}

func (x match) addr() arch.Addr { return x.m.addr(x.e.value) }

// resolveExact answers q if find knows its name, taken literally.
func (t *Table) resolveExact(s *snapshot, q query, spec string, find finder) ([]Location, error) {
	mods, _ := s.modulesNamed(q.module)
	if len(mods) == 0 {
		return nil, nil // not a module: the colon may belong to the name
	}
	if q.addr != 0 {
		return t.resolveAddr(s, mods[0].addr(uint64(q.addr)))
	}
	found, many := find(mods, q.name)
	if len(found) == 0 {
		return nil, nil
	}
	code := onlyCode(found)
	if len(code) == 0 {
		x := found[0]
		return nil, fmt.Errorf("%w: %s is a variable at %s in %s", ErrNotCode, q.name, x.addr(), x.m.Name)
	}
	code = interposed(code)
	if !many {
		code = written(code)
	}
	if len(code) > 1 && !many {
		return nil, &AmbiguousError{Spec: spec, Candidates: t.locate(code, q.name)}
	}
	return t.place(s, code, q, true)
}

// place turns matches into locations, as the offset and every of q say. An indirect function without an implementation is
// an error if indirect says so, else it is passed over. It asks once: while the dynamic linker works, a second answer may be another one.
func (t *Table) place(s *snapshot, found []match, q query, indirect bool) ([]Location, error) {
	var out []Location
	names := gather()
	defer names.close()
	for _, x := range found {
		sym := x.m.symbol(x.e)
		if err := names.add(sym); err != nil {
			return nil, err
		}
		if matchesName(sym.Linkage, q.name) && !isMangled(sym.Linkage) {
			sym.Name = q.name
		}
		syms := []Symbol{sym}
		if sym.IFunc {
			var err error
			if syms, err = t.implementations(s, sym); err != nil && indirect {
				return nil, err
			}
		}
		for _, sym := range syms {
			loc, err := t.shift(sym, q)
			if err != nil {
				return nil, err
			}
			out = append(out, loc)
		}
	}
	return dedupe(out), nil
}

func matchesName(linkage, name string) bool { return linkage == name }

// shift applies q's offset or every to sym.
func (t *Table) shift(sym Symbol, q query) (Location, error) {
	loc := Location{Symbol: sym, Addr: sym.Addr + arch.Addr(q.offset), Offset: q.offset}
	if !q.isEvery && q.offset == 0 {
		return loc, nil
	}
	r, known := t.Function(sym.Addr)
	if q.isEvery {
		if !known {
			return loc, fmt.Errorf("%w: %s in %s", ErrUnknownSize, sym.Name, sym.Module.Name)
		}
		loc.Every = r
	}
	if q.offset != 0 && !sym.Module.containsCode(loc.Addr) {
		return loc, fmt.Errorf("%s+%#x: %w", sym.Name, q.offset, errNotMapped(loc.Addr))
	}
	if q.offset != 0 && known && !r.Contains(loc.Addr) {
		return loc, fmt.Errorf("%w: %s+%#x lies behind the function's end, its size is %#x",
			ErrBadSpec, sym.Name, q.offset, r.Len())
	}
	return loc, nil
}

// A finder searches mods for a literal name. many says that the spelling means all of
// the matches.
type finder func(mods []*Module, name string) (found []match, many bool)

// findName tries one finder after the other.
func findName(mods []*Module, name string) []match {
	if found, _ := findLinkage(mods, name); len(found) > 0 {
		return found
	}
	found, _ := findSpelling(mods, name)
	return found
}

// findLinkage searches for a linkage name.
func findLinkage(mods []*Module, name string) (found []match, many bool) {
	c := collection{seen: map[arch.Addr]int{}}
	for _, m := range mods {
		m.symbols().eachNamed(name, func(e *entry) { c.add(m, e) })
	}
	return c.found, false
}

// findSpelling searches for other spellings than the linkage name. The kinds are tried one
// after the other: Go's generic form, demangled, and what findLoose allows.
func findSpelling(mods []*Module, name string) (found []match, many bool) {
	if strings.Contains(name, "[...]") {
		hint := []byte(name[:strings.Index(name, "[...]")+1])
		found = scan(mods, "generic "+name, among{marked, string(hint)}, func(st *symtab, e *entry) bool {
			return bytes.HasPrefix(st.rawName(e), hint) && goGeneric(st.linkage(e)) == name
		})
		return found, true
	}
	if i := strings.LastIndexByte(name, '/'); i >= 0 { // Go escapes dots in the last path element
		hint := []byte(name[:i+1])
		found = scan(mods, "escaped "+name, among{marked, string(hint)}, func(st *symtab, e *entry) bool {
			return bytes.HasPrefix(st.rawName(e), hint) && st.linkage(e) == name
		})
		if len(found) > 0 {
			return found, false
		}
	}
	if !isGlob(name) || strings.Contains(name, "operator") {
		if found = findDemangled(mods, name); len(found) > 0 {
			return found, false
		}
	}
	return findLoose(mods, name), false
}

// findLoose searches for functions whose names are longer than name: copies that the compiler
// has made of a function (foo.part.0), Go assembly, and Go names of which name has only the last
// element of the import path (http.ListenAndServe).
func findLoose(mods []*Module, name string) []match {
	short, copied := "/"+name, []byte(name+".")
	where := among{kind: marked}
	if !strings.Contains(name, ".") {
		where.prefix = string(copied)
	}
	found := scan(mods, "loose "+name, where, func(st *symtab, e *entry) bool {
		raw := st.rawName(e)
		if !bytes.HasPrefix(raw, copied) {
			return strings.Contains(name, ".") && containsName(raw, short) &&
				strings.HasSuffix(strings.TrimSuffix(st.linkage(e), goABI0), short)
		}
		link := st.linkage(e)
		base, suffix := splitClone(link)
		return link == name+goABI0 || base == name && suffix != "" && !isSplitOff(suffix)
	})
	proper := keep(found, func(x match) bool { return !strings.HasSuffix(x.m.symbols().linkage(x.e), goABI0) })
	if len(proper) > 0 {
		return proper
	}
	return found
}

// goABI0 ends the linkage name of a Go assembly function that also has a wrapper.
const goABI0 = ".abi0"

// findDemangled searches for a readable C++ or Rust name. Copies that the
// compiler made count where the function itself is gone.
func findDemangled(mods []*Module, name string) []match {
	if _, _, ok := cutModule(name); ok {
		return nil // no such name has a single colon there
	}
	squeezed, hint := squeeze(name), mangledHint(name)
	found := scan(mods, "demangled "+name, among{kind: mangled}, func(st *symtab, e *entry) bool {
		raw := st.rawName(e)
		if !hasSpelling(raw, mangled) || !containsName(raw, hint) {
			return false
		}
		base, suffix := splitClone(st.linkage(e))
		return !isSplitOff(suffix) && matchesMangled(base, squeezed)
	})
	whole := keep(found, func(x match) bool {
		_, suffix := splitClone(x.m.symbols().linkage(x.e))
		return suffix == ""
	})
	if len(whole) > 0 {
		return whole
	}
	return found
}

// containsName reports whether the NUL-terminated name that starts raw holds
// hint. The terminator is searched first: raw goes on to the table's end.
func containsName(raw []byte, hint string) bool {
	end := bytes.IndexByte(raw, 0)
	return end >= 0 && strings.Contains(string(raw[:end]), hint)
}

// scan collects the symbols that match, which are among those that where tells, one for each address. question tells which these are.
func scan(mods []*Module, question string, where among, matches func(*symtab, *entry) bool) []match {
	c := collection{seen: map[arch.Addr]int{}}
	for _, m := range mods {
		st := m.symbols()
		for _, i := range st.searched(question, where, matches) {
			c.add(m, &st.entries[i])
		}
	}
	return c.found
}

// collection is symbols, one for each address.
type collection struct {
	found []match
	seen  map[arch.Addr]int
}

func (c *collection) add(m *Module, e *entry) {
	a := m.addr(e.value)
	if j, dup := c.seen[a]; dup {
		// .symtab and .dynsym both have it; the latter tells that it is exported.
		if e.isExported && !c.found[j].e.isExported {
			c.found[j].e = e
		}
		return
	}
	c.seen[a] = len(c.found)
	c.found = append(c.found, match{m, e})
}

func onlyCode(found []match) []match {
	return keep(found, func(x match) bool { return x.e.isCode() })
}

func keep(found []match, ok func(match) bool) []match {
	var out []match
	for _, x := range found {
		if ok(x) {
			out = append(out, x)
		}
	}
	return out
}

// interposed reduces several functions of one name to the one that calls by
// this name reach: if all of them are exported, the first in the dynamic
// linker's search order. The interpreter's and the vdso's own copies do not
// count where a library has one, nor superseded versions of one name.
func interposed(found []match) []match {
	own := keep(found, func(x match) bool { return x.m.Kind != KindInterpreter && x.m.Kind != KindVDSO })
	if len(own) == 0 {
		own = found
	}
	if current := keep(own, func(x match) bool { return !x.e.isOld }); len(current) > 0 {
		own = current
	}
	for _, x := range own {
		if !x.e.isExported {
			return own
		}
		if x.m == own[0].m && x.e != own[0].e {
			return own
		}
	}
	return own[:1]
}

// locate describes matches for an error's list of candidates.
func (t *Table) locate(found []match, name string) []Location {
	var out []Location
	names := gather()
	defer names.close()
	for _, x := range found {
		sym := x.m.symbol(x.e)
		if names.add(sym) != nil {
			break // there are more of them than anybody reads
		}
		loc := Location{Symbol: sym, Addr: sym.Addr}
		if len(found) <= maxListed {
			loc.File, loc.Line, _ = t.Line(sym.Addr)
		}
		out = append(out, loc)
	}
	return dedupe(out)
}

// dedupe sorts by address and drops repetitions.
func dedupe(locs []Location) []Location {
	sort.SliceStable(locs, func(i, j int) bool { return locs[i].Addr < locs[j].Addr })
	n := 0
	for i, l := range locs {
		if i > 0 && l.Addr == locs[n-1].Addr {
			continue
		}
		locs[n] = l
		n++
	}
	return locs[:n]
}
