package symbols

import (
	"debug/dwarf"

	"github.com/gokprobe/gokprobe/internal/budget"
)

// typeReader reads types of one unit for one question, and keeps them for later questions. Their memory is taken from the budget. If
// that refuses, the question fails and keeps nothing.
type typeReader struct {
	d     *dwarfData
	cache map[dwarf.Offset]*dtype
	lang  language

	depth   int
	aliases []alias // to complete when the outermost type is read
	made    []madeType
	part    *budget.Part // of the types that this question has read
	size    uint64
	err     error // why types are missing
}

type madeType struct {
	off dwarf.Offset
	t   *dtype
}

// alias is a typedef or a qualified type, and its target.
type alias struct {
	r         *typeReader
	t, target *dtype
	entry     *dwarf.Entry
}

// at returns the type at off; it never returns nil.
func (r *typeReader) at(off dwarf.Offset) *dtype {
	if t := r.cache[off]; t != nil {
		return t
	}
	t := &dtype{kind: typeUnknown, name: "?"}
	if r.depth >= deepestType || r.err != nil {
		return t
	}
	if r.err = r.count(typeCost); r.err != nil {
		return t
	}
	r.cache[off] = t // before its parts are read: types are cyclic
	r.made = append(r.made, madeType{off, t})
	rd := r.d.entriesAt(off)
	e := rd.next()
	if e == nil {
		return t
	}
	r.depth++
	r.fill(t, e, rd)
	if t.align == 0 {
		t.align = max(1, min(t.size, 16))
	}
	if r.depth--; r.depth == 0 {
		// An alias met inside of its own target copied an unfinished type.
		for _, a := range r.aliases {
			a.copyTarget()
		}
		r.settle()
	}
	return t
}

// count asks the budget for n more bytes to keep.
func (r *typeReader) count(n uint64) error {
	if r.part == nil {
		r.part = r.d.kept.Part("types")
	}
	r.size += n
	return r.d.refused.note(r.part.Set(r.size))
}

// Limits of types: how deep they lead one to the other while they are read, how many parts a value has, and how large it is.
const (
	deepestType = 1 << 13
	mostParts   = 1 << 16
	largestType = 1 << 26
	typeCost    = 256 // bytes
)

// settle finishes the types that were just read. An impossible type becomes an unknown one: a type that contains itself, has too many parts, or has an
// impossible size. So going through the parts of a value always ends. If a type could not be read, none of them is kept.
func (r *typeReader) settle() {
	for _, m := range r.made {
		t := m.t
		if t.parts() > mostParts || t.size < 0 || t.size > largestType || t.count < 0 {
			kept := int64(0) // a value larger than registers is passed by its address, whatever its type
			if t.size > 0 && t.size <= largestType {
				kept = t.size
			}
			*t = dtype{kind: typeUnknown, name: t.name, under: t.under, size: kept, align: 1}
		}
		text := len(t.name)
		for _, f := range t.field {
			text += len(f.name) + 64
		}
		for _, v := range t.variants {
			text += len(v.name) + 64
		}
		for _, name := range t.enum {
			text += len(name) + 64
		}
		if r.err == nil {
			r.err = r.count(uint64(text))
		}
	}
	if r.err != nil {
		for _, m := range r.made {
			delete(r.cache, m.off)
		}
		_ = r.part.Set(0)
		r.size = 0
	}
	r.aliases, r.made, r.part, r.size = nil, nil, nil, 0
}

// parts is how many values a value of t consists of, itself included. It is more than mostParts if t contains itself.
func (t *dtype) parts() int {
	switch {
	case t.weight == weighing:
		return mostParts + 1
	case t.weight > 0:
		return t.weight
	}
	t.weight = weighing
	n := 1
	if t.kind == typeArray && t.elem != nil {
		n += t.elem.parts()
	}
	for i := 0; i < len(t.field) && n <= mostParts; i++ {
		n += t.field[i].typ.parts()
	}
	for i := 0; i < len(t.variants) && n <= mostParts; i++ {
		n += t.variants[i].typ.parts()
	}
	if t.discr != nil && n <= mostParts {
		n += t.discr.typ.parts()
	}
	t.weight = min(n, mostParts+1)
	return t.weight
}

const weighing = -1
