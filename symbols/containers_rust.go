package symbols

import (
	"slices"

	"github.com/gokprobe/gokprobe/symbols/walk"
)

// brown makes the container of a Rust HashMap or HashSet, whose table is at a path.
func brown(path string, isMap bool) maker {
	return maker{make: func(_ language, t *dtype) printer {
		_, tables, ok1 := t.paths(path)
		o, words, ok2 := t.paths(path+".table.ctrl.pointer", path+".table.bucket_mask", path+".table.items")
		if !ok1 || !ok2 || !words[1].isCount() || !words[2].isCount() || len(tables[0].params) == 0 {
			return nil
		}
		pair := tables[0].params[0]
		parts, types, ok := pair.paths("__0", "__1")
		if !ok {
			return nil
		}
		c := &container{length: o[2], isHashed: true, key: element{typ: types[0], off: parts[0]}}
		if isMap {
			c.val = element{typ: types[1], off: parts[1]}
		}
		c.find = func(r *walk.Reader, raw []byte, want int64) ([]walk.Entry, error) {
			return r.Brown(address(raw, o[0]), word(raw, o[1]), pair.size, want)
		}
		return c
	}}
}

// btree makes the container of a Rust BTreeMap or, at a path, of the one in a BTreeSet.
func btree(path string, isMap bool) maker {
	return maker{make: func(_ language, t *dtype) printer {
		o, types, ok := t.paths(path+"root", path+"length")
		if !ok || !types[1].isCount() {
			return nil
		}
		some := types[0].variantNamed("Some")
		if some == nil {
			return nil
		}
		in, ptrs, ok := some.typ.paths("__0.node.pointer", "__0.height")
		if !ok || ptrs[0].elem == nil {
			return nil
		}
		leaf := ptrs[0].elem
		parts, rows, ok := leaf.paths("len", "keys", "vals")
		if !ok || rows[0].size != 2 || rows[1].elem == nil || rows[2].elem == nil {
			return nil
		}
		key, val := rows[1].elem.unwrapped(), rows[2].elem.unwrapped()
		tree := walk.BTree{Len: parts[0], Keys: parts[1], Vals: parts[2], Edges: (leaf.size + 7) &^ 7, Key: key.size, Val: val.size}
		c := &container{length: o[1], key: element{typ: key}}
		if isMap {
			c.val = element{typ: val}
		}
		c.find = func(r *walk.Reader, raw []byte, want int64) ([]walk.Entry, error) {
			at := o[0] + some.off
			return tree.In(r, address(raw, at+in[0]), word(raw, at+in[1]), want)
		}
		return c
	}}
}

func (t *dtype) variantNamed(name string) *variant {
	for i := range t.variants {
		if t.variants[i].name == name {
			return &t.variants[i]
		}
	}
	return nil
}

// unwrapped is the type of what may not be set, or not be dropped.
func (t *dtype) unwrapped() *dtype {
	for range deepest {
		path := map[string]string{"MaybeUninit": "value", "ManuallyDrop": "value", "MaybeDangling": "__0"}[t.stem()]
		_, next, ok := t.walk(path)
		if path == "" || !ok {
			break
		}
		t = next
	}
	return t
}

// vecDeque makes the container of a Rust VecDeque. Before 1.67 it had no length, but the number behind the last element, and room for a power of two.
func vecDeque(_ language, t *dtype) printer {
	const row, room = "buf.inner.ptr.pointer.pointer|buf.ptr.pointer.pointer", "buf.inner.cap.__0|buf.inner.cap|buf.cap.__0|buf.cap"
	o, words, since67 := t.paths(row, room, "head", "len")
	if !since67 {
		var ok bool
		if o, words, ok = t.paths(row, room, "tail", "head"); !ok {
			return nil
		}
	}
	if len(t.params) == 0 || slices.ContainsFunc(words[1:], func(x *dtype) bool { return x.size != 8 }) {
		return nil
	}
	elem := t.params[0]
	c := &container{length: o[3], key: element{typ: elem}, find: func(_ *walk.Reader, raw []byte, want int64) ([]walk.Entry, error) {
		return walk.Ring(address(raw, o[0]), int64(word(raw, o[2])), int64(word(raw, o[1])), elem.size, want)
	}}
	if !since67 {
		c.length = isCounted
		c.count = func(raw []byte) (int64, bool) {
			n := word(raw, o[1])
			return int64((word(raw, o[3]) - word(raw, o[2])) & (n - 1)), n&(n-1) == 0
		}
	}
	return c
}

// linkedList makes the container of a Rust LinkedList.
func linkedList(_ language, t *dtype) printer {
	o, types, ok := t.paths("head", "len")
	if !ok || !types[1].isCount() {
		return nil
	}
	some := types[0].variantNamed("Some")
	if some == nil {
		return nil
	}
	in, ptrs, ok := some.typ.paths("__0.pointer")
	if !ok || ptrs[0].elem == nil {
		return nil
	}
	parts, members, ok := ptrs[0].elem.paths("next", "element")
	if !ok {
		return nil
	}
	c := &container{length: o[1], key: element{typ: members[1], off: parts[1]}}
	c.find = func(r *walk.Reader, raw []byte, want int64) ([]walk.Entry, error) {
		return r.Chain(address(raw, o[0]+some.off+in[0]), parts[0], want)
	}
	return c
}
