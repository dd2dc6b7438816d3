package symbols

import (
	"encoding/binary"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// sequence is how a value of a library's or a language's type refers to elements that lie in a row elsewhere in memory. Offsets are within the value.
type sequence struct {
	addr   int64 // of the address of the first element
	length int64 // of how many there are; if isSpan is set,
	isSpan bool  // of the address behind the last one
	elem   *dtype
	isText bool // the elements are the bytes of a text
}

// sequenceTypes are C++'s and Rust's types by how their names begin, with the members that lead to the first element, and to the length or the end. Those of
// libstdc++, of libc++, and of Rust's library, whose Vec was another one up to 1.77.
var sequenceTypes = []struct {
	lang        language
	name        string
	addr, until string
	isSpan      bool
}{
	{langC, "vector<", "_M_impl._M_start", "_M_impl._M_finish", true},
	{langC, "vector<", "__begin_", "__end_", true},
	{langC, "span<", "_M_ptr", "_M_extent._M_extent_value", false},
	{langC, "span<", "__data_", "__size_", false},
	{langC, "initializer_list<", "_M_array", "_M_len", false},
	{langC, "initializer_list<", "__begin_", "__size_", false},
	{langRust, "Vec<", "buf.inner.ptr.pointer.pointer", "len", false},
	{langRust, "Vec<", "buf.ptr.pointer.pointer", "len", false},
	{langRust, "&[", "data_ptr", "length", false},
	{langRust, "&mut [", "data_ptr", "length", false},
}

// sequence tells of a type whether its values refer to elements, and how.
func (t *dtype) sequence(lang language) (s sequence, ok bool) {
	switch t.kind {
	case typeGoString:
		return sequence{length: 8, elem: octetType, isText: true}, true
	case typeGoSlice:
		return sequence{length: 8, elem: t.elem}, t.elem != nil
	case typeStruct:
	default:
		return s, false
	}
	if addr, length, ok := libraryText(lang, t); ok {
		return sequence{addr: addr, length: length, elem: octetType, isText: true}, true
	}
	for _, x := range sequenceTypes {
		if x.lang != lang || !strings.HasPrefix(t.under, x.name) {
			continue
		}
		addr, first, ok1 := t.walk(x.addr)
		until, last, ok2 := t.walk(x.until)
		if !ok1 || !ok2 || first.kind != typePointer || first.elem == nil || last.size != 8 || x.isSpan != (last.kind == typePointer) {
			continue
		}
		s = sequence{addr: addr, length: until, isSpan: x.isSpan, elem: first.elem}
		if lang == langRust && len(t.params) > 0 { // the address of a Vec is one of bytes
			s.elem = t.params[0]
		}
		return s, s.elem.size > 0 && s.elem.size <= 1<<12
	}
	return s, false
}

// walk finds a member of members, and its distance from the beginning.
func (t *dtype) walk(path string) (off int64, end *dtype, ok bool) {
	for _, name := range strings.Split(path, ".") {
		if t == nil || t.kind != typeStruct && t.kind != typeUnion {
			return 0, nil, false
		}
		more, f, ok := t.member(name, map[*dtype]bool{})
		if !ok || f.bits {
			return 0, nil, false
		}
		off, t = off+more, f.typ
	}
	return off, t, t != nil
}

// of reads where the elements are, and how many, from a value. ok is false if it is none.
func (s sequence) of(raw []byte) (at arch.Addr, n int64, ok bool) {
	if last := int64(len(raw)) - 8; s.addr < 0 || s.length < 0 || s.addr > last || s.length > last {
		return 0, 0, false
	}
	at, n = arch.Addr(binary.LittleEndian.Uint64(raw[s.addr:])), int64(binary.LittleEndian.Uint64(raw[s.length:]))
	if s.isSpan {
		if n -= int64(at); n%s.elem.size != 0 {
			return 0, 0, false
		}
		n /= s.elem.size
	}
	return at, n, n >= 0
}

// rustTexts are Rust's types of texts, and where they have the bytes.
var rustTexts = map[string]string{"String": "vec", "OsString": "inner.inner", "PathBuf": "inner.inner.inner"}

// libraryText returns the offsets of the address and the length in a library's string of type t.
func libraryText(lang language, t *dtype) (addr, length int64, ok bool) {
	switch {
	case lang == langC && strings.HasPrefix(t.under, "basic_string<char,"):
		return 0, 8, t.size == 32 // libstdc++, new ABI: pointer, length, local buffer
	case lang == langC && strings.HasPrefix(t.under, "basic_string_view<char,"):
		for _, names := range [][2]string{{"_M_str", "_M_len"}, {"__data_", "__size_"}, {"__data", "__size"}} { // of libstdc++, of libc++
			addr, first, ok1 := t.walk(names[0])
			length, n, ok2 := t.walk(names[1])
			if ok1 && ok2 && first.size == 8 && n.size == 8 {
				return addr, length, t.size == 16
			}
		}
		return 0, 0, false
	case lang == langRust && (t.under == "&str" || t.under == "&mut str"):
		return 0, 8, t.size == 16
	case lang == langRust && rustTexts[t.under] != "" && t.kind == typeStruct:
		off, vec, ok := t.walk(rustTexts[t.under])
		if !ok {
			return 0, 0, false
		}
		s, ok := vec.sequence(lang)
		return off + s.addr, off + s.length, ok && s.elem.size == 1
	}
	return 0, 0, false
}

// elements prints the first elements of a sequence.
func (f *formatter) elements(t *dtype, s sequence, raw []byte, depth int) Value {
	at, n, ok := s.of(raw)
	if !ok {
		return unknown(errNoPlace)
	}
	first := make([]byte, min(n, f.bounds.items)*s.elem.size)
	if len(first) > 0 {
		if err := f.mem.ReadMemory(at, first); err != nil {
			return unknown(err)
		}
	}
	return f.list("", s.elem, first, n, depth)
}

// sequence does as formatter.elements. The number of bytes is not known beforehand: those that are there are read, up to the end of a page.
func (r *reader) sequence(x sequence, s source, depth int) {
	most := r.bounds.items * x.elem.size
	r.elements(x.elem, r.read(Read{Kind: ReadArray, Addr: r.word(s, x.addr), Max: most}), r.bounds.items, depth)
	r.word(s, x.length)
}
