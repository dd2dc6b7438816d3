package symbols

import "slices"

// Shape is the kind of value of a Datum.
type Shape uint8

// The shapes.
const (
	ShapeOther       Shape = iota // a structure, a number that no fetch argument has a type for
	ShapeSigned                   // also enumerations and characters that may be negative
	ShapeUnsigned                 // also truth values, and the other enumerations and characters
	ShapeFloat                    // of 4 or 8 bytes
	ShapeArray                    // Count elements of the shape Elem and Size bytes each
	ShapePointer                  // also references
	ShapeTextPointer              // char * of C and C++
	ShapeText                     // char [] of C and C++
	ShapeCountedText              // a string of Go, std::string, std::string_view, &str: Len tells how many bytes there are
)

// Datum says where a parameter, a result, or a value reached from one is, and its kind. For a
// ShapeCountedText it is the place of the text's address.
type Datum struct {
	Reg   string // the general register that holds it, or its beginning; if empty, it is on the stack,
	Stack int64  // so many bytes above the stack pointer;
	Fixed bool   // or it is Stack itself, the same at each hit
	// Loads lead from there to the datum. Each is an offset: the word read so far is an address, and the next word
	// (at last the datum itself) is read at that offset from it.
	Loads []int64
	Shape Shape
	Size  int64 // bytes, of a bit field those of its declared type, of an array those of an element
	Elem  Shape // of a ShapeArray
	Count int64 // of a ShapeArray
	Bit   int64 // of a bit field: its lowest bit, from 0 to 7 where Loads lead to; of some bytes of a register: of these
	Bits  int64 // of those: how many there are; else 0
	Len   *Datum
	// Limits hold where there is such a value: each length is more than its index.
	Limits []Limit
	// From, unless it is nil, is taken off, and the rest divided by Per: two addresses tell how many elements there are.
	From *Datum
	Per  int64
	Enum map[int64]string // of an enumeration: the names of values
	// IsNilZero says that it is 0 where the address that Loads lead to last is 0.
	IsNilZero bool
}

// Limit is a length that is more than an index.
type Limit struct {
	Length Datum
	Index  int64
}

// Datum returns the place of p. It holds at the function's entry for a result of
// Params, after the return for one of Results, and at the instruction for one of Variables. The error matches ErrNoPlace.
func (p Param) Datum() (Datum, error) {
	if p.late != nil || p.dynamic != nil {
		return Datum{}, ErrNoPlace
	}
	for w := (&way{Param: p}); p.field == nil && p.place.number == nil && w.unwrap(); p = w.Param {
	}
	if p.typ.isCut {
		return Datum{}, ErrNoPlace // a fetched text goes up to a zero
	}
	d := &datum{typ: p.typ}
	if err := d.begin(p.place); err != nil {
		return Datum{}, err
	}
	if n := p.place.number; n != nil && n.from != nil {
		from, err := (Param{typ: wordType, lang: p.lang, place: *n.from}).Datum()
		if err != nil {
			return Datum{}, err
		}
		d.From, d.Per = &from, n.size
	}
	for _, l := range p.place.limits {
		if l.holds != nil {
			return Datum{}, ErrNoPlace
		}
		n, err := (Param{typ: lengthType, lang: p.lang, place: *l.length}).Datum()
		if err != nil {
			return Datum{}, err
		}
		n.Limits = nil // they are among the others
		d.Limits = append(d.Limits, Limit{n, l.index})
	}
	switch f := p.field; {
	case f != nil:
		d.Bit, d.Bits, d.typ = f.bit, f.wide, f.typ
		if !p.place.isIndirect {
			d.Bit += 8 * p.place.parts[0].skip
		}
	case !p.place.isIndirect && p.place.parts[0].skip > 0: // some bytes of a register
		d.Bit, d.Bits = 8*p.place.parts[0].skip, 8*p.typ.size
		if s := p.typ.shape(p.lang); s != ShapeSigned && s != ShapeUnsigned {
			return Datum{}, ErrNoPlace
		}
	}
	if text, ok := d.counted(p.lang); ok {
		return text, nil
	}
	d.Size, d.Shape, d.Enum = d.typ.size, d.typ.shape(p.lang), d.typ.enum
	if d.Shape == ShapeArray {
		d.Size, d.Elem, d.Count = d.typ.elem.size, d.typ.elem.shape(p.lang), d.typ.count
	}
	return d.Datum, nil
}

// datum is a Datum on the way to its member.
type datum struct {
	Datum
	typ   *dtype
	parts []part // of the parameter
}

