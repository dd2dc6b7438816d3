package symbols

import (
	"cmp"
	"debug/dwarf"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/clean"
)

// ErrNoGlobal tells that debug information has no variable of a name outside of functions.
var ErrNoGlobal = fmt.Errorf("no such variable outside of functions")

// Global is the variable outside of functions that the source means by name in the function at a: one of the same compilation unit first, then of the same file, then of
// the executable. C++ and Rust have names such as ns::x, of which parts in front may be left out; Go has pkg.x, or x for one of the same package. A static variable of
// another compilation unit is found if it is the only one of its name. At each hit the value is that which it has then; thread-local ones are those of the thread.
//
// The error matches ErrNoGlobal, ErrAmbiguous, ErrNoPlace, or is that of debug information that can't be read.
func (t *Table) Global(a arch.Addr, name string) (Param, error) {
	m := t.module(a)
	if m == nil {
		return Param{}, errNotMapped(a)
	}
	mods := []*Module{m}
	for _, x := range t.Modules() {
		if x != m && x.Kind == KindExecutable {
			mods = append(mods, x)
		}
	}
	var first error
	for _, x := range mods {
		p, err := t.globalOf(x, a, name)
		if err == nil {
			return p, nil
		}
		first = cmp.Or(first, err)
	}
	return Param{}, first
}

// globalOf is Global in one module.
func (t *Table) globalOf(m *Module, a arch.Addr, name string) (p Param, err error) {
	if m.img == nil {
		return p, fmt.Errorf("%w: %w", ErrNoGlobal, m.Err)
	}
	d, err := m.img.dwarfOf(t)
	if err != nil {
		return p, err
	}
	here, _, _ := d.subprogram(m.link(a))
	found := d.globalsNamed(name, here)
	switch {
	case len(found) == 0:
		return p, ErrNoGlobal
	case len(found) > 1:
		return p, ambiguousGlobal(name, found)
	}
	g := found[0]
	p, err = d.global(g)
	if err != nil {
		return p, err
	}
	p.table, p.mod, p.lang = t, m, g.unit.lang
	if p.settle(t, m); p.place.isUnknown && (g.isDeclared || g.external) { // another unit has it, or another module's is used in its place
		p.place = t.linkedAt(g.linkage)
	}
	if p.place.isUnknown {
		return p, ErrNoPlace
	}
	return p, nil
}

// linkedAt is where the dynamic linker has the variable of a linkage name.
func (t *Table) linkedAt(name string) place {
	s, err := t.Object(name)
	if err != nil {
		return place{isUnknown: true}
	}
	return place{isIndirect: true, parts: []part{{size: 8, reg: constantPart, stack: int64(s.Addr)}}}
}

func ambiguousGlobal(name string, found []globalMatch) error {
	var all []string
	for _, g := range found[:min(len(found), maxListed)] {
		where, _ := g.unit.entry.Val(dwarf.AttrName).(string)
		all = append(all, clean.Line(g.name)+" of "+clean.Line(where))
	}
	return fmt.Errorf("%w: %s may be %s", ErrAmbiguous, clean.Quote(name), strings.Join(all, ", "))
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
		const cost = 96 // bytes, with what the map takes
		n := 0
		for _, u := range d.units {
			spaces := map[dwarf.Offset]string{} // of declarations, which definitions outside of the namespace complete
			d.eachGlobal(u, func(e *dwarf.Entry, space string) {
				origins := d.origins(e)
				name, _ := attr(origins, dwarf.AttrName).(string)
				if n++; name == "" || n > mostGlobals {
					return
				}
				if last := origins[len(origins)-1].Offset; last != e.Offset {
					space = spaces[last]
				} else if space != "" {
					spaces[e.Offset] = space
				}
				_, hasPlace := e.Val(dwarf.AttrLocation).([]byte)
				hasPlace = hasPlace || e.Val(dwarf.AttrConstValue) != nil
				key := maphash.String(g.seed, lastName(name))
				g.byName[key] = append(g.byName[key], globalEntry{e.Offset, u, space, !hasPlace})
			})
		}
		if d.keep(uint64(min(n, mostGlobals))*cost, "the variables of the debug information") != nil {
			g.byName = nil
		}
	})
	return g
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

// globalsNamed lists what name may mean in the unit here, which may be nil: the one that the source means, if that can be told.
func (d *dwarfData) globalsNamed(name string, here *unit) []globalMatch {
	index := d.globalIndex()
	var own, plain, others []globalMatch
	var declared []globalMatch
	for _, x := range index.byName[maphash.String(index.seed, lastName(name))] {
		e := d.entryAt(x.off)
		if e == nil {
			continue
		}
		g := globalMatch{globalEntry: x}
		origins := d.origins(e)
		g.name, g.linkage = globalName(origins, x.space)
		g.external, _ = attr(origins, dwarf.AttrExternal).(bool)
		switch {
		case !means(name, g.name):
		case x.isDeclared && x.unit == here:
			declared = append(declared, g)
		case x.isDeclared:
		case x.unit == here:
			own = append(own, g)
		case g.name == name && g.external:
			plain = append(plain, g)
		default:
			others = append(others, g)
		}
	}
	for _, found := range [][]globalMatch{own, plain, others, declared} {
		if exact := slices.DeleteFunc(slices.Clone(found), func(g globalMatch) bool { return g.name != name }); len(exact) > 0 {
			found = exact
		}
		if found = d.distinct(found); len(found) > 0 {
			return found
		}
	}
	return nil
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
	case op == opAddrx && address != nil:
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
