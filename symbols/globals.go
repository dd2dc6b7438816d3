package symbols

import (
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/escape"
)

// ErrNoGlobal tells that debug information has no variable of a name outside of functions.
var ErrNoGlobal = fmt.Errorf("no such variable outside of functions")

// Global is the variable outside of functions that the source means by name in the function at a: one of the same compilation unit first, then of the same file, then one
// of the executable that other files may use. C++ and Rust have names such as ns::x: the namespaces and classes around the function are looked through from the inside, and
// parts in front may be left out where that leaves one variable alone. Go has pkg.x, or x for one of the same package. A static variable of another compilation unit is
// found if nothing else has its name. At each hit the value is that which it has then; thread-local ones are those of the thread.
//
// The error matches ErrNoGlobal, ErrAmbiguous, ErrNoPlace, or is that of debug information that can't be read. It is a *HiddenError if the function
// has the name.
func (t *Table) Global(a arch.Addr, name string) (Param, error) {
	m := t.module(a)
	if m == nil {
		return Param{}, errNotMapped(a)
	}
	p, err := t.globalOf(m, a, name)
	if !errors.Is(err, ErrNoGlobal) {
		return p, err
	}
	for _, x := range t.Modules() {
		if x == m || x.Kind != KindExecutable {
			continue
		}
		if p, err := t.globalOf(x, a, name); !errors.Is(err, ErrNoGlobal) {
			return p, err
		}
	}
	return p, err
}

// HiddenError tells that a name is that of something in the function, which hides variables outside of it. It matches ErrNoPlace.
type HiddenError struct{ What string }

// Error implements error.
func (e *HiddenError) Error() string { return e.What }

// Unwrap makes the error match ErrNoPlace.
func (e *HiddenError) Unwrap() error { return ErrNoPlace }

// globalOf is Global in one module. The function may be in another one.
func (t *Table) globalOf(m *Module, a arch.Addr, name string) (p Param, err error) {
	if m.img == nil {
		return p, fmt.Errorf("%w: %w", ErrNoGlobal, m.Err)
	}
	d, err := m.img.dwarfOf(t)
	if err != nil {
		return p, fmt.Errorf("%w: %w", ErrNoGlobal, err)
	}
	q := globalQuery{d: d, name: name, elsewhere: t.module(a) != m}
	if loc, ok := t.Lookup(a); ok {
		q.scopes = scopesOf(loc.Symbol.Name)
	}
	if !q.elsewhere {
		var fn dwarf.Offset
		var ok bool
		if q.here, fn, ok = d.subprogram(m.link(a)); ok && !strings.Contains(name, "::") && d.declares(fn, name) {
			return p, &HiddenError{"it is a variable of the function, whose place there is not known"}
		}
	}
	found := q.find()
	switch {
	case len(found) == 0:
		return p, ErrNoGlobal
	case len(found) > 1:
		return p, ambiguousGlobal(name, found)
	}
	g := found[0]
	if p, err = d.global(g); err != nil {
		return p, err
	}
	p.table, p.mod, p.lang = t, m, g.unit.lang
	if p.settle(t, m); p.place.isUnknown && (g.isDeclared || g.external) { // another unit has it, or another module's is used in its place
		p.place = t.linkedAt(m, g.linkage)
	}
	switch {
	case p.place.isUnknown:
		return p, ErrNoPlace
	case !g.external && g.unit != q.here && t.isExportedElsewhere(m, g.linkage):
		return p, fmt.Errorf("%w: %s may be the static variable of another source file, or one of another file of the process", ErrAmbiguous, escape.Quote(name))
	}
	return p, nil
}

// declares tells whether something in the function at off has a name: a parameter, a variable of any block, also of inlined calls.
func (d *dwarfData) declares(off dwarf.Offset, name string) bool {
	x := d.entriesAt(off)
	fn := x.next()
	if fn == nil || !fn.Children {
		return false
	}
	for depth := 1; depth > 0; {
		e := x.next()
		switch {
		case e == nil:
			return false
		case e.Tag == 0:
			depth--
			continue
		case e.Tag == dwarf.TagFormalParameter || e.Tag == dwarf.TagVariable:
			if own, _ := attr(d.origins(e), dwarf.AttrName).(string); strings.TrimPrefix(own, "&") == name { // Go's on the heap
				return true
			}
		}
		if e.Children {
			depth++
		}
	}
	return false
}

