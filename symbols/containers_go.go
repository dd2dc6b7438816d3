package symbols

import (
	"github.com/gokprobe/gokprobe/symbols/walk"
)

// goMap makes the container of a Go map, nil if debug information does not tell how it is made.
func goMap(t *dtype) printer {
	if t.elem == nil || t.elem.size > 1<<12 {
		return nil
	}
	c := &container{name: t.name, header: t.elem, isHashed: true, key: element{typ: t.params[0]}, val: element{typ: t.params[1]}}
	if c.swiss() || c.buckets() {
		return c
	}
	return nil
}

// places says where a group or a bucket has its keys and values, of which the long ones lie elsewhere.
func (c *container) places(group, keys, vals *dtype, s *walk.Slots) {
	s.Size, s.KeyStep, s.ValueStep = group.size, keys.size, vals.size
	const longest = 128
	c.key.isIndirect = c.key.typ.size > longest && keys.size == 8
	c.val.isIndirect = c.val.typ.size > longest && vals.size == 8
}

// swiss is a map of Go 1.24 or later.
func (c *container) swiss() bool {
	o, types, ok := c.header.paths("used", "dirPtr", "dirLen")
	if !ok || types[1].elem == nil || types[1].elem.elem == nil {
		return false
	}
	table, inTable, ok := types[1].elem.elem.paths("groups.data", "groups.lengthMask")
	if !ok || inTable[0].elem == nil {
		return false
	}
	group := inTable[0].elem
	m := walk.Swiss{Data: table[0], Mask: table[1]}
	if in, parts, ok := group.paths("ctrl", "slots"); ok && parts[1].elem != nil {
		slot, kv, ok := parts[1].elem.paths("key", "elem")
		if !ok {
			return false
		}
		c.places(group, kv[0], kv[1], &m.Slots)
		m.Ctrl, m.Key, m.Val, m.KeyStep, m.ValueStep = in[0], in[1]+slot[0], in[1]+slot[1], parts[1].elem.size, parts[1].elem.size
	} else if in, parts, ok := group.paths("ctrl", "keys", "elems"); ok && parts[1].elem != nil && parts[2].elem != nil {
		c.places(group, parts[1].elem, parts[2].elem, &m.Slots)
		m.Ctrl, m.Key, m.Val = in[0], in[1], in[2]
	} else {
		return false
	}
	c.length = o[0]
	c.find = func(r *walk.Reader, raw []byte, want int64) ([]walk.Entry, error) {
		return m.In(r, address(raw, o[1]), int64(word(raw, o[2])), want)
	}
	c.each = func(r *walk.Reader, raw []byte, visit walk.Visit) error {
		return m.Each(r, address(raw, o[1]), int64(word(raw, o[2])), visit)
	}
	return true
}

// buckets is a map of an earlier Go.
func (c *container) buckets() bool {
	o, types, ok := c.header.paths("count", "B", "flags", "buckets", "oldbuckets")
	if !ok || types[1].size != 1 || types[2].size != 1 || types[3].elem == nil {
		return false
	}
	bucket := types[3].elem
	in, parts, ok := bucket.paths("tophash", "keys", "values", "overflow")
	if !ok || parts[1].elem == nil || parts[2].elem == nil {
		return false
	}
	m := walk.Buckets{Overflow: in[3]}
	c.places(bucket, parts[1].elem, parts[2].elem, &m.Slots)
	m.Ctrl, m.Key, m.Val = in[0], in[1], in[2]
	c.length = o[0]
	const sameSize = 8
	sizes := func(raw []byte) (b, flags byte, err error) {
		bs, ok1 := slice(raw, o[1], 1)
		fs, ok2 := slice(raw, o[2], 1)
		if !ok1 || !ok2 {
			return 0, 0, errNoPlace
		}
		return bs[0], fs[0], nil
	}
	c.find = func(r *walk.Reader, raw []byte, want int64) ([]walk.Entry, error) {
		b, flags, err := sizes(raw)
		if err != nil {
			return nil, err
		}
		return m.In(r, address(raw, o[3]), address(raw, o[4]), b, flags&sameSize != 0, want)
	}
	c.each = func(r *walk.Reader, raw []byte, visit walk.Visit) error {
		b, flags, err := sizes(raw)
		if err != nil {
			return err
		}
		return m.Each(r, address(raw, o[3]), address(raw, o[4]), b, flags&sameSize != 0, visit)
	}
	return true
}
