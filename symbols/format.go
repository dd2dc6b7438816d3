package symbols

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/symbols/walk"
)

// formatter prints one value.
type formatter struct {
	mem    arch.Memory
	lang   language
	budget int // fields and elements that are left
	bounds bounds
	table  *Table
	mod    *Module
	brief  bool        // see Param.Brief
	walks  walk.Reader // of containers
}

func (f *formatter) format(t *dtype, raw []byte, depth int) Value {
	if f.budget--; f.budget < 0 || depth > f.bounds.depth {
		return Value{Text: "…", JSON: "…"}
	}
	if int64(len(raw)) < t.size {
		return unknown(errNoPlace)
	}
	raw = raw[:t.size]
	if p := t.printer(f.lang); p != nil {
		return p.format(f, raw, depth)
	}
	switch t.kind {
	case typeInt, typeUint, typeBool, typeChar, typeFloat, typeComplex, typeEnum:
		return f.scalar(t, raw)
	case typePointer, typeGoPointer:
		return f.pointer(t, raw)
	case typeReference:
		return f.reference(t, raw, depth)
	case typeStruct, typeUnion:
		return f.structure(t, raw, depth)
	case typeSum:
		return f.sum(t, raw, depth)
	case typeArray, typeVector:
		return f.array(t, raw, depth)
	case typeGoString:
		return f.text(arch.Addr(uintOf(raw)), uintOf(raw[8:]))
	case typeGoSlice:
		return f.slice(t, arch.Addr(uintOf(raw)), intOf(raw[8:16]), depth)
	case typeGoInterface:
		return f.goInterface(uintOf(raw), uintOf(raw[8:]))
	}
	if t.size == 0 && (t.kind == typeUnknown || t.kind == typeVoid || t.kind == typeFunc) {
		return unknown(errNoType)
	}
	s := fmt.Sprintf("0x%x", raw)
	return Value{Text: s, JSON: s}
}

var errNoType = errors.New("its type is not understood")

func (f *formatter) scalar(t *dtype, raw []byte) Value {
	if t.size == 0 && t.kind != typeEnum { // Rust's ()
		return Value{Text: t.name}
	}
	switch t.kind {
	case typeBool:
		return literal(uintOf(raw) != 0)
	case typeUint:
		if t.size > 8 {
			return wide(raw)
		}
		return literal(uintOf(raw))
	case typeChar:
		return f.char(t, raw)
	case typeFloat:
		if v, ok := floatOf(raw, t.isQuad()); ok {
			return float(v, len(raw))
		}
		return unknown(errNoPlace)
	case typeComplex:
		re, ok1 := floatOf(raw[:len(raw)/2], t.isQuad())
		im, ok2 := floatOf(raw[len(raw)/2:], t.isQuad())
		if !ok1 || !ok2 {
			return unknown(errNoPlace)
		}
		s := strconv.FormatComplex(complex(re, im), 'g', -1, int(8*min(t.size, 16)))
		return Value{Text: s, JSON: s}
	case typeEnum:
		v := intOf(raw)
		if name, ok := t.enum[v]; ok {
			return Value{Text: name, JSON: name}
		}
		if name, ok := t.enum[int64(uintOf(raw))]; ok {
			return Value{Text: name, JSON: name}
		}
		if names := t.flags(uintOf(raw)); f.lang == langC && names != "" {
			return Value{Text: names, JSON: names}
		}
		if t.isUnsigned {
			return literal(uintOf(raw))
		}
		return literal(v)
	}
	if t.size > 8 {
		return wide(raw)
	}
	return literal(intOf(raw))
}

// flags are the enumerators that make up v, if each of them is a bit of its own; empty if they make up another number.
func (t *dtype) flags(v uint64) string {
	var names []string
	for bit := uint64(1); bit != 0 && bit <= v; bit <<= 1 {
		if name, ok := t.enum[int64(bit)]; ok && v&bit != 0 {
			names, v = append(names, name), v&^bit
		}
	}
	for x := range t.enum {
		if x&(x-1) != 0 {
			return ""
		}
	}
	if v != 0 {
		return ""
	}
	return strings.Join(names, "|")
}

func literal[T bool | int64 | uint64](v T) Value { return Value{Text: fmt.Sprint(v), JSON: v} }

// wide is a number of more than 8 bytes, in hexadecimal.
func wide(raw []byte) Value {
	s := fmt.Sprintf("0x%016x%016x", uintOf(raw[8:]), uintOf(raw))
	return Value{Text: s, JSON: s}
}

