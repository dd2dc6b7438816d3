package symbols

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
)

// A program that is executed has mostly files that other programs had before, and thousands of probes may be looked for in each. So the usual question, the
// one function of a plain name in one module, is answered without searching (Place), and what a pattern stands for need not be listed again where it can't be
// anything else (Likeness).

// Place is where Find finds the one function that spec means, if that is quickly told: spec is a linkage name with a module, as in libc.so.6:write. ok is
// false if that is not so, or if the function is an indirect one; then Find knows more. Place waits for symbols that were not read yet, but reads nothing after IndexNames.
func (t *Table) Place(spec string) (at arch.Addr, ok bool) {
	mk := new(Mark)
	if m, _ := t.marked(spec, mk); m != nil && !mk.indirect {
		return m.addr(mk.value), true
	}
	return 0, false
}

// Mark is what a specification was found to mean last. Where the same file is searched again it is found there. It is for one goroutine at a time.
type Mark struct {
	spec         string
	module, name string
	simple       bool

	symbols  uint64 // which symbol table it was; 0 for none
	value    uint64 // link-time address
	indirect bool
}

// PlaceAgain is Place for who looks for spec in one program after the other, with the same Mark. It also tells which implementation an indirect function has.
func (t *Table) PlaceAgain(spec string, mk *Mark) (at arch.Addr, ok bool) {
	m, s := t.marked(spec, mk)
	switch {
	case m == nil:
		return 0, false
	case !mk.indirect:
		return m.addr(mk.value), true
	}
	if all := s.bound(m, mk.value, t.readWord); len(all) == 1 { // the process has chosen it, so no mark tells
		return all[0].at, true
	}
	return 0, false
}

// marked is the module in which mk says where the one function is that spec means; nil if that can't be told.
func (t *Table) marked(spec string, mk *Mark) (*Module, *snapshot) {
	if mk.read(spec); !mk.simple || t.pid == 0 {
		return nil, nil
	}
	s := t.snap.Load()
	m := s.sole(mk.module)
	if m == nil || s.hasNamed(spec) {
		return nil, nil
	}
	if st := m.symbols(); mk.symbols == 0 || st.id != mk.symbols {
		e := st.sole(mk.name)
		if e == nil {
			return nil, nil
		}
		mk.symbols, mk.value, mk.indirect = st.id, e.value, e.kind == kindIFunc
	}
	return m, s
}

// read cuts spec, unless it was cut before.
func (mk *Mark) read(spec string) {
	if mk.spec != spec || spec == "" {
		*mk = Mark{spec: spec}
		mk.module, mk.name, mk.simple = cutSimple(spec)
	}
}

// Library is Library of a specification that is asked for again and again.
func (mk *Mark) Library(spec string) string {
	if mk.read(spec); !mk.simple {
		return Library(spec)
	}
	if strings.Contains(mk.module, ".so") {
		return mk.module
	}
	return ""
}

// cutSimple cuts a specification into module and name that parseSpec reads in two ways only: so, and as one name.
func cutSimple(spec string) (module, name string, ok bool) {
	module, name, ok = cutModule(spec)
	if !ok || isHexPrefixed(spec) || strings.HasPrefix(module, " ") || strings.HasPrefix(module, "/") || name[0] >= '0' && name[0] <= '9' {
		return "", "", false
	}
	for i := range len(module) {
		if c := module[i]; c < ' ' || c >= 0x7f || c == '+' {
			return "", "", false
		}
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c == '_', c == '.', c == '$', c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		default:
			return "", "", false
		}
	}
	return module, name, true
}

// asked keeps what a snapshot was asked again and again.
type asked struct {
	mu    sync.Mutex
	soles map[string]*Module

	once   sync.Once
	colons []*symtab // see withColons
}

// sole is the one module that a name stands for, nil if there is none, or several. It is for names that are no paths: what these lead to may change.
func (s *snapshot) sole(name string) *Module {
	const most = 64
	s.asked.mu.Lock()
	defer s.asked.mu.Unlock()
	m, known := s.asked.soles[name]
	if known {
		return m
	}
	if found, _ := s.modulesNamed(name); len(found) == 1 && found[0].img != nil {
		m = found[0]
	}
	if s.asked.soles == nil || len(s.asked.soles) >= most {
		s.asked.soles = map[string]*Module{}
	}
	s.asked.soles[name] = m
	return m
}

