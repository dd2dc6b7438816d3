package symbols

import (
	"debug/dwarf"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
)

// mostStars is how many pointers a StepCast has, one to the other.
const mostStars = 8

// cast takes the address here, or a number that is one, for a pointer to the named type.
func (w *way) cast(s Step) error {
	isAddress := w.typ.kind == typePointer || w.typ.kind == typeGoPointer || w.typ.size == 8 && (w.typ.kind == typeUint || w.typ.kind == typeInt)
	if !isAddress || s.Index < 0 || s.Index > mostStars {
		return ErrNotPointer
	}
	if err := w.understand(&s); err != nil {
		return err
	}
	t := s.meant.typ
	for range s.Index + 1 {
		t = &dtype{kind: typePointer, name: t.name + " *", under: t.under + " *", size: 8, align: 8, elem: t}
	}
	w.typ = t
	return nil
}

// typeNamed finds a type in the debug information of the module that the value is of.
func (p *Param) typeNamed(name string) (*dtype, error) {
	if p.mod == nil || p.mod.img == nil || p.table == nil {
		return nil, ErrNoType
	}
	d, err := p.mod.img.dwarfOf(p.table)
	if err != nil {
		return nil, ErrNoType
	}
	return d.typeNamed(name)
}

// namedTypes keeps what types were asked for by name.
type namedTypes struct {
	mu    sync.Mutex
	known map[string][]dwarf.Offset
}

// typeTags are the entries of types that a source names, by the words that C may have in front.
var typeTags = map[string][]dwarf.Tag{
	"struct ": {dwarf.TagStructType, dwarf.TagClassType},
	"class ":  {dwarf.TagStructType, dwarf.TagClassType},
	"union ":  {dwarf.TagUnionType},
	"enum ":   {dwarf.TagEnumerationType},
	"":        {dwarf.TagTypedef, dwarf.TagBaseType, dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType, dwarf.TagEnumerationType},
}

// typeNamed finds the type of a name. If several have it, and differ in their size, it is unknown which is meant.
func (d *dwarfData) typeNamed(name string) (*dtype, error) {
	d.named.mu.Lock()
	offs, known := d.named.known[name]
	if !known {
		if offs = d.findTypes(name); d.named.known == nil || len(d.named.known) >= mostAnswers {
			d.named.known = map[string][]dwarf.Offset{}
		}
		d.named.known[name] = offs
	}
	d.named.mu.Unlock()
	d.typeMu.Lock()
	defer d.typeMu.Unlock()
	var found *dtype
	for _, off := range offs {
		r := &typeReader{d: d, cache: d.types, lang: d.languageAt(off)}
		t := r.at(off)
		switch {
		case r.err != nil:
			return nil, r.err
		case found != nil && !found.isLike(t), len(offs) == mostTypes:
			return nil, fmt.Errorf("%w that is the only one", ErrNoType)
		case found == nil:
			found = t
		}
	}
	if found == nil {
		return nil, ErrNoType
	}
	return found, nil
}

// isLike reports whether t and o are the same to a source, by their members.
func (t *dtype) isLike(o *dtype) bool {
	return t.kind == o.kind && t.size == o.size && slices.EqualFunc(t.field, o.field, func(a, b dfield) bool {
		return a.name == b.name && a.off == b.off && a.bits == b.bits && a.bit == b.bit && a.wide == b.wide && a.typ.name == b.typ.name && a.typ.size == b.typ.size
	})
}

func (d *dwarfData) languageAt(off dwarf.Offset) language {
	i := sort.Search(len(d.units), func(i int) bool { return d.units[i].off > off }) - 1
	if i < 0 {
		return langC
	}
	return d.units[i].lang
}

// mostTypes bounds the types of one name that are looked at.
const mostTypes = 64

// findTypes lists the entries of types of a name, outside of functions, in all units, also those that others include.
func (d *dwarfData) findTypes(name string) (found []dwarf.Offset) {
	word, rest := "", name
	for w := range typeTags {
		if after, ok := strings.CutPrefix(name, w); ok && w != "" {
			word, rest = w, strings.TrimLeft(after, " ")
		}
	}
	for _, h := range d.headers {
		d.eachOutside(h.first, func(e *dwarf.Entry, space string) {
			if !slices.Contains(typeTags[word], e.Tag) || len(found) >= mostTypes {
				return
			}
			own, _ := e.Val(dwarf.AttrName).(string)
			declared, _ := e.Val(dwarf.AttrDeclaration).(bool)
			if !declared && own != "" && strings.HasSuffix(rest, lastName(own)) && means(rest, inSpace(space, own)) {
				found = append(found, e.Offset)
			}
		})
	}
	return found
}
