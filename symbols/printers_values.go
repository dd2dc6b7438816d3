package symbols

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/symbols/walk"
)

// owns makes an owner whose pointer is at a path. into is where it leads to the object, nothing if to its beginning; count is where a weak pointer has the
// address of a block that counts, within bytes behind the beginning.
func owns(path, into, count string, within int64) maker {
	return maker{make: func(lang language, t *dtype) printer {
		offs, ptrs, ok := t.paths(path)
		if !ok || ptrs[0].kind != typePointer || ptrs[0].elem == nil || lang == langC && strings.Contains(t.under, "[") { // of an array
			return nil
		}
		x := owner{addr: offs[0], elem: ptrs[0].elem, null: "nullptr"}
		if into != "" {
			in, objects, ok := x.elem.paths(into)
			if !ok {
				return nil
			}
			x.elem, x.into = objects[0], in[0]
		}
		if count != "" {
			block, _, ok := t.paths(count)
			if !ok {
				return nil
			}
			x.isWeak, x.count, x.within = true, block[0], within
		}
		return x
	}}
}

// uniquePointer makes the owner of a std::unique_ptr whose deleter has no data.
func uniquePointer(_ language, t *dtype) printer {
	if t.size != 8 || len(t.params) == 0 || !t.beginsWith(t.params[0], 0) { // its pointer may be a class, or a number
		return nil
	}
	return owner{elem: t.params[0], null: "nullptr"}
}

// beginsWith tells whether the first thing in a t, in however many structures, is a pointer to elem.
func (t *dtype) beginsWith(elem *dtype, depth int) bool {
	if t.kind == typePointer {
		return t.elem == elem || t.elem != nil && t.elem.name == elem.name && t.elem.size == elem.size
	}
	return depth < deepest && slices.ContainsFunc(t.field, func(f dfield) bool { return f.off == 0 && !f.bits && f.typ.beginsWith(elem, depth+1) })
}

// box makes the owner of a Rust Box, which is a pointer.
func box(_ language, t *dtype) printer {
	if t.kind != typePointer || t.elem == nil {
		return nil
	}
	return owner{elem: t.elem, null: "0x0"}
}

func optional(_ language, t *dtype) printer {
	for _, names := range [][2]string{{"_M_payload._M_engaged", "_M_payload._M_payload._M_value|_M_payload._M_payload"}, {"__engaged_", "__val_"}} {
		if o, types, ok := t.paths(names[0], names[1]); ok && types[0].size == 1 {
			return perhaps{o[0], inner{o[1], types[1]}}
		}
	}
	return nil
}

func cxxVariant(_ language, t *dtype) printer {
	for _, names := range [][2]string{{"_M_index", "_M_u"}, {"__impl.__index|__impl_.__index", "__impl.__data|__impl_.__data"}} {
		if o, types, ok := t.paths(names[0], names[1]); ok && types[0].size < 8 {
			return oneOf{o[0], types[0].size, o[1], t.params}
		}
	}
	return nil
}

// tuple makes the printer of a std::tuple, whose elements are in base classes that are numbered. GCC does not tell the types that it was made for.
func tuple(_ language, t *dtype) printer {
	var all together
	n := 0
	var in func(t *dtype, off int64, depth int)
	in = func(t *dtype, off int64, depth int) {
		stem := t.stem()
		if (stem == "_Tuple_impl" || stem == "__tuple_leaf") && len(t.field) > 0 {
			n++
		}
		for _, f := range t.field {
			switch {
			case f.isBase && depth < deepest || f.name == "__base_":
				in(f.typ, off+f.off, depth+1)
			case stem == "_Head_base" && f.name == "_M_head_impl", stem == "__tuple_leaf" && f.name == "__value_":
				digits, _, _ := strings.Cut(strings.TrimPrefix(t.under, stem+"<"), ",")
				i, err := strconv.Atoi(strings.TrimRight(digits, "ulUL"))
				if err != nil || i < 0 || i >= deepest {
					continue
				}
				for len(all) <= i {
					all = append(all, inner{})
				}
				all[i] = inner{off + f.off, f.typ}
			}
		}
	}
	in(t, 0, 0)
	if n == 0 || n != len(all) || slices.ContainsFunc(all, func(x inner) bool { return x.typ == nil }) {
		return nil
	}
	return all
}

func stdFunction(_ language, t *dtype) printer {
	o, _, ok := t.paths("_M_manager", "_M_invoker", "_M_functor")
	if !ok {
		return nil
	}
	return functor{o[0], o[1], o[2]}
}