// hasNamed tells that a file has a symbol whose linkage name is this one, which holds a colon.
func (s *snapshot) hasNamed(name string) bool {
	for _, st := range s.withColons() {
		some := false
		if st.eachNamed(name, func(*entry) { some = true }); some {
			return true
		}
	}
	return false
}

// withColons lists the symbol tables that have such names.
func (s *snapshot) withColons() []*symtab {
	s.asked.once.Do(func() {
		for _, m := range s.named {
			if st := m.symbols(); st.hasColons() {
				s.asked.colons = append(s.asked.colons, st)
			}
		}
	})
	return s.asked.colons
}

// hasColons tells that some names hold colons, which few files have.
func (s *symtab) hasColons() bool {
	s.colonOnce.Do(func() {
		for _, b := range s.blobs {
			if bytes.IndexByte(b.str, ':') >= 0 { // that may be something else than a name
				s.colons = s.anyEntry(func(e *entry) bool { return bytes.IndexByte(untilNUL(s.rawName(e)), ':') >= 0 }) != nil
				return
			}
		}
	})
	return s.colons
}

// sole is the entry of the one function that a linkage name means, as resolveExact finds it in one module; nil if there is none, or if that takes more to tell.
func (s *symtab) sole(name string) *entry {
	var one *entry
	several := false
	s.eachNamed(name, func(e *entry) {
		switch {
		case one == nil:
			one = e
		case e.value != one.value:
			several = true
		case e.isExported && !one.isExported: // as in a collection
			one = e
		}
	})
	if several || one == nil || !one.isCode() {
		return nil
	}
	return one
}

// Likeness is what the answer to a pattern depends on, but for where files are mapped. It is comparable.
type Likeness struct {
	symbols uint64 // which symbol table it is
	name    string
	kind    Kind
	bound   [sha256.Size]byte // of the implementations of indirect functions
}

// Likeness tells when a pattern of a library's functions, as in libc.so.6:mem*, stands for the same ones again: where it is equal in two Tables Resolve and Unbound give the same
// names, in the same order, at the same places in the files, and the names with the files' base names in front mean the same. ok is false if that can't be told.
func (t *Table) Likeness(pattern string) (like Likeness, ok bool) {
	module, name, ok := cutModule(pattern)
	if !ok || t.pid == 0 || !strings.Contains(module, ".so") || !isPlainGlob(name) || strings.ContainsAny(module, " /+\\%") || isHexPrefixed(pattern) {
		return like, false
	}
	s := t.snap.Load()
	m := s.sole(module)
	if m == nil || s.sole(m.Name) != m || s.mayHaveNamed(module) || s.mayHaveNamed(m.Name) {
		return like, false
	}
	st := m.symbols()
	like = Likeness{symbols: st.id, name: m.Name, kind: m.Kind}
	like.bound, ok = t.allBound(s, m)
	return like, ok
}

// isPlainGlob tells that a pattern has no marks of an offset, of a language's own spellings or of another module.
func isPlainGlob(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c == '_', c == '*', c == '?', c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		default:
			return false
		}
	}
	return isGlob(name) && !strings.Contains(name, "operator")
}

// mayHaveNamed tells that some symbol of some file may be spelt with a text, or, in Rust's older way, with its dots escaped: so that a pattern which begins with the text
// might mean that symbol.
func (s *snapshot) mayHaveNamed(text string) bool {
	return slices.ContainsFunc(s.named, func(m *Module) bool { return m.symbols().mayHaveNamed(text) })
}

func (s *symtab) mayHaveNamed(text string) bool {
	sought, dot := []byte(text), []byte("$u2e$")
	return len(s.answers.to("spelt with "+text, func() []int32 {
		return s.anyEntry(func(e *entry) bool {
			raw := untilNUL(s.rawName(e))
			return bytes.Contains(raw, sought) || bytes.Contains(raw, dot) || bytes.IndexByte(raw, '%') >= 0 && strings.Contains(s.linkage(e), text)
		})
	})) > 0
}

// anyEntry is one of the entries that match; none if there is none.
func (s *symtab) anyEntry(matches func(*entry) bool) []int32 {
	for i := range s.entries {
		if matches(&s.entries[i]) {
			return []int32{int32(i)}
		}
	}
	return nil
}
