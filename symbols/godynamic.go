package symbols

import (
	"debug/dwarf"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// attrGoRuntimeType is where a type's descriptor lies, an abi.Type: as distance from moduledata.types.
const attrGoRuntimeType = dwarf.Attr(0x2904)

// mostGoTypes bounds the index of types that interfaces may hold.
const mostGoTypes = 1 << 18

var (
	errNil       = errors.New("it is nil")
	errOtherType = errors.New("it holds another type")
	errNoDynamic = errors.New("debug information does not describe the type that it holds")
)

// dynamic is a type that an interface may hold.
type dynamic struct {
	mod     *Module
	at      uint64 // of the descriptor, from moduledata.types
	hasITab bool   // the interface has methods: its first word leads to an abi.ITab
}

// check returns an error unless the interface with that first word holds the type.
func (d *dynamic) check(tab uint64, m arch.Memory) error {
	at, err := d.mod.descriptor(tab, d.hasITab, m)
	if err == nil && d.at != at {
		return errOtherType
	}
	return err
}

// descriptor is where the abi.Type of what an interface holds lies, from moduledata.types.
func (m *Module) descriptor(tab uint64, hasITab bool, mem arch.Memory) (at uint64, err error) {
	if tab == 0 {
		return 0, errNil
	}
	const typeAt = 8 // of an abi.ITab
	if hasITab {
		var word [8]byte
		if err := mem.ReadMemory(arch.Addr(tab).Add(typeAt), word[:]); err != nil {
			return 0, err
		}
		tab = binary.LittleEndian.Uint64(word[:])
	}
	lo, hi, ok := m.goTypes(mem)
	if !ok || tab < lo || tab >= hi {
		return 0, errNoDynamic // it was made while the program ran, or is that of a plugin
	}
	return tab - lo, nil
}

// hasITab tells which kind of interface t is. ok is false if that is not known.
func (t *dtype) hasITab() (has, ok bool) {
	switch {
	case t.kind != typeGoInterface:
		return false, false
	case strings.HasSuffix(t.under, "eface"):
		return false, true
	}
	return true, strings.HasSuffix(t.under, "iface")
}

// assert goes to what an interface holds, if that is of the named type.
func (w *way) assert(name string) error {
	hasITab, ok := w.typ.hasITab()
	if !ok {
		return ErrNotInterface
	}
	d, err := w.goTypes()
	if err != nil {
		return ErrNoType
	}
	at, t, err := d.goTypeNamed(name)
	if err != nil {
		return err
	}
	isDirect, ok := t.isDirect()
	if !ok {
		return ErrNotPointer
	}
	tab := *w
	if err := tab.inside(0, wordType); err != nil {
		return err
	}
	tab.place.limits = nil // they are among those of the value, which are met one after the other
	if err := w.inside(8, wordType); err != nil {
		return err
	}
	w.place.limits = append(w.place.limits[:len(w.place.limits):len(w.place.limits)], limit{length: &tab.place, holds: &dynamic{w.mod, at, hasITab}})
	if w.typ = t; !isDirect {
		w.follow(t)
	}
	return nil
}

// isDirect tells that an interface has the value itself as second word, and not its address. ok is false where versions of Go differ.
func (t *dtype) isDirect() (is, ok bool) {
	for range deepest {
		switch {
		case t.kind == typePointer, t.kind == typeGoPointer:
			return true, true
		case t.size != 8:
			return false, true
		case t.kind == typeArray && t.count == 1 && t.elem != nil:
			t = t.elem
		case t.kind == typeStruct && len(t.field) == 1:
			t = t.field[0].typ
		case t.kind == typeStruct && len(t.field) > 1:
			for _, f := range t.field {
				if direct, _ := f.typ.isDirect(); direct {
					return false, false
				}
			}
			return false, true
		default:
			return false, true
		}
	}
	return false, false
}

// isDynamic tells that a step begins at an interface whose type is known at a hit.
func (w *way) isDynamic(s Step) bool {
	return w.lang == langGo && w.field == nil && w.place.number == nil && w.typ.kind == typeGoInterface && s.Kind != StepAssert && s.Kind != StepAddress
}

// beDynamic leaves the steps to the hits.
func (w *way) beDynamic(path []Step) error {
	if _, ok := w.typ.hasITab(); !ok {
		return ErrNotPointer
	}
	d, err := w.goTypes()
	if err != nil {
		return ErrNotPointer
	}
	if w.dynamic = path; len(d.goIndex()) == 0 { // it is made now, while no thread waits for it
		return ErrNotPointer
	}
	return nil
}

// arrive goes the steps that were left.
func (p Param) arrive(r arch.Regs, m arch.Memory) (Param, error) {
	whole, err := p.place.read(p.typ, r, m)
	if err != nil {
		return p, err
	}
	hasITab, _ := p.typ.hasITab()
	at, err := p.mod.descriptor(uintOf(whole), hasITab, m)
	if err != nil {
		return p, err
	}
	d, err := p.goTypes()
	if err != nil {
		return p, err
	}
	off, ok := d.goIndex()[at]
	if !ok {
		return p, errNoDynamic
	}
	t, err := d.goTypeAt(off)
	if err != nil {
		return p, err
	}
	isDirect, ok := t.isDirect()
	if !ok {
		return p, errNoDynamic
	}
	held := p
	held.dynamic, held.typ = nil, t
	held.place = place{isIndirect: !isDirect, parts: []part{{size: 8, reg: constantPart, stack: int64(uintOf(whole[8:]))}}}
	held.late = nil
	end, err := held.At(p.Name, p.dynamic...)
	if err != nil {
		return p, fmt.Errorf("%s: %w", t.name, err)
	}
	return end, nil
}

// goTypes is the debug information of the module that the value is of.
func (p *Param) goTypes() (*dwarfData, error) {
	if p.mod == nil || p.mod.img == nil || p.table == nil {
		return nil, ErrNoType
	}
	return p.mod.img.dwarfOf(p.table)
}

// eachGoType shows the types that have descriptors.
func (d *dwarfData) eachGoType(f func(e *dwarf.Entry, at uint64)) {
	for _, h := range d.headers {
		if d.languageAt(h.first) != langGo {
			continue
		}
		d.eachOutside(h.first, func(e *dwarf.Entry, _ string) {
			if at, ok := e.Val(attrGoRuntimeType).(uint64); ok && at != 0 {
				f(e, at)
			}
		})
	}
}

// goIndex tells where types are described, by where their descriptors lie. It is made when it is first asked for.
func (d *dwarfData) goIndex() map[uint64]dwarf.Offset {
	d.goOnce.Do(func() {
		d.goOffsets = map[uint64]dwarf.Offset{}
		d.eachGoType(func(e *dwarf.Entry, at uint64) {
			if len(d.goOffsets) < mostGoTypes {
				d.goOffsets[at] = e.Offset
			}
		})
	})
	return d.goOffsets
}

func (d *dwarfData) goTypeAt(off dwarf.Offset) (*dtype, error) {
	d.typeMu.Lock()
	defer d.typeMu.Unlock()
	r := &typeReader{d: d, cache: d.types, lang: langGo}
	t := r.at(off)
	return t, r.err
}

// goTypeNamed finds a type that an interface may hold, as the source names it: pkg.T, T, *pkg.T. If several have the name it is unknown which is meant.
func (d *dwarfData) goTypeNamed(name string) (at uint64, t *dtype, err error) {
	const stars = "*"
	base := strings.TrimLeft(name, stars)
	found, isSure := dwarf.Offset(0), true
	d.eachGoType(func(e *dwarf.Entry, x uint64) {
		own, _ := e.Val(dwarf.AttrName).(string)
		ownBase := strings.TrimLeft(own, stars)
		if !strings.HasSuffix(own, base) || len(own)-len(ownBase) != len(name)-len(base) || !means(base, ownBase) || x == at {
			return
		}
		isSure = isSure && at == 0
		at, found = x, e.Offset
	})
	if at == 0 || !isSure {
		return 0, nil, ErrNoType
	}
	t, err = d.goTypeAt(found)
	return at, t, err
}
