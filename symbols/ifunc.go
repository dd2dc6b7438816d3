package symbols

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
)

// ifuncCache names the implementations of indirect functions: a stripped libc
// has no symbol at the code that strlen stands for.
type ifuncCache struct {
	mu   sync.Mutex
	impl map[arch.Addr]Symbol // by start of the implementation
	done map[*Module]bool
}

// implementations returns what the indirect function sym was bound to, judged
// by the slots that the dynamic linker filled: its resolver never runs for us.
// It returns ErrIFuncUnbound if no slot is filled yet.
func (t *Table) implementations(s *snapshot, sym Symbol) ([]Symbol, error) {
	if t.pid == 0 {
		return nil, fmt.Errorf("%w: %s is an indirect function and %s is not running",
			ErrIFuncUnbound, sym.Name, sym.Module.Name)
	}
	var out []Symbol
	for _, x := range s.bound(sym.Module, sym.Module.link(sym.Addr), t.readWord) {
		out = append(out, t.implementation(sym, x.in, x.at))
	}
	if len(out) == 0 {
		return nil, unboundError{sym}
	}
	return out, nil
}

// chosen is an implementation of an indirect function.
type chosen struct {
	in *Module
	at arch.Addr
}

// bound lists the implementations of m's indirect function at a link-time address, as read tells what is in the slots.
func (s *snapshot) bound(m *Module, value uint64, read func(arch.Addr) (uint64, bool)) (all []chosen) {
	for _, slot := range s.slotsOf(m, value) {
		v, ok := read(slot)
		a := arch.Addr(v)
		if !ok || a == m.addr(value) || !s.isImplementation(m, a) || slices.ContainsFunc(all, func(x chosen) bool { return x.at == a }) {
			continue
		}
		all = append(all, chosen{s.module(a), a})
	}
	return all
}

// allBound tells which implementations m's indirect functions have, in terms of the files. ok is false if that can't be told.
func (t *Table) allBound(s *snapshot, m *Module) (said [sha256.Size]byte, ok bool) {
	words := pages{t: t}
	var all []byte
	for _, f := range m.symbols().indirects() {
		for _, x := range s.bound(m, f.value, words.word) {
			if x.in != m && (s.sole(x.in.Name) != x.in || s.mayHaveNamed(x.in.Name)) {
				return said, false
			}
			all = binary.LittleEndian.AppendUint64(all, x.in.symbols().id)
			all = binary.LittleEndian.AppendUint64(all, x.in.link(x.at))
		}
		all = binary.LittleEndian.AppendUint64(all, 0) // which no symbol table has
	}
	return sha256.Sum256(all), true
}

// pages reads many words that lie together. The file says where, so not more than mostPages are kept.
type pages struct {
	t    *Table
	read map[arch.Addr][]byte // nil what can't be read
}

const mostPages = 64

func (p *pages) word(a arch.Addr) (uint64, bool) {
	page := a &^ (pageSize - 1)
	if a-page > pageSize-8 || p.t.mem == nil {
		return p.t.readWord(a)
	}
	b, known := p.read[page]
	if !known {
		if p.read == nil || len(p.read) >= mostPages {
			p.read = map[arch.Addr][]byte{}
		}
		if b = make([]byte, pageSize); p.t.mem.ReadMemory(page, b) != nil {
			b = nil
		}
		p.read[page] = b
	}
	if b == nil {
		return p.t.readWord(a)
	}
	return binary.LittleEndian.Uint64(b[a-page:]), true
}

// implementation is the code at a under the name of the indirect function sym.
func (t *Table) implementation(sym Symbol, m *Module, a arch.Addr) Symbol {
	impl := Symbol{Name: sym.Name, Linkage: sym.Linkage, Addr: a, Module: m, Func: true, Source: sym.Source}
	if e := m.symbols().find(m.link(a)); e != nil && m.addr(e.value) == a {
		impl.Linkage, impl.Size, impl.Source = m.symbols().linkage(e), e.size, m.symbol(e).Source
	} else if r, ok := m.frameRange(a); ok && r.Start == a {
		impl.Size = r.Len()
	}
	return impl
}

// slotsOf lists the words that the dynamic linker sets to the implementation of m's indirect function at a link-time address:
// its own module's IRELATIVE slots and every module's slots for the name.
func (s *snapshot) slotsOf(m *Module, value uint64) []arch.Addr {
	var out []arch.Addr
	for _, off := range m.img.bindings().irelative[value] {
		out = append(out, m.addr(off))
	}
	names := m.symbols().namesOf(value)
	for _, x := range s.modules {
		if x.img == nil {
			continue
		}
		slots := x.img.bindings().byName
		for _, n := range names {
			for _, off := range slots[n] {
				out = append(out, x.addr(off))
			}
		}
	}
	return out
}