// counted returns the Datum of d if it is a string with a length, or a reference to one.
func (d *datum) counted(lang language) (Datum, bool) {
	if t := d.typ; t.kind == typeReference && t.elem != nil && t.elem.kind != typeReference {
		inner := &datum{typ: t.elem, Datum: d.Datum}
		inner.Loads = append(slices.Clone(d.Loads), 0)
		return inner.counted(lang)
	}
	addr, length, ok := libraryText(lang, d.typ)
	if d.typ.kind == typeGoString {
		addr, length, ok = 0, 8, true
	}
	if !ok {
		return Datum{}, false
	}
	text, ok := d.word(addr)
	n, known := d.word(length)
	text.Shape, text.Size, text.Len = ShapeCountedText, d.typ.size, &n
	return text, ok && known
}

// word is the 8 bytes at off of d.
func (d *datum) word(off int64) (w Datum, ok bool) {
	w = Datum{Reg: d.Reg, Stack: d.Stack, Fixed: d.Fixed, Limits: d.Limits, Loads: slices.Clone(d.Loads), Size: 8, Shape: ShapeUnsigned}
	switch {
	case len(w.Loads) > 0:
		w.Loads[len(w.Loads)-1] += off
		return w, true
	case w.Fixed:
		return w, false
	case w.Reg == "":
		w.Stack += off
		return w, true
	}
	i := slices.IndexFunc(d.parts, func(p part) bool {
		return p.off == off && p.size == 8 && p.isGeneral()
	})
	if i < 0 {
		return w, false
	}
	w.Reg = d.parts[i].reg
	return w, true
}

func (d *datum) begin(p place) error {
	d.IsNilZero = p.number != nil && p.number.isNilZero
	isOther := p.number != nil && p.number.plus != 0 // an address
	if first := p.parts; !p.isUnknown && !isOther && len(first) == 1 && first[0].reg == constantPart && first[0].skip == 0 {
		d.Fixed, d.Stack = true, first[0].stack
		if p.isIndirect {
			d.Loads = append([]int64{p.behind}, p.more...)
		}
		return nil
	}
	if p.isUnknown || isOther || len(p.parts) == 0 || p.parts[0].skip != 0 && (p.isIndirect || len(p.parts) > 1) || p.parts[0].off != 0 || p.parts[0].reg != "" && !p.parts[0].isGeneral() {
		return ErrNoPlace
	}
	if first := p.parts[0]; len(p.parts) > 1 && first.size < min(d.typ.size, 8) {
		return ErrNoPlace // even a word of it is in several places
	} else if first.reg == "" {
		for _, x := range p.parts {
			if x.reg != "" || x.stack-first.stack != x.off {
				return ErrNoPlace
			}
		}
	}
	d.Reg, d.Stack, d.parts = p.parts[0].reg, p.parts[0].stack, p.parts
	if p.isIndirect {
		d.Loads = append([]int64{p.behind}, p.more...)
	}
	return nil
}

// member finds a field, also in anonymous structures and base classes, and its distance from the structure's
// beginning. seen has the types that were searched before: in damaged debug information a type may contain
// itself.
func (t *dtype) member(name string, seen map[*dtype]bool) (off int64, f dfield, ok bool) {
	for _, f := range t.field {
		if f.name == name && !f.isBase {
			return f.off, f, true
		}
	}
	seen[t] = true
	for _, inner := range t.field {
		if (inner.isBase || inner.name == "") && !seen[inner.typ] {
			if off, f, ok = inner.typ.member(name, seen); ok {
				return inner.off + off, f, true
			}
		}
	}
	return 0, f, false
}

func (t *dtype) shape(lang language) Shape {
	switch t.kind {
	case typeInt, typeEnum, typeUint, typeChar, typeBool:
		switch {
		case t.size > 8:
			return ShapeOther
		case t.isSigned():
			return ShapeSigned
		}
		return ShapeUnsigned
	case typeFloat:
		if t.size == 4 || t.size == 8 {
			return ShapeFloat
		}
	case typePointer, typeReference:
		if lang == langC && t.kind == typePointer && t.elem != nil && t.elem.isText() {
			return ShapeTextPointer
		}
		return ShapePointer
	case typeGoPointer:
		return ShapePointer
	case typeArray:
		if lang == langC && t.elem != nil && t.elem.isText() {
			if len(t.dims) > 1 {
				return ShapeOther
			}
			return ShapeText
		}
		if t.elem != nil && t.count > 0 && t.elem.isNumber() {
			return ShapeArray
		}
	}
	return ShapeOther
}

// isNumber reports whether fetch arguments have a type for t that needs no memory beside its own.
func (t *dtype) isNumber() bool {
	switch t.shape(langGo) {
	case ShapeSigned, ShapeUnsigned, ShapeFloat, ShapePointer:
		return true
	}
	return false
}
