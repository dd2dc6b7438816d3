package symbols

import (
	"reflect"

	"github.com/gokprobe/gokprobe/arch"
)

// Scalar is a value as conditions compare it.
type Scalar struct {
	// Kind is an Int, a Uint, a Bool, a Float64 of Size bytes, a String, or Invalid for all else.
	Kind reflect.Kind
	Size int64
	Bits uint64 // a number, extended to 64 bits by its sign; a Float64's as they are in memory
	Text string // of a String
}

// ScalarKind is the Kind and the Size of p's Scalar at each hit. isLate says that only the hit tells them.
func (p Param) ScalarKind() (kind reflect.Kind, size int64, isLate bool) {
	kind, size = p.typ.scalar(p.lang)
	return kind, size, p.late != nil
}

func (t *dtype) scalar(lang language) (reflect.Kind, int64) {
	if _, _, isText := t.counted(lang); isText {
		return reflect.String, t.size
	}
	switch s := t.shape(lang); {
	case t.kind == typeBool:
		return reflect.Bool, t.size
	case s == ShapeSigned:
		return reflect.Int, t.size
	case s == ShapeUnsigned, s == ShapePointer && t.kind != typeReference:
		return reflect.Uint, t.size
	case s == ShapeFloat:
		return reflect.Float64, t.size
	}
	return reflect.Invalid, t.size
}

// counted is where a text with a length has its address and its length.
func (t *dtype) counted(lang language) (addr, length int64, ok bool) {
	if t.kind == typeGoString {
		return 0, 8, true
	}
	return libraryText(lang, t)
}

// Scalar is the value at a hit, as Value reads it. Of a text it has most bytes at most.
func (p Param) Scalar(r arch.Regs, m arch.Memory, most int64) (Scalar, error) {
	if p.late != nil {
		end, err := p.arrive(r, m)
		if err != nil {
			return Scalar{}, err
		}
		return end.Scalar(r, m, most)
	}
	raw, err := p.place.read(p.typ, r, m)
	if err != nil {
		return Scalar{}, err
	}
	s := Scalar{}
	switch s.Kind, s.Size = p.typ.scalar(p.lang); {
	case p.field != nil:
		return Scalar{}, errNoPlace
	case s.Kind == reflect.String:
		addr, length, _ := p.typ.counted(p.lang)
		text := make([]byte, min(uint64(most), word(raw, length)))
		if len(text) > 0 {
			err = m.ReadMemory(address(raw, addr), text)
		}
		s.Text = string(text)
	case s.Kind == reflect.Int:
		s.Bits = uint64(intOf(raw))
	default:
		s.Bits = uintOf(raw)
	}
	return s, err
}