// float prints v; what JSON can't say as a number becomes a string.
func float(v float64, size int) Value {
	bits := 64
	if size == 4 {
		bits = 32
	}
	s := strconv.FormatFloat(v, 'g', -1, bits)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return Value{Text: s, JSON: s}
	}
	return Value{Text: s, JSON: v}
}

// char prints a character as C and gdb do: number and letter. Small integers
// that C calls char (uint8_t) stay numbers.
func (f *formatter) char(t *dtype, raw []byte) Value {
	v := uintOf(raw)
	if f.lang == langRust {
		s := string(rune(v))
		return Value{Text: strconv.QuoteRune(rune(v)), JSON: s}
	}
	n := intOf(raw)
	if t.isUnsigned {
		n = int64(v)
	}
	if t.name != "char" && t.name != "const char" || v < ' ' || v > '~' {
		return literal(n)
	}
	return Value{Text: fmt.Sprintf("%d %s", n, strconv.QuoteRune(rune(v))), JSON: n}
}

// isSigned reports whether t is a whole number that may be negative.
func (t *dtype) isSigned() bool {
	switch t.kind {
	case typeInt:
		return true
	case typeChar, typeEnum:
		return !t.isUnsigned
	}
	return false
}

func (f *formatter) pointer(t *dtype, raw []byte) Value {
	v := uintOf(raw)
	if t.kind == typePointer && v != 0 && f.lang == langC && t.elem.isText() {
		if s, ok := f.cString(arch.Addr(v)); ok {
			return s
		}
	}
	if v == 0 && f.lang == langGo {
		return Value{Text: "nil", JSON: nil}
	}
	return hexValue(v)
}

func hexValue(v uint64) Value {
	s := fmt.Sprintf("%#x", v)
	return Value{Text: s, JSON: s}
}

// isText reports whether a C pointer to t is printed as a string.
func (t *dtype) isText() bool {
	name := strings.TrimPrefix(strings.TrimPrefix(t.name, "const "), "volatile ")
	return t.kind == typeChar && t.size == 1 && (name == "char" || strings.HasSuffix(name, "char8_t"))
}

// cString reads a NUL-terminated string.
func (f *formatter) cString(a arch.Addr) (Value, bool) {
	b := f.prefix(a, int(f.bounds.bytes)+1)
	if len(b) == 0 {
		return Value{}, false
	}
	for i, c := range b {
		if c == 0 {
			return quoted(b[:i], false), true
		}
	}
	return quoted(b[:min(len(b), int(f.bounds.bytes))], true), true
}

// prefix reads up to n bytes at a, fewer at the end of a mapping.
func (f *formatter) prefix(a arch.Addr, n int) []byte {
	b := make([]byte, n)
	if f.mem.ReadMemory(a, b) == nil {
		return b
	}
	n = min(n, int(pageSize-uint64(a)%pageSize))
	if f.mem.ReadMemory(a, b[:n]) != nil {
		return nil
	}
	return b[:n]
}

// quoted is a string literal; more says that the string goes on, which an ellipsis shows.
func quoted(b []byte, more bool) Value {
	s, tail := string(b), ""
	if more {
		for len(s) > 0 && !utf8.ValidString(s[max(0, len(s)-3):]) && len(s) > len(b)-3 {
			s = s[:len(s)-1] // a character cut in two
		}
		tail = "…"
	}
	return Value{Text: strconv.Quote(s) + tail, JSON: strings.ToValidUTF8(s, "\uFFFD") + tail}
}

// text prints a string of known length.
func (f *formatter) text(a arch.Addr, n uint64) Value {
	if n == 0 {
		return Value{Text: `""`, JSON: ""}
	}
	b := make([]byte, min(n, uint64(f.bounds.bytes)))
	if err := f.mem.ReadMemory(a, b); err != nil {
		return unknown(err)
	}
	return quoted(b, n > uint64(f.bounds.bytes))
}

// reference prints the value a reference stands for.
func (f *formatter) reference(t *dtype, raw []byte, depth int) Value {
	at := arch.Addr(uintOf(raw))
	if t.elem.size <= 0 || t.elem.size > 1<<12 {
		return hexValue(uint64(at))
	}
	b := make([]byte, t.elem.size)
	if f.mem.ReadMemory(at, b) != nil {
		return hexValue(uint64(at))
	}
	return f.format(t.elem, b, depth+1)
}
