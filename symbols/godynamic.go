package symbols

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

var (
	errNil       = errors.New("it is nil")
	errOtherType = errors.New("it holds another type")
	errNoDynamic = errors.New("debug information does not describe the type that it holds")
)

// dynamic is a type that an interface may hold.
type dynamic struct {
	mod     *Module
	is      *goMeaning
	hasITab bool // the interface has methods: its first word leads to an abi.ITab
}

// check returns an error unless the interface with that first word holds the type.
func (d *dynamic) check(tab uint64, m arch.Memory) error {
	x, err := d.mod.descriptor(tab, d.hasITab, m)
	switch {
	case err != nil:
		return err
	case d.is.at != x.at-x.lo:
		return errOtherType
	case !x.agrees(d.is.typ, d.is.kind, m):
		return errNoDynamic
	}
	return nil
}

// descriptor is the abi.Type of what an interface holds.
func (m *Module) descriptor(tab uint64, hasITab bool, mem arch.Memory) (x descriptor, err error) {
	if tab == 0 {
		return x, errNil
	}
	const typeAt = 8 // of an abi.ITab
	if hasITab {
		var word [8]byte
		if err := mem.ReadMemory(arch.Addr(tab).Add(typeAt), word[:]); err != nil {
			return x, err
		}
		tab = binary.LittleEndian.Uint64(word[:])
	}
	lo, hi, ok := m.goTypes(mem)
	if !ok || tab < lo || tab >= hi {
		return x, errNoDynamic // it was made while the program ran, or is that of a plugin
	}
	return descriptor{tab, lo, hi}, nil
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

// assert goes to what an interface holds, if that is of the type that s names.
func (w *way) assert(s Step) error {
	hasITab, ok := w.typ.hasITab()
	if !ok {
		return ErrNotInterface
	}
	if err := w.understand(&s); err != nil {
		return err
	}
	t := s.meant.typ
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
	w.place.limits = append(w.place.limits[:len(w.place.limits):len(w.place.limits)], limit{length: &tab.place, holds: &dynamic{w.mod, s.meant, hasITab}})
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

// isDynamic tells that a step begins at an interface whose type is known at a hit, or behind one.
func (w *way) isDynamic(s Step) bool {
	return w.dynamic != nil || w.lang == langGo && w.field == nil && w.place.number == nil && w.typ.kind == typeGoInterface && s.Kind != StepAssert && s.Kind != StepAddress
}

// beDynamic leaves the steps to the hits. All that is searched for in debug information is found now, while no thread waits. failed is the step that err is of.
func (w *way) beDynamic(path []Step) (failed int, err error) {
	if _, ok := w.typ.hasITab(); !ok {
		return 0, ErrNotPointer
	}
	d, err := w.goTypes()
	if err != nil || len(d.goIndex()) == 0 {
		return 0, ErrNotPointer
	}
	steps, failed, err := w.understood(path)
	w.dynamic = slices.Concat(w.dynamic, steps)
	return failed, err
}

// arrive goes the steps that were left.
func (p Param) arrive(r arch.Regs, m arch.Memory) (Param, error) {
	whole, err := p.place.read(p.typ, r, m)
	if err != nil {
		return p, err
	}
	hasITab, _ := p.typ.hasITab()
	x, err := p.mod.descriptor(uintOf(whole), hasITab, m)
	if err != nil {
		return p, err
	}
	d, err := p.goTypes()
	if err != nil {
		return p, err
	}
	is, ok := d.goIndex()[x.at-x.lo]
	if !ok {
		return p, errNoDynamic
	}
	t, err := d.goTypeAt(is.off)
	if err != nil {
		return p, err
	}
	isDirect, ok := t.isDirect()
	if !ok || !x.agrees(t, is.kind, m) {
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
	if len(end.dynamic) >= len(p.dynamic) { // no interface holds another one: who goes on without a step gets nowhere
		return p, errNoDynamic
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