// linkedAt is where m finds the variable of a linkage name, as the dynamic linker has told it: by its words for the address, or, if it has none, by its own symbol.
func (t *Table) linkedAt(m *Module, name string) place {
	at, words := uint64(0), m.img.bindings().byName[name]
	for _, slot := range words {
		v, ok := t.readWord(m.addr(slot))
		if !ok || v == 0 || at != 0 && v != at {
			return place{isUnknown: true}
		}
		at = v
	}
	if len(words) == 0 {
		found, _ := findLinkage([]*Module{m}, name)
		for _, x := range found {
			if x.e.bind == uint8(elf.STB_LOCAL) {
				continue
			}
			if x.e.isCode() || at != 0 && at != uint64(x.addr()) {
				return place{isUnknown: true}
			}
			at = uint64(x.addr())
		}
	}
	if at == 0 {
		return place{isUnknown: true}
	}
	return place{isIndirect: true, parts: []part{{size: 8, reg: constantPart, stack: int64(at)}}}
}

// isExportedElsewhere tells that another module exports a variable of the name.
func (t *Table) isExportedElsewhere(m *Module, name string) bool {
	for _, x := range t.Modules() {
		if x == m {
			continue
		}
		found, _ := findLinkage([]*Module{x}, name)
		if slices.ContainsFunc(found, func(f match) bool { return !f.e.isCode() && f.e.isExported }) {
			return true
		}
	}
	return false
}

func ambiguousGlobal(name string, found []globalMatch) error {
	var all []string
	for _, g := range found[:min(len(found), maxListed)] {
		where, _ := g.unit.entry.Val(dwarf.AttrName).(string)
		all = append(all, escape.Line(g.name)+" of "+escape.Line(where))
	}
	return fmt.Errorf("%w: %s may be %s", ErrAmbiguous, escape.Quote(name), strings.Join(all, ", "))
}

// globals is where the variables outside of functions are declared in a file's debug information, by their names.
type globals struct {
	once   sync.Once
	seed   maphash.Seed
	byName map[uint64][]globalEntry // by the last part of the name
}

// globalEntry is one variable's entry.
type globalEntry struct {
	off  dwarf.Offset
	unit *unit
	// space is the namespaces around it, a::b; empty for none.
	space string
	// isDeclared says that the entry tells no place: another unit's may.
	isDeclared bool
}

// globalMatch is one that a name may mean, with its full name.
type globalMatch struct {
	globalEntry
	name     string
	linkage  string
	external bool
}

// mostGlobals bounds the entries of a file that are kept.
const mostGlobals = 1 << 20

// globalIndex reads where all variables outside of functions are.
func (d *dwarfData) globalIndex() *globals {
	g := &d.globals
	g.once.Do(func() {
		g.seed, g.byName = maphash.MakeSeed(), map[uint64][]globalEntry{}
		n := 0
		for _, u := range d.units {
			if n > mostGlobals || d.globalsIn(u, g, &n) != nil {
				g.byName = nil // a part of them would make others seem to be the only ones
				return
			}
		}
	})
	return g
}

// globalsIn adds those of a unit.
func (d *dwarfData) globalsIn(u *unit, g *globals, n *int) (err error) {
	const cost = 96                     // bytes, with what the map takes
	spaces := map[dwarf.Offset]string{} // of declarations, which definitions outside of the namespace complete
	d.eachGlobal(u, func(e *dwarf.Entry, space string) {
		if *n++; err != nil || *n > mostGlobals {
			return
		}
		origins := d.origins(e)
		name, _ := attr(origins, dwarf.AttrName).(string)
		if name == "" {
			return
		}
		if last := origins[len(origins)-1].Offset; last != e.Offset {
			space = spaces[last]
		} else if space != "" {
			spaces[e.Offset] = space
		}
		if err = d.keep(cost+uint64(len(space)), "the variables of the debug information"); err != nil {
			return
		}
		_, hasPlace := e.Val(dwarf.AttrLocation).([]byte)
		hasPlace = hasPlace || e.Val(dwarf.AttrConstValue) != nil
		key := maphash.String(g.seed, lastName(name))
		g.byName[key] = append(g.byName[key], globalEntry{e.Offset, u, space, !hasPlace})
	})
	return err
}

// eachGlobal calls f for the entries of variables outside of functions in u, with the namespaces around them.
func (d *dwarfData) eachGlobal(u *unit, f func(e *dwarf.Entry, space string)) {
	d.eachOutside(u.off, func(e *dwarf.Entry, space string) {
		if e.Tag == dwarf.TagVariable {
			f(e, space)
		}
	})
}

