package symbols

import (
	"fmt"
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
	seen := map[arch.Addr]bool{}
	for _, slot := range s.slotsOf(sym) {
		v, ok := t.readWord(slot)
		a := arch.Addr(v)
		if !ok || seen[a] || a == sym.Addr || !s.isImplementation(sym.Module, a) {
			continue
		}
		seen[a] = true
		out = append(out, t.implementation(sym, s.module(a), a))
	}
	if len(out) == 0 {
		return nil, unbound(sym)
	}
	return out, nil
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

// slotsOf lists the words that the dynamic linker sets to sym's implementation:
// its own module's IRELATIVE slots and every module's slots for the name.
func (s *snapshot) slotsOf(sym Symbol) []arch.Addr {
	var out []arch.Addr
	m := sym.Module
	for _, off := range m.img.bindings().irelative[m.link(sym.Addr)] {
		out = append(out, m.addr(off))
	}
	names := aliases(m, sym.Addr)
	for _, x := range s.modules {
		if x.img == nil {
			continue
		}
		for _, n := range names {
			for _, off := range x.img.bindings().byName[n] {
				out = append(out, x.addr(off))
			}
		}
	}
	return out
}

// aliases are all names at a in m.
func aliases(m *Module, a arch.Addr) []string {
	var out []string
	st, v := m.symbols(), m.link(a)
	for i := range st.entries {
		if e := &st.entries[i]; e.value == v && e.isCode() {
			out = append(out, st.linkage(e))
		}
	}
	return out
}

// isImplementation reports whether a slot's value is a function of m, or of the
// vdso, rather than an address still to be relocated, another module's function
// of the same name, or the linkage table's stub of a slot not yet bound.
func (s *snapshot) isImplementation(m *Module, a arch.Addr) bool {
	x := s.module(a)
	if x == nil || x != m && x.Kind != KindVDSO {
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

// unbound is the error for an indirect function without a chosen implementation. It names the
// candidates, if symbols tell them.
func unbound(sym Symbol) error {
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
	err := fmt.Errorf("%w: the dynamic linker has not bound %s of %s, nothing called it so far",
		ErrIFuncUnbound, sym.Name, sym.Module.Name)
	if len(names) > 0 {
		err = fmt.Errorf("%w; candidates: %s", err, strings.Join(names, ", "))
	}
	return err
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
