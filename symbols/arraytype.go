package symbols

import (
	"debug/dwarf"
	"slices"
	"sort"
)

func (r *typeReader) fillArray(t *dtype, e *dwarf.Entry, rd *dies) {
	t.kind, t.elem, t.count = typeArray, r.ref(e), 1
	rd.children(e, func(c *dwarf.Entry) {
		if c.Tag != dwarf.TagSubrangeType {
			return
		}
		n, low := r.bounds(c)
		t.count = product(t.count, n)
		t.dims, t.lows = append(t.dims, n), append(t.lows, low)
	})
	if first, _ := r.d.firstIndex(e.Offset); first.byColumn { // the first index is that of neighbours
		slices.Reverse(t.dims)
		slices.Reverse(t.lows)
	}
	if t.size == 0 {
		t.size = product(t.count, t.elem.size)
	}
	t.align = t.elem.align
	const attrGNUVector = dwarf.Attr(0x2107)
	if e.AttrField(attrGNUVector) != nil {
		t.kind, t.align = typeUnknown, t.size
		if t.size == 8 || t.size == 16 {
			t.kind = typeVector
		}
	}
	if e.AttrField(dwarf.AttrName) == nil {
		t.name = t.elem.name + "[]"
	}
}

// bounds are how many elements one dimension of an array has, and the index of the first. What only the running program knows is negative; 0 elements are
// those of an array whose end is not told.
func (r *typeReader) bounds(c *dwarf.Entry) (n, low int64) {
	first, _ := r.d.firstIndex(c.Offset)
	low = first.index
	if v := c.Val(dwarf.AttrLowerBound); v != nil {
		var ok bool
		if low, ok = v.(int64); !ok || low < -largestType || low > largestType {
			return -1, 0
		}
	}
	switch v := c.Val(dwarf.AttrCount).(type) {
	case int64:
		return v, low
	case nil:
	default:
		return -1, low
	}
	switch v := c.Val(dwarf.AttrUpperBound).(type) {
	case int64:
		if v == low-1 || r.lang == langC && v == -1 { // GCC's for int a[0]
			return 0, low
		}
		return max(min(v, largestType)-low+1, -1), low
	case nil:
		return 0, low
	}
	return -1, low
}

// indexing is how the arrays of a language are counted.
type indexing struct {
	index    int64 // of the first element, unless it is told
	byColumn bool  // elements whose first index differs are neighbours
}

// firstIndex is how arrays that are described at an offset are counted, by the language (DWARF 5, table 7.17).
func (d *dwarfData) firstIndex(off dwarf.Offset) (x indexing, ok bool) {
	i := sort.Search(len(d.units), func(i int) bool { return d.units[i].off > off }) - 1
	if i < 0 {
		return x, false
	}
	switch lang, _ := d.units[i].entry.Val(dwarf.AttrLanguage).(int64); lang {
	case 0x07, 0x08, 0x0e, 0x22, 0x23, 0x2d: // Fortran
		return indexing{1, true}, true
	case 0x03, 0x0d, 0x05, 0x06, 0x09, 0x0a, 0x17, 0x0f, 0x1f: // Ada, Cobol, Pascal, Modula, PL/I, Julia
		return indexing{1, false}, true
	}
	return x, true
}

// product multiplies sizes; it is negative if that makes none.
func product(a, b int64) int64 {
	if a < 0 || b < 0 || b > 0 && a > largestType/b {
		return -1
	}
	return a * b
}

// rows are the number and the type of an array's elements, which are arrays too if it has several dimensions.
func (t *dtype) rows() (n int64, elem *dtype) {
	if len(t.dims) < 2 || t.kind != typeArray {
		return t.count, t.elem
	}
	row := *t
	row.dims, row.lows, row.count = t.dims[1:], t.lows[1:], 1
	for _, n := range row.dims {
		row.count = product(row.count, n)
	}
	if row.size = product(row.count, t.elem.size); row.size < 0 {
		return t.count, t.elem
	}
	return t.dims[0], &row
}
