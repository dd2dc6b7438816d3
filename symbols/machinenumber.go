package symbols

import "math"

// number is the type of an entry on the machine's stack. The zero value is the generic type: an address, or an integer with a sign.
type number struct {
	size       int64 // bytes: 1, 2, 4 or 8; 0 of the generic type
	isUnsigned bool
	isFloat    bool // which is carried and converted, but not computed with
}

func (n number) bytes() int64 {
	if n.size == 0 {
		return 8
	}
	return n.size
}

// distant is c and n. By the standard it keeps its type, in gdb it becomes a generic one; in a small type these are the same up to its size.
func (c cell) distant(n uint64) cell {
	small := c.number
	c.v = uint64(c.signed())
	c = c.plus(int64(n))
	c.number = number{}
	if back := (cell{number: small, v: c.v}).cut(); small.bytes() < 8 && uint64(back.signed()) != c.v {
		c.sure = small.bytes()
	}
	return c
}

// cut is c with zeros in the place of the bytes that its type has not.
func (c cell) cut() cell {
	if n := c.bytes(); n < 8 {
		c.v &= 1<<(8*n) - 1
	}
	return c
}

// converted is c as a number of another type, or its bytes as one.
func (m *machine) converted(c cell, s step) (cell, error) {
	same := c.bytes() == s.to.bytes()
	raw := s.op == opReinterpret
	from := c
	c.number, c.isWord, c.sure = s.to, c.isWord && same && from.isFloat == s.to.isFloat, 0
	switch {
	case raw && !same:
		return c, errNotComputed
	case raw, m.isDry:
	case from.isFloat && s.to.isFloat:
		c.v = s.to.floatBits(from.float())
	case from.isFloat: // towards zero, where that is a number of the type
		f := math.Trunc(from.float())
		if !(math.Abs(f) < 1<<62) {
			return c, errNotComputed
		}
		c.v = uint64(int64(f))
		if uint64(c.cut().signed()) != c.v {
			return c, errNotComputed
		}
	case s.to.isFloat:
		c.v = s.to.ofInteger(from)
	default:
		c.v = uint64(from.signed())
	}
	return c, nil
}

// float is the number of a cell that is a floating-point number.
func (c cell) float() float64 {
	if c.size == 4 {
		return float64(math.Float32frombits(uint32(c.v)))
	}
	return math.Float64frombits(c.v)
}

func (n number) floatBits(f float64) uint64 {
	if n.size == 4 {
		return uint64(math.Float32bits(float32(f)))
	}
	return math.Float64bits(f)
}

// ofInteger is an integer as a floating-point number, rounded once.
func (n number) ofInteger(c cell) uint64 {
	switch {
	case n.size == 4 && c.isUnsigned:
		return uint64(math.Float32bits(float32(c.v)))
	case n.size == 4:
		return uint64(math.Float32bits(float32(c.signed())))
	case c.isUnsigned:
		return math.Float64bits(float64(c.v))
	}
	return math.Float64bits(float64(c.signed()))
}
