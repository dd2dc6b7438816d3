package symbols

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gokprobe/gokprobe/arch"
)

func (f *formatter) structure(t *dtype, raw []byte, depth int) Value {
	if v, ok := f.library(t, raw); ok {
		return v
	}
	var parts []string
	object := map[string]any{}
	for i, m := range t.field {
		if m.off < 0 || m.off+m.typ.size > int64(len(raw)) || m.bits {
			continue
		}
		v := f.format(m.typ, raw[m.off:m.off+m.typ.size], depth+1)
		name := m.name
		if m.base || name == "" {
			name = m.typ.name
		}
		parts = append(parts, name+": "+v.Text)
		object[name] = v.JSON
		if f.budget <= 0 && i+1 < len(t.field) {
			parts = append(parts, "…")
			break
		}
	}
	text := "{" + strings.Join(parts, ", ") + "}"
	if f.lang == langGo && depth == 0 {
		text = t.name + text
	}
	return Value{Text: text, JSON: object}
}

// library prints the strings of C++ and Rust, which everybody wants as text.
func (f *formatter) library(t *dtype, raw []byte) (Value, bool) {
	switch {
	case f.lang == langC && strings.HasPrefix(t.under, "basic_string<char,"):
		// libstdc++, new ABI: pointer, length, local buffer. A view is length, pointer.
		if len(raw) == 32 {
			return f.text(arch.Addr(uintOf(raw)), uintOf(raw[8:16])), true
		}
	case f.lang == langC && strings.HasPrefix(t.under, "basic_string_view<char,"):
		return f.text(arch.Addr(uintOf(raw[8:])), uintOf(raw)), true
	case f.lang == langRust && (t.under == "&str" || t.under == "&mut str") && len(raw) == 16:
		return f.text(arch.Addr(uintOf(raw)), uintOf(raw[8:])), true
	}
	return Value{}, false
}

func (f *formatter) array(t *dtype, raw []byte, depth int) Value {
	if t.elem.isText() && f.lang == langC {
		for i, c := range raw {
			if c == 0 {
				raw = raw[:i]
				break
			}
		}
		return quoted(raw[:min(len(raw), maxString)], len(raw) > maxString)
	}
	return f.list("", t.elem, raw, t.count, depth)
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
	shown := min(n, maxElems)
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
	b := make([]byte, min(n, maxString))
	if err := f.mem.ReadMemory(at, b); err != nil && len(b) > 0 {
		return unknown(err)
	}
	tail := ""
	if n > maxString {
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
	items := []any{}
	for i := int64(0); i < min(n, maxElems) && (i+1)*elem.size <= int64(len(raw)); i++ {
		v := f.format(elem, raw[i*elem.size:(i+1)*elem.size], depth+1)
		parts = append(parts, v.Text)
		items = append(items, v.JSON)
		if f.budget <= 0 {
			break
		}
	}
	if int64(len(parts)) < n {
		parts = append(parts, fmt.Sprintf("… %d in all", n))
		items = append(items, "…")
	}
	return Value{Text: name + "{" + strings.Join(parts, ", ") + "}", JSON: items}
}

// goInterface prints an interface value: the dynamic type and, if that is a
// pointer, its value.
func (f *formatter) goInterface(tab, data uint64) Value {
	if tab == 0 {
		return Value{Text: "nil", JSON: nil}
	}
	name, ok := f.goTypeName(tab)
	if !ok {
		name = "interface"
	}
	if strings.HasPrefix(name, "*") {
		name = "(" + name + ")"
	}
	s := fmt.Sprintf("%s(%#x)", name, data)
	return Value{Text: s, JSON: s}
}

// goTypeName names the type behind an interface's first word, which is an
// abi.Type or, for an interface with methods, an abi.ITab that holds one
// (src/internal/abi/type.go, iface.go).
func (f *formatter) goTypeName(tab uint64) (string, bool) {
	if f.mod == nil {
		return "", false
	}
	lo, hi, ok := f.mod.goTypes(f.mem)
	if !ok {
		return "", false
	}
	for _, at := range []uint64{tab, tab + 8} {
		typ := at
		if at != tab {
			b := f.prefix(arch.Addr(at), 8)
			if len(b) < 8 {
				return "", false
			}
			typ = binary.LittleEndian.Uint64(b)
		}
		if typ < lo || typ >= hi {
			continue
		}
		if name, ok := f.rtypeName(typ, lo, hi); ok {
			return name, true
		}
	}
	return "", false
}

// rtypeName reads the name of the abi.Type at typ; names are offsets from lo.
func (f *formatter) rtypeName(typ, lo, hi uint64) (string, bool) {
	const tflagAt, strAt, extraStar = 20, 40, 2
	b := f.prefix(arch.Addr(typ), 48)
	if len(b) < 48 {
		return "", false
	}
	at := lo + uint64(binary.LittleEndian.Uint32(b[strAt:]))
	if at >= hi {
		return "", false
	}
	nb := f.prefix(arch.Addr(at), 256) // flag byte, length varint, text
	if len(nb) < 2 {
		return "", false
	}
	n, used := binary.Uvarint(nb[1:])
	if used <= 0 || n == 0 || 1+used+int(min(n, 256)) > len(nb) {
		return "", false
	}
	name := string(nb[1+used : 1+used+int(n)])
	if b[tflagAt]&extraStar != 0 {
		name = strings.TrimPrefix(name, "*")
	}
	return name, utf8.ValidString(name)
}

// goTypes is the address range of a Go program's type descriptors:
// moduledata.types and etypes (Go 1.20 and later).
func (m *Module) goTypes(mem arch.Memory) (lo, hi uint64, ok bool) {
	pclntab, data := m.img.pclntabOnce()
	if data == nil {
		return 0, 0, false
	}
	md := m.img.moduledata(pclntab)
	if md == 0 {
		return 0, 0, false
	}
	const typesAt = 296
	var b [16]byte
	if mem.ReadMemory(m.addr(md+typesAt), b[:]) != nil {
		return 0, 0, false
	}
	lo, hi = binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])
	return lo, hi, lo < hi && hi-lo < 1<<32
}
