package symbols

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/symbols/walk"
)

// container shows elements that are not simply in a row. In a brief form it is only how many there are.
type container struct {
	name   string // what stands before the brackets
	header *dtype // nil if a value is the container; else its address is
	length int64  // of the word that tells how many elements there are; -1 if count does, -2 if nothing does
	count  func(raw []byte) (int64, bool)
	// find returns the first elements, want of them, which there are.
	find func(r *walk.Reader, raw []byte, want int64) ([]walk.Entry, error)
	// each shows all elements; nil where keys are not looked for.
	each     func(r *walk.Reader, raw []byte, visit walk.Visit) error
	key, val element // val has no type if there are only keys
	isHashed bool    // the order in memory means nothing
}

const (
	isCounted   = -1
	isUncounted = -2
)

// element is what lies off bytes behind an entry's place, or the address of which does.
type element struct {
	typ        *dtype
	off        int64
	isIndirect bool
}

func (c *container) format(f *formatter, raw []byte, depth int) Value {
	raw, n, err := c.begin(f, raw)
	switch {
	case err != nil:
		return unknown(err)
	case n < 0 && c.length != isUncounted:
		return unknown(errLength)
	case raw == nil:
		return Value{Text: c.name + "(nil)"}
	case f.brief && c.length == isUncounted:
		return Value{Text: c.name + "{…}", JSON: []any{"…"}}
	case f.brief:
		return lengthOnly(c.name, n, c.val.typ != nil)
	}
	var entries []walk.Entry
	most := f.bounds.items
	want := min(n, most)
	if c.length == isUncounted { // one more tells that there are more
		want = most + 1
	}
	if want != 0 {
		if entries, err = c.find(&f.walks, raw, want); err != nil {
			return unknown(err)
		}
	}
	if c.length == isUncounted {
		n = int64(len(entries))
		entries = entries[:min(n, most)]
	}
	return c.list(f, entries, n, depth)
}

// begin returns the bytes of the container, as far as they are wanted, nil if there is none, and how many elements it has.
func (c *container) begin(f *formatter, raw []byte) ([]byte, int64, error) {
	if c.header != nil {
		at := arch.Addr(uintOf(raw))
		if at == 0 {
			return nil, 0, nil
		}
		size := max(c.header.size, 8)
		if f.brief {
			size = 8
		}
		raw = make([]byte, size)
		if err := f.mem.ReadMemory(at, raw); err != nil {
			return nil, 0, err
		}
	}
	switch c.length {
	case isUncounted:
		return raw, -1, nil
	case isCounted:
		n, ok := c.count(raw)
		if !ok {
			return nil, 0, errLength
		}
		return raw, n, nil
	}
	word, ok := slice(raw, c.length, 8)
	if !ok {
		return nil, 0, errNoPlace
	}
	return raw, intOf(word), nil
}

func (c *container) reads(r *reader, s source, _ int) {
	r.hasFailed = r.hasFailed || !r.brief
	if c.header != nil {
		r.read(Read{Addr: r.word(s, 0), Max: 8})
	}
}

// read formats one part of an entry.
func (e element) read(f *formatter, at arch.Addr, depth int) Value {
	if e.typ.size > 1<<12 {
		return Value{Text: "…", JSON: "…"}
	}
	at = at.Add(e.off)
	if e.isIndirect {
		var word [8]byte
		if err := f.mem.ReadMemory(at, word[:]); err != nil {
			return unknown(err)
		}
		at = arch.Addr(uintOf(word[:]))
	}
	raw := make([]byte, e.typ.size)
	if len(raw) > 0 {
		if err := f.mem.ReadMemory(at, raw); err != nil {
			return unknown(err)
		}
	}
	return f.format(e.typ, raw, depth+1)
}

