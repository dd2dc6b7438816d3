package symbols

import (
	"errors"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// Compared is a value as conditions compare it.
type Compared struct {
	Shape Shape
	Bits  uint64 // of a number: extended to 64 bits by its sign; of a floating-point number as in memory
	Text  string // of a text: its bytes
	IsCut bool   // the text goes on
}

// spot is where a hit's values are read from.
type spot struct {
	regs arch.Regs
	mem  arch.Memory
}

var errNotCompared = errors.New("it is neither a number nor a text")

// Compares tells how values of p are compared: as numbers of so many bytes, or as texts (ShapeText). ok is false for all others, also references.
func (p Param) Compares() (s Shape, size int64, ok bool) {
	if p.dynamic != nil {
		return s, 0, false
	}
	t := p.unwrapped().typ
	if p.field != nil {
		t = p.field.typ
	}
	switch s = t.shape(p.lang); {
	case t.kind == typeReference:
		return s, 0, false
	case s == ShapeText, s == ShapeTextPointer, p.field == nil && (t.isCut || t.isString(p.lang)):
		return ShapeText, 0, true
	case s == ShapeSigned, s == ShapeUnsigned, s == ShapeFloat, s == ShapePointer:
		return s, t.size, true
	}
	return s, 0, false
}

// Enumerators are the names of p's values, if it is one of an enumeration.
func (p Param) Enumerators() map[int64]string {
	switch {
	case p.dynamic != nil:
		return nil
	case p.field != nil:
		return p.field.typ.enum
	}
	return p.unwrapped().typ.enum
}

// IsDynamic tells that the type of p is known only at each hit: it is what an interface of Go's leads to.
func (p Param) IsDynamic() bool { return p.dynamic != nil }

// FieldBits is how many bits p has, if it is a bit field.
func (p Param) FieldBits() (bits int64, ok bool) {
	if p.field == nil {
		return 0, false
	}
	return p.field.wide, true
}

// isString tells of a type with a length that it is a text.
func (t *dtype) isString(lang language) bool {
	s, ok := t.sequence(lang)
	return ok && s.isText
}

// unwrapped is p without what wraps it.
func (p Param) unwrapped() Param {
	for w := (&way{Param: p}); p.field == nil && p.place.number == nil && w.unwrap(); p = w.Param {
	}
	return p
}

// Compared reads the value of p, as Value does. The error says why it is not known.
func (p Param) Compared(r arch.Regs, m arch.Memory) (c Compared, err error) {
	if p.late != nil {
		if p, err = p.at(spot{r, m}); err != nil {
			return c, err
		}
	}
	if p.dynamic != nil {
		if p, err = p.arrive(r, m); err != nil {
			return c, err
		}
		return p.Compared(r, m)
	}
	shape, _, ok := p.Compares()
	if !ok {
		return c, errNotCompared
	}
	if shape == ShapeText {
		return p.text(r, m)
	}
	p = p.unwrapped()
	raw, err := p.place.read(p.typ, r, m)
	if err != nil {
		return c, err
	}
	t := p.typ
	if p.field != nil {
		if raw, ok = p.field.of(raw); !ok {
			return c, errNoPlace
		}
		t = p.field.typ
	}
	if int64(len(raw)) < t.size {
		return c, errNoPlace
	}
	if raw = raw[:t.size]; shape == ShapeSigned {
		return Compared{Shape: shape, Bits: uint64(intOf(raw))}, nil
	}
	return Compared{Shape: shape, Bits: uintOf(raw)}, nil
}

// text reads a text, as much as is shown of it. Its bytes stand in quotes, which escape all that is no character.
func (p Param) text(r arch.Regs, m arch.Memory) (c Compared, err error) {
	v := p.Value(r, m)
	if v.Err != nil {
		return c, v.Err
	}
	_, isText := v.JSON.(string)
	from := strings.IndexByte(v.Text, '"')
	if !isText || from < 0 { // an address that leads to no text
		return c, errNotCompared
	}
	quoted, err := strconv.QuotedPrefix(v.Text[from:])
	if err != nil {
		return c, errNotCompared
	}
	text, err := strconv.Unquote(quoted)
	return Compared{Shape: ShapeText, Text: text, IsCut: strings.HasPrefix(v.Text[from+len(quoted):], "…")}, err
}