// indirect is an indirect function: its link-time address, and all names that code has there.
type indirect struct {
	value uint64
	names []string
}

// indirects lists the indirect functions of a file, one for each address.
func (s *symtab) indirects() []indirect {
	s.indirectOnce.Do(func() {
		s.indirectAt = map[uint64]int32{}
		for i := range s.entries {
			e := &s.entries[i]
			if _, known := s.indirectAt[e.value]; e.kind == kindIFunc && !known {
				s.indirectAt[e.value] = int32(len(s.indirect))
				s.indirect = append(s.indirect, indirect{value: e.value})
			}
		}
		if len(s.indirect) == 0 {
			return
		}
		for i := range s.entries {
			if e := &s.entries[i]; e.isCode() {
				if j, ok := s.indirectAt[e.value]; ok {
					s.indirect[j].names = append(s.indirect[j].names, s.linkage(e))
				}
			}
		}
	})
	return s.indirect
}

// namesOf are all names of the indirect function at a link-time address.
func (s *symtab) namesOf(value uint64) []string {
	all := s.indirects()
	if i, ok := s.indirectAt[value]; ok {
		return all[i].names
	}
	return nil
}

// isImplementation reports whether a slot's value is a function of m, or of the
// vdso, rather than an address still to be relocated, another module's function
// of the same name, or the linkage table's stub of a slot not yet bound.
func (s *snapshot) isImplementation(m *Module, a arch.Addr) bool {
	x := s.module(a)
	if x == nil || x.img == nil || x != m && x.Kind != KindVDSO {
		return false
	}
	return !x.isInPLT(a)
}

// isInPLT reports whether a lies in one of m's procedure linkage tables.
func (m *Module) isInPLT(a arch.Addr) bool {
	v := m.link(a)
	for _, s := range m.img.f.Sections {
		if strings.HasPrefix(s.Name, ".plt") || strings.HasPrefix(s.Name, ".iplt") {
			if v >= s.Addr && v-s.Addr < s.Size {
				return true
			}
		}
	}
	return false
}

// unboundError is the error for an indirect function without a chosen implementation. It names the
// candidates, if symbols tell them.
type unboundError struct{ sym Symbol }

func (unboundError) Unwrap() error { return ErrIFuncUnbound }

// Error looks for the candidates, which takes long: most of these errors nobody reads.
func (u unboundError) Error() string {
	sym := u.sym
	st := sym.Module.symbols()
	prefix := "__" + strings.TrimLeft(sym.Name, "_") + "_"
	var names []string
	for i := range st.entries {
		e := &st.entries[i]
		if e.kind != kindFunc || len(names) == maxListed {
			continue
		}
		if n := st.linkage(e); strings.HasPrefix(n, prefix) {
			names = append(names, n)
		}
	}
	said := fmt.Sprintf("%v: the dynamic linker has not bound %s of %s, nothing called it so far", ErrIFuncUnbound, sym.Name, sym.Module.Name)
	if len(names) > 0 {
		said += "; candidates: " + strings.Join(names, ", ")
	}
	return said
}

// implAt returns the indirect function of m whose implementation contains a. It
// asks for all of m's indirect functions once.
func (t *Table) implAt(s *snapshot, m *Module, a arch.Addr) (Symbol, bool) {
	r, ok := m.frameRange(a)
	if !ok {
		return Symbol{}, false
	}
	s.ifuncs.mu.Lock()
	defer s.ifuncs.mu.Unlock()
	if !s.ifuncs.done[m] {
		t.collectImpls(s, m)
	}
	sym, ok := s.ifuncs.impl[r.Start]
	return sym, ok
}

// collectImpls fills the cache for m; its lock is held.
func (t *Table) collectImpls(s *snapshot, m *Module) {
	c := &s.ifuncs
	if c.impl == nil {
		c.impl, c.done = map[arch.Addr]Symbol{}, map[*Module]bool{}
	}
	c.done[m] = true
	st := m.symbols()
	for i := range st.entries {
		e := &st.entries[i]
		if e.kind != kindIFunc || t.pid == 0 {
			continue
		}
		impls, err := t.implementations(s, m.symbol(e))
		if err != nil {
			continue
		}
		for _, sym := range impls {
			old, dup := c.impl[sym.Addr]
			if !dup || underscores(sym.Name) < underscores(old.Name) {
				c.impl[sym.Addr] = sym
			}
		}
	}
}