// list prints entries out of n.
func (c *container) list(f *formatter, entries []walk.Entry, n int64, depth int) Value {
	var keys, vals []Value
	for _, e := range entries {
		if f.budget <= 0 {
			break
		}
		keys = append(keys, c.key.read(f, e.Key, depth))
		if c.val.typ != nil {
			vals = append(vals, c.val.read(f, e.Val, depth))
		}
	}
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	if c.isHashed {
		slices.SortStableFunc(order, func(a, b int) int { return keys[a].compare(keys[b]) })
	}
	var texts []string
	list, object := []any{}, map[string]any{}
	for _, i := range order {
		if vals == nil {
			texts, list = append(texts, keys[i].Text), append(list, keys[i].JSON)
			continue
		}
		texts, list = append(texts, keys[i].Text+": "+vals[i].Text), append(list, []any{keys[i].JSON, vals[i].JSON})
		if name, ok := keys[i].asName(); ok {
			object[name] = vals[i].JSON
		}
	}
	isObject := c.val.typ != nil && len(object) == len(list)
	if int64(len(texts)) < n {
		texts, list = append(texts, c.more(n)), append(list, "…")
		object["…"] = n
	}
	out := Value{Text: c.name + "{" + strings.Join(texts, ", ") + "}", JSON: list}
	if isObject {
		out.JSON = object
	}
	return out
}

func (c *container) more(n int64) string {
	if c.length == isUncounted {
		return "…"
	}
	return fmt.Sprintf("… %d in all", n)
}

// asName is how an object in JSON calls a key: a text or a number.
func (v Value) asName() (string, bool) {
	switch k := v.JSON.(type) {
	case string:
		return k, v.Err == nil
	case int64, uint64, float64, bool:
		return fmt.Sprint(k), true
	}
	return "", false
}

// compare orders keys: numbers by their size, all others by their text.
func (v Value) compare(w Value) int {
	switch a := v.JSON.(type) {
	case int64:
		if b, ok := w.JSON.(int64); ok {
			return cmp.Compare(a, b)
		}
	case uint64:
		if b, ok := w.JSON.(uint64); ok {
			return cmp.Compare(a, b)
		}
	case float64:
		if b, ok := w.JSON.(float64); ok {
			return cmp.Compare(a, b)
		}
	}
	return cmp.Compare(v.Text, w.Text)
}

// paths walks to members until one is missing; those with bars between them are the names of several versions.
func (t *dtype) paths(names ...string) (offs []int64, types []*dtype, ok bool) {
	for _, alternatives := range names {
		found := false
		for _, name := range strings.Split(alternatives, "|") {
			if off, typ, ok := t.walk(name); ok {
				offs, types, found = append(offs, off), append(types, typ), true
				break
			}
		}
		if !found {
			return nil, nil, false
		}
	}
	return offs, types, true
}

// word is the word at off of raw, 0 if there is none.
func word(raw []byte, off int64) uint64 {
	b, ok := slice(raw, off, 8)
	if !ok {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

func address(raw []byte, off int64) arch.Addr { return arch.Addr(word(raw, off)) }

// behind is where a t lies that follows so many bytes.
func (t *dtype) behind(off int64) int64 {
	align := max(t.align, 1)
	return (off + align - 1) / align * align
}

// isCount reports whether t is a number of 8 bytes without a sign.
func (t *dtype) isCount() bool { return t.kind == typeUint && t.size == 8 }

// pairOf is the pair of a key and a value that libstdc++ has in the nodes of a map.
func (t *dtype) pairOf() (pair *dtype, off []int64, ok bool) {
	_, tables, ok := t.paths("_M_t|_M_h")
	if !ok || len(tables[0].params) < 2 {
		return nil, nil, false
	}
	pair = tables[0].params[1]
	off, types, ok := pair.paths("first", "second")
	return pair, off, ok && types[1].size == t.params[1].size
}

// inNodes puts the elements of a C++ container of t behind so many bytes of a node: one type, or a pair of two.
func (c *container) inNodes(t *dtype, off int64, isMap bool) bool {
	if len(t.params) < 1 || isMap && len(t.params) < 2 {
		return false
	}
	key := t.params[0]
	c.key = element{typ: key, off: key.behind(off)}
	if pair, in, ok := t.pairOf(); isMap && ok {
		off = pair.behind(off)
		c.key.off, c.val = off+in[0], element{typ: t.params[1], off: off + in[1]}
	} else if isMap {
		val := t.params[1]
		off = max(key.behind(off), val.behind(off))
		c.key.off = off
		c.val = element{typ: val, off: off + val.behind(key.size)}
	}
	return true
}