// bitset makes the printer of a std::bitset: its bits as a number in binary.
func bitset(_ language, t *dtype) printer {
	o, words, ok := t.paths("_M_w|__first_")
	_, rest, _ := strings.Cut(t.under, "<")
	n, err := strconv.Atoi(strings.TrimRight(rest, "ulUL >"))
	if !ok || err != nil || n <= 0 || int64(n) > 8*words[0].size {
		return nil
	}
	return bits{o[0], words[0].size, n}
}

// bits shows n bits as a text of so many characters.
type bits struct {
	off, size int64
	n         int
}

func (x bits) format(f *formatter, raw []byte, _ int) Value {
	bytes, ok := slice(raw, x.off, x.size)
	if !ok {
		return unknown(errNoPlace)
	}
	var b strings.Builder
	shown := min(x.n, int(f.bounds.bytes))
	for i := x.n - 1; i >= x.n-shown; i-- {
		b.WriteByte('0' + bytes[i/8]>>(i%8)&1)
	}
	if shown < x.n {
		b.WriteString("…")
	}
	return Value{Text: "0b" + b.String(), JSON: b.String()}
}

func (bits) reads(*reader, source, int) {}

// bools shows the bits of a std::vector<bool> of libstdc++, which lie between two iterators, each an address and a number of bits behind that.
type bools struct{ first, last int64 }

// boolVector makes the printer of one.
func boolVector(_ language, t *dtype) printer {
	const iterator = "_M_impl._M_start._M_p|_M_impl._M_start._M_offset|_M_impl._M_finish._M_p|_M_impl._M_finish._M_offset"
	if !strings.HasPrefix(t.under, "vector<bool") {
		return nil
	}
	var at [4]int64
	for i, path := range strings.Split(iterator, "|") {
		off, typ, ok := t.walk(path)
		if !ok || typ.size != int64(8-4*(i%2)) {
			return nil
		}
		at[i] = off
	}
	if at[1] != at[0]+8 || at[3] != at[2]+8 {
		return nil
	}
	return bools{at[0], at[2]}
}

// span is the first bit and how many there are.
func (x bools) span(raw []byte) (at arch.Addr, bit, n int64, ok bool) {
	first, ok1 := slice(raw, x.first, 12)
	last, ok2 := slice(raw, x.last, 12)
	if !ok1 || !ok2 {
		return 0, 0, 0, false
	}
	bit, end := int64(uintOf(first[8:])), int64(uintOf(last[8:]))
	bytes := int64(uintOf(last[:8]) - uintOf(first[:8]))
	if bit > 63 || end > 63 || bytes < 0 || bytes > 1<<56 {
		return 0, 0, 0, false
	}
	n = 8*bytes + end - bit
	return arch.Addr(uintOf(first[:8])), bit, n, n >= 0
}

func (x bools) format(f *formatter, raw []byte, depth int) Value {
	at, bit, n, ok := x.span(raw)
	if !ok {
		return unknown(walk.ErrTorn)
	}
	shown := make([]byte, min(n, f.bounds.items))
	words := make([]byte, (bit+int64(len(shown))+7)/8)
	if n > 0 {
		if err := f.mem.ReadMemory(at, words); err != nil {
			return unknown(err)
		}
	}
	for i := range shown {
		k := bit + int64(i)
		shown[i] = words[k/8] >> (k % 8) & 1
	}
	return f.list("", boolType, shown, n, depth)
}

func (x bools) reads(r *reader, s source, _ int) {
	most := (63+r.bounds.items)/8 + 1
	r.read(Read{Kind: ReadArray, Addr: r.word(s, x.first), Max: most})
	r.word(s, x.last)
}

var boolType = &dtype{kind: typeBool, name: "bool", under: "bool", size: 1, align: 1}

// measured shows a number and its unit.
type measured struct {
	inner
	unit string
}

func (x measured) format(f *formatter, raw []byte, depth int) Value {
	v := x.inner.format(f, raw, depth)
	if v.Err == nil {
		v.Text += x.unit
	}
	return v
}

var ratio = regexp.MustCompile(`ratio<(\d+)[lL]*, *(\d+)[lL]*>`)

var units = map[string]string{"1/1000000000": "ns", "1/1000000": "us", "1/1000": "ms", "1/1": "s", "60/1": "min", "3600/1": "h", "86400/1": "d"}