// eachOutside calls f for what is declared outside of functions and types in the unit whose first entry is at off, with the namespaces around it.
func (d *dwarfData) eachOutside(off dwarf.Offset, f func(e *dwarf.Entry, space string)) {
	r := d.entriesAt(off)
	if first := r.next(); first == nil || !first.Children {
		return
	}
	for spaces := []string{""}; len(spaces) > 0; {
		e := r.next()
		if e == nil {
			return
		}
		space := spaces[len(spaces)-1]
		switch {
		case e.Tag == 0:
			spaces = spaces[:len(spaces)-1]
			continue
		case (e.Tag == dwarf.TagNamespace || e.Tag == dwarf.TagModule) && e.Children && len(spaces) < mostNested:
			spaces = append(spaces, d.spaceIn(e, space))
			continue
		}
		f(e, space)
		r.skip(e)
	}
}

// spaceIn is the name of a namespace that is in another one. What has no name is called as demanglers do.
func (d *dwarfData) spaceIn(e *dwarf.Entry, outer string) string {
	const longest = 1 << 10
	name, _ := attr(d.origins(e), dwarf.AttrName).(string)
	if name == "" {
		name = "(anonymous namespace)"
	}
	name = inSpace(outer, name)
	return name[:min(len(name), longest)]
}

// inSpace is the full name of what is in a namespace, empty for none.
func inSpace(space, name string) string {
	if space == "" {
		return name
	}
	return space + "::" + name
}

// lastName is a name without the packages, namespaces or classes in front.
func lastName(name string) string {
	if i := strings.LastIndex(name, "::"); i >= 0 {
		name = name[i+2:]
	}
	return name[strings.LastIndexByte(name, '.')+1:]
}

// globalName is the full name of a variable, by its entry and those that this refers to and the namespaces around it, and the name that linkers know.
func globalName(origins []*dwarf.Entry, space string) (full, linkage string) {
	full, _ = attr(origins, dwarf.AttrName).(string)
	if linkage, _ = attr(origins, dwarf.AttrLinkageName).(string); linkage == "" {
		linkage = full
	}
	if inner := lastName(full); isMangled(linkage) {
		if long := demangleShort(linkage); long != linkage && lastName(long) == inner {
			return long, linkage
		}
	}
	return inSpace(space, full), linkage
}

// means tells whether a source that says name may mean the variable of that full name.
func means(name, full string) bool {
	if name == full {
		return true
	}
	rest, ok := strings.CutSuffix(full, name)
	return ok && (strings.HasSuffix(rest, "::") || strings.HasSuffix(rest, ".") || strings.HasSuffix(rest, "/") && strings.Contains(name, "."))
}

// distinct leaves out entries of a variable that others tell of as well: each unit that uses an inline variable of C++ has one.
func (d *dwarfData) distinct(found []globalMatch) []globalMatch {
	type key struct {
		name string
		at   uint64
	}
	seen := map[key]bool{}
	return slices.DeleteFunc(found, func(g globalMatch) bool {
		k := key{name: g.name}
		if at, ok := d.addressOf(g.globalEntry); ok {
			k.at = at
		} else if !g.isDeclared {
			k.at = uint64(g.off) // which is no address of another one's
		}
		was := seen[k]
		seen[k] = true
		return was
	})
}

// addressOf is the address in the file of a variable that has one.
func (d *dwarfData) addressOf(g globalEntry) (v uint64, ok bool) {
	place, _ := d.entryAt(g.off).Val(dwarf.AttrLocation).([]byte)
	if len(place) == 0 {
		return 0, false
	}
	x, address := &lineCursor{b: place}, d.address(g.unit)
	switch op := x.uint(1); {
	case op == opAddr:
		v = x.uint(8)
	case (op == opAddrx || op == opGNUAddrx) && address != nil:
		v = address(x.uleb())
	default:
		return 0, false
	}
	return v, !x.isBad
}

// address finds a unit's addresses by their numbers; it is nil if the unit has none.
func (d *dwarfData) address(u *unit) func(uint64) uint64 {
	first, ok := u.entry.Val(dwarf.AttrAddrBase).(int64)
	if !ok {
		return nil
	}
	return (&locationList{d: d, addr: first}).address
}

// global reads the variable, with a place in the file.
func (d *dwarfData) global(g globalMatch) (p Param, err error) {
	c := callee{isInside: true, isSettled: true, address: d.address(g.unit)}
	e := d.entryAt(g.off)
	d.typeMu.Lock()
	defer d.typeMu.Unlock()
	types := &typeReader{d: d, cache: d.types, lang: g.unit.lang}
	if p, _ = types.param(e); types.err != nil {
		return p, types.err
	}
	l := d.locate(g.unit, c, e, p.typ)
	if p.place = l.place; l.knowledge != saidPlace {
		p.place = place{isUnknown: true}
	}
	return p, nil
}
