package symbols

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/gokprobe/gokprobe/arch"
)

// decoder converts the bytes of a value of the target to a Go value. It reads memory to which
// the value points, such as a string's, from m.
type decoder func(dst reflect.Value, raw []byte, m arch.Memory)

// maxText bounds the bytes of a string: a path's longest (PATH_MAX).
const maxText = 4096

// decoderOf returns a decoder from type c to Go's type g, or an error if c can't be read as g.
func decoderOf(c *dtype, g reflect.Type) (decoder, error) {
	if isBytes(g) && int64(g.Len()) == c.size {
		return func(dst reflect.Value, raw []byte, _ arch.Memory) { reflect.Copy(dst, reflect.ValueOf(raw)) }, nil
	}
	if c.kind == typeUnion {
		return unionDecoder(c, g)
	}
	switch g.Kind() {
	case reflect.Struct:
		return structDecoder(c, g)
	case reflect.Array:
		return arrayDecoder(c, g)
	case reflect.String:
		return textDecoder(c, g)
	}
	t, err := cType(g)
	if err != nil {
		return nil, err
	}
	if t.size != c.size || !t.accepts(c.kind) {
		return nil, misfit(c, g)
	}
	return scalarDecoder(g.Kind()), nil
}

// accepts reports whether a Go scalar of t's kind can hold a value of kind k.
func (t *dtype) accepts(k typeKind) bool {
	switch k {
	case typeInt, typeUint, typeChar, typeEnum, typePointer, typeReference, typeGoPointer:
		return t.kind == typeInt || t.kind == typeUint
	case typeBool:
		return t.kind == typeBool || t.kind == typeInt || t.kind == typeUint
	}
	return t.kind == k
}

func misfit(c *dtype, g reflect.Type) error {
	if c.kind == typeUnknown || c.kind == typeSum || c.size < 0 {
		return errNoPlace
	}
	if cg, err := cType(g); err == nil && cg.size == c.size {
		return fmt.Errorf("%s can't be read as %s", c.name, g)
	}
	return fmt.Errorf("%s has %d bytes and can't be read as %s", c.name, c.size, g)
}

func isBytes(g reflect.Type) bool {
	return g.Kind() == reflect.Array && g.Elem() == byteType
}

func scalarDecoder(k reflect.Kind) decoder {
	switch k {
	case reflect.Bool:
		return func(dst reflect.Value, raw []byte, _ arch.Memory) { dst.SetBool(raw[0] != 0) }
	case reflect.Float32, reflect.Float64:
		return func(dst reflect.Value, raw []byte, _ arch.Memory) {
			v, _ := floatOf(raw, false)
			dst.SetFloat(v)
		}
	case reflect.Complex64, reflect.Complex128:
		return func(dst reflect.Value, raw []byte, _ arch.Memory) {
			re, _ := floatOf(raw[:len(raw)/2], false)
			im, _ := floatOf(raw[len(raw)/2:], false)
			dst.SetComplex(complex(re, im))
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(dst reflect.Value, raw []byte, _ arch.Memory) { dst.SetInt(intOf(raw)) }
	}
	return func(dst reflect.Value, raw []byte, _ arch.Memory) { dst.SetUint(uintOf(raw)) }
}

// textDecoder reads C's and Go's strings.
func textDecoder(c *dtype, g reflect.Type) (decoder, error) {
	switch {
	case c.kind == typePointer && c.elem.kind == typeChar && c.elem.size == 1:
		return func(dst reflect.Value, raw []byte, m arch.Memory) {
			dst.SetString(textAt(m, arch.Addr(uintOf(raw)), maxText, true))
		}, nil
	case c.kind == typeGoString && c.size == 16:
		return func(dst reflect.Value, raw []byte, m arch.Memory) {
			n := min(uintOf(raw[8:]), maxText)
			dst.SetString(textAt(m, arch.Addr(uintOf(raw)), int(n), false))
		}, nil
	}
	return nil, misfit(c, g)
}

// textAt reads up to limit bytes at a, or to the first NUL, as far as they can be read.
func textAt(m arch.Memory, a arch.Addr, limit int, terminated bool) string {
	var text []byte
	for a != 0 && len(text) < limit {
		// Read no further than to the end of a page: the next one may not be mapped.
		b := make([]byte, min(limit-len(text), int(pageSize-uint64(a)%pageSize)))
		if m.ReadMemory(a, b) != nil {
			break
		}
		if i := bytes.IndexByte(b, 0); terminated && i >= 0 {
			return string(append(text, b[:i]...))
		}
		text = append(text, b...)
		a = a.Add(int64(len(b)))
	}
	return string(text)
}

func structDecoder(c *dtype, g reflect.Type) (decoder, error) {
	if c.kind != typeStruct {
		return nil, misfit(c, g)
	}
	if len(c.field) != g.NumField() {
		return nil, fmt.Errorf("%s has %d fields, %s has %d", c.name, len(c.field), g, g.NumField())
	}
	fields := make([]decoder, len(c.field))
	for i, f := range c.field {
		var err error
		switch {
		case f.bits:
			err = fmt.Errorf("it is a bit field: read the structure as [%d]byte", c.size)
		case f.off < 0 || f.typ.size < 0 || f.off > c.size-f.typ.size:
			err = errNoPlace
		default:
			fields[i], err = decoderOf(f.typ, g.Field(i).Type)
		}
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", c.name, f.name, err)
		}
	}
	return func(dst reflect.Value, raw []byte, m arch.Memory) {
		for i, f := range c.field {
			fields[i](settable(dst.Field(i)), raw[f.off:f.off+f.typ.size], m)
		}
	}, nil
}

// settable returns an unexported field in a form that reflect can set.
func settable(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
}

// arrayDecoder reads an array of any dimensions. Debug information has the number of all elements.
func arrayDecoder(c *dtype, g reflect.Type) (decoder, error) {
	n := int64(g.Len())
	if c.kind != typeArray || c.size != c.count*c.elem.size || n == 0 || c.count%n != 0 {
		return nil, misfit(c, g)
	}
	elem := c.elem
	if c.count != n {
		elem = &dtype{kind: typeArray, name: c.name, elem: c.elem, count: c.count / n, size: c.size / n, align: c.align}
	}
	decode, err := decoderOf(elem, g.Elem())
	if err != nil {
		return nil, err
	}
	return func(dst reflect.Value, raw []byte, m arch.Memory) {
		for i := range int(n) {
			at := int64(i) * elem.size
			decode(settable(dst.Index(i)), raw[at:at+elem.size], m)
		}
	}, nil
}

// unionDecoder reads a union as the first member that g fits.
func unionDecoder(c *dtype, g reflect.Type) (decoder, error) {
	for _, f := range c.field {
		if f.bits || f.off != 0 || f.typ.size < 0 || f.typ.size > c.size {
			continue
		}
		if decode, err := decoderOf(f.typ, g); err == nil {
			return func(dst reflect.Value, raw []byte, m arch.Memory) { decode(dst, raw[:f.typ.size], m) }, nil
		}
	}
	return nil, misfit(c, g)
}