func chronoDuration(_ language, t *dtype) printer {
	o, types, ok := t.paths("__r|__rep_")
	m := ratio.FindStringSubmatch(t.under)
	if !ok || m == nil {
		return nil
	}
	unit, ok := units[m[1]+"/"+m[2]]
	if !ok {
		unit = "[" + m[1] + "/" + m[2] + "]s"
	}
	return measured{inner{o[0], types[0]}, unit}
}

func rustDuration(_ language, t *dtype) printer {
	o, types, ok := t.paths("secs", "nanos.__0|nanos")
	if !ok || len(t.field) != 2 || !types[0].isCount() || types[1].kind != typeUint || types[1].size != 4 { // others have one with a sign
		return nil
	}
	return own(func(raw []byte) Value {
		secs, nanos := word(raw, o[0]), uint64(0)
		if b, ok := slice(raw, o[1], 4); ok {
			nanos = uintOf(b)
		}
		if nanos >= 1e9 {
			return unknown(errNoVariant)
		}
		whole, part, digits, unit := secs, nanos, 9, "s"
		switch {
		case secs > 0:
		case nanos >= 1e6:
			whole, part, digits, unit = nanos/1e6, nanos%1e6, 6, "ms"
		case nanos >= 1e3:
			whole, part, digits, unit = nanos/1e3, nanos%1e3, 3, "µs"
		default:
			whole, part, unit = nanos, 0, "ns"
		}
		s := strconv.FormatUint(whole, 10)
		if part > 0 {
			s += "." + strings.TrimRight(fmt.Sprintf("%0*d", digits, part), "0")
		}
		v := Value{Text: s + unit, JSON: s + unit}
		if secs < 1<<33 {
			v.JSON = secs*1e9 + nanos
		}
		return v
	})
}

func goDuration(_ language, t *dtype) printer {
	if t.kind != typeInt || t.size != 8 {
		return nil
	}
	return own(func(raw []byte) Value {
		d := time.Duration(intOf(raw[:8]))
		return Value{Text: d.String(), JSON: int64(d)}
	})
}

// goTime makes the printer of a time.Time: in UTC, as its place may be anywhere (src/time/time.go).
func goTime(_ language, t *dtype) printer {
	o, _, ok := t.paths("wall", "ext")
	if !ok {
		return nil
	}
	return own(func(raw []byte) Value {
		const hasMonotonic, nanoBits, since1885 = 1 << 63, 30, 59453308800
		wall, ext := word(raw, o[0]), int64(word(raw, o[1]))
		sec, nano := ext, wall&(1<<nanoBits-1) // since the year 1
		if wall&hasMonotonic != 0 {
			sec = since1885 + int64(wall<<1>>(nanoBits+1))
		}
		const unix, latest = 62135596800, 315537897600
		if nano >= 1e9 || sec < 0 || sec >= latest {
			return unknown(errNoVariant)
		}
		s := time.Unix(sec-unix, int64(nano)).UTC().Format(time.RFC3339Nano)
		return Value{Text: s, JSON: s}
	})
}

func atomicBool(_ language, t *dtype) printer {
	o, types, ok := t.paths("v")
	if !ok {
		return nil
	}
	return own(func(raw []byte) Value {
		b, ok := slice(raw, o[0], types[0].size)
		if !ok {
			return unknown(errNoPlace)
		}
		return literal(uintOf(b) != 0)
	})
}

// shortText shows a string of libc++: it has its text in itself, unless the lowest bit is set.
type shortText struct{}

func libcxxString(_ language, t *dtype) printer {
	o, _, ok := t.paths("__r_.__value_.__l.__data_|__rep_.__l.__data_", "__r_.__value_.__l.__size_|__rep_.__l.__size_", "__r_.__value_.__s.__data_|__rep_.__s.__data_")
	if t.size != 24 || !strings.HasPrefix(t.under, "basic_string<char,") || !ok || o[0] != 16 || o[1] != 8 || o[2] != 1 { // there is another layout
		return nil
	}
	return shortText{}
}

func (shortText) format(f *formatter, raw []byte, _ int) Value {
	if len(raw) < 24 {
		return unknown(errNoPlace)
	}
	if raw[0]&1 != 0 {
		return f.text(arch.Addr(word(raw, 16)), word(raw, 8))
	}
	n := int(raw[0] >> 1)
	if n > 22 {
		return unknown(errLength)
	}
	return quoted(raw[1:1+n], false)
}

func (shortText) reads(r *reader, s source, _ int) { r.text(s, 16, 8) }
