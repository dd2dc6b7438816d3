package symbols

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gokprobe/gokprobe/arch"
)

func (f *formatter) structure(t *dtype, raw []byte, depth int) Value {
	if x, ok := t.sequence(f.lang); ok {
		if x.isText {
			at, n, ok := x.of(raw)
			if !ok {
				return unknown(errNoPlace)
			}
			return f.text(at, uint64(n))
		}
		return f.elements(t, x, raw, depth)
	}
	var parts []string
	var all []Part
	object := map[string]any{}
	for i, m := range t.field {
		part, ok := m.of(raw)
		if !ok || m.isBase && len(m.typ.field) == 0 && m.typ.kind != typeUnknown {
			continue
		}
		v := f.format(m.typ, part, depth+1)
		name := m.name
		if m.isBase || name == "" {
			name = m.typ.name
		}
		parts = append(parts, name+": "+v.Text)
		object[name] = v.JSON
		all = append(all, Part{name, v})
		if f.budget <= 0 && i+1 < len(t.field) {
			parts = append(parts, "…")
			break
		}
	}
	text := "{" + strings.Join(parts, ", ") + "}"
	if f.lang == langGo && depth == 0 {
		text = t.name + text
	}
	return Value{Text: text, JSON: object, Parts: all}
}

// sum formats a Rust enumeration as Rust writes it: None, Some(5), Move {x: 1}. In JSON it is the name, or an object of the
// name and the data.
func (f *formatter) sum(t *dtype, raw []byte, depth int) Value {
	v, ok := t.variant(raw)
	if !ok {
		return unknown(errNoVariant)
	}
	data, ok := v.of(raw)
	if !ok {
		return unknown(errNoPlace)
	}
	fields := v.typ.field
	if len(fields) == 0 {
		return Value{Text: v.name, JSON: v.name}
	}
	if fields[0].name != "__0" {
		inner := f.format(v.typ, data, depth+1)
		return Value{Text: v.name + " " + inner.Text, JSON: map[string]any{v.name: inner.JSON}, Parts: inner.Parts}
	}
	var texts []string
	var list []any
	var all []Part
	for i, m := range fields {
		part, ok := m.of(data)
		if !ok {
			return unknown(errNoPlace)
		}
		inner := f.format(m.typ, part, depth+1)
		texts, list = append(texts, inner.Text), append(list, inner.JSON)
		all = append(all, Part{Value: inner})
		if f.budget <= 0 && i+1 < len(fields) {
			texts = append(texts, "…")
			break
		}
	}
	out := Value{Text: v.name + "(" + strings.Join(texts, ", ") + ")", JSON: map[string]any{v.name: list}, Parts: all}
	if len(list) == 1 {
		out.JSON = map[string]any{v.name: list[0]}
	}
	return out
}

var errNoVariant = errors.New("it is no variant of its type")

// variant is the one that the value in raw is.
func (t *dtype) variant(raw []byte) (v variant, ok bool) {
	if t.discr == nil {
		return t.variants[0], len(t.variants) == 1
	}
	tag, ok := t.discr.of(raw)
	if !ok || len(tag) == 0 || len(tag) > 8 {
		return variant{}, false
	}
	other := 64 - 8*len(tag)
	ok = false
	for _, c := range t.variants {
		switch {
		case c.isRest:
			v, ok = c, true
		case (uint64(c.value)^uintOf(tag))<<other == 0:
			return c, true
		}
	}
	return v, ok
}

// of returns the bytes of field f in the structure that raw holds.
func (f dfield) of(raw []byte) (value []byte, ok bool) {
	if !f.bits {
		ok = f.off >= 0 && f.typ.size >= 0 && f.off <= int64(len(raw))-f.typ.size
		if ok {
			value = raw[f.off : f.off+f.typ.size]
		}
		return value, ok
	}
	size := f.typ.size
	if f.bit < 0 || f.wide < 1 || f.wide > 8*size || size > 16 || f.bit > 8*int64(len(raw))-f.wide {
		return nil, false
	}
	value = make([]byte, size)
	for i := range 8 * size {
		from := f.bit + min(i, f.wide-1) // the highest bit is the sign
		if i >= f.wide && !f.typ.isSigned() {
			break
		}
		value[i/8] |= raw[from/8] >> (from % 8) & 1 << (i % 8)
	}
	return value, true
}

func (f *formatter) array(t *dtype, raw []byte, depth int) Value {
	n, elem := t.rows()
	if f.lang == langC && t.kind == typeArray && t.count == 0 {
		return unknown(errNoPlace) // its end is not told
	}
	isC := elem.isText() && f.lang == langC
	if isC || t.isCut {
		for i, c := range raw {
			if c == 0 && isC {
				raw = raw[:i]
				break
			}
		}
		return quoted(raw[:min(len(raw), int(f.bounds.bytes))], len(raw) > int(f.bounds.bytes))
	}
	return f.list("", elem, raw, n, depth)
}

// slice prints a Go slice: bytes as text, otherwise its first elements.
func (f *formatter) slice(t *dtype, at arch.Addr, n int64, depth int) Value {
	if at == 0 && n == 0 {
		return Value{Text: t.name + "(nil)", JSON: nil}
	}
	if t.elem == nil || n < 0 {
		return unknown(errNoPlace)
	}
	if t.elem.kind == typeUint && t.elem.size == 1 {
		return f.bytes(t, at, n)
	}
	shown := min(n, f.bounds.items)
	if t.elem.size > 1<<10 {
		shown = 0
	}
	raw := make([]byte, shown*t.elem.size)
	if err := f.mem.ReadMemory(at, raw); err != nil && len(raw) > 0 {
		return unknown(err)
	}
	return f.list(t.name, t.elem, raw, n, depth)
}

func (f *formatter) bytes(t *dtype, at arch.Addr, n int64) Value {
	b := make([]byte, min(n, f.bounds.bytes))
	if err := f.mem.ReadMemory(at, b); err != nil && len(b) > 0 {
		return unknown(err)
	}
	tail := ""
	if n > f.bounds.bytes {
		tail = "…"
	}
	if utf8.Valid(b) && strings.IndexFunc(string(b), unicode.IsControl) < 0 {
		return Value{Text: t.name + "(" + strconv.Quote(string(b)) + tail + ")", JSON: string(b) + tail}
	}
	s := fmt.Sprintf("%x", b) + tail
	return Value{Text: t.name + "{" + s + "}", JSON: s}
}

// list prints the elements that raw holds out of n.
func (f *formatter) list(name string, elem *dtype, raw []byte, n int64, depth int) Value {
	var parts []string
	var all []Part
	items := []any{}
	for i := int64(0); i < min(n, f.bounds.items) && (i+1)*elem.size <= int64(len(raw)); i++ {
		v := f.format(elem, raw[i*elem.size:(i+1)*elem.size], depth+1)
		parts = append(parts, v.Text)
		items = append(items, v.JSON)
		all = append(all, Part{Value: v})
		if f.budget <= 0 {
			break
		}
	}
	if int64(len(parts)) < n {
		parts = append(parts, fmt.Sprintf("… %d in all", n))
		items = append(items, "…")
	}
	return Value{Text: name + "{" + strings.Join(parts, ", ") + "}", JSON: items, Parts: all}
}
