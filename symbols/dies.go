package symbols

import (
	"debug/dwarf"
	"errors"
)

// Limits of reading debug information, counted in entries or work of about the same size: for one question, and for all
// questions about one file that read more than is usual.
const (
	mostEntries = 1 << 20 // about a second's worth
	usualRead   = 1 << 14
	mostRead    = 1 << 24
)

// dies reads the entries of debug information, always forwards and within a limit. In hostile files references may form a cycle,
// entries may be nested a million deep, and each may have long names.
type dies struct {
	d    *dwarfData
	r    *dwarf.Reader
	last dwarf.Offset // of the entry that was read
	left int
	most int   // what left began with
	err  error // that of debug/dwarf, or errTooMuch
}

// entriesAt begins at off.
func (d *dwarfData) entriesAt(off dwarf.Offset) *dies {
	r := d.data.Reader()
	r.Seek(off)
	return &dies{d: d, r: r, left: mostEntries, most: mostEntries}
}

// lookAt is the entry at off, nil if there is none, on x's account.
func (x *dies) lookAt(off dwarf.Offset) *dwarf.Entry {
	y := x.d.entriesAt(off)
	y.left, y.most = x.left, x.most
	e := y.next()
	if x.left = y.left; x.err == nil && errors.Is(y.err, errTooMuch) {
		x.err = y.err
	}
	return e
}

// entryAt is the entry at off, nil if there is none.
func (d *dwarfData) entryAt(off dwarf.Offset) *dwarf.Entry { return d.entriesAt(off).next() }

// next returns the next entry, nil at the end or after an error, which x.err has. An entry of Tag 0 ends a list of children.
func (x *dies) next() *dwarf.Entry {
	if x.err != nil {
		return nil
	}
	e, err := x.r.Next()
	switch {
	case err != nil || e == nil:
		x.err = err
		return nil
	case e.Tag == 0: // it has no offset
	case x.last > 0 && e.Offset <= x.last:
		x.err = errTooMuch
		return nil
	default:
		x.last = e.Offset
	}
	x.spend(1 + textOf(e)>>8 + len(e.Field)>>4)
	if x.err != nil {
		return nil
	}
	x.d.lead(e)
	return e
}

// spend counts n entries as read. If a limit is exceeded, x.err is set.
func (x *dies) spend(n int) {
	before := x.most - x.left
	if x.left -= n; x.left < 0 {
		x.err = errTooMuch
	}
	if over := before + n - usualRead; over > 0 && x.d.read.Add(int64(min(over, n))) > mostRead {
		x.err = errTooMuch
	}
}

// textOf is how many bytes of names an entry holds: debug/dwarf has copied them.
func textOf(e *dwarf.Entry) (n int) {
	for i := range e.Field {
		if s, ok := e.Field[i].Val.(string); ok {
			n += len(s)
		}
	}
	return n
}

// skip passes over the children of e, which was just read.
func (x *dies) skip(e *dwarf.Entry) {
	if !e.Children {
		return
	}
	if next, ok := e.Val(dwarf.AttrSibling).(dwarf.Offset); ok && next > e.Offset {
		x.r.Seek(next)
		x.last = next - 1
		return
	}
	for depth := 1; depth > 0; {
		c := x.next()
		switch {
		case c == nil:
			return
		case c.Tag == 0:
			depth--
		case c.Children:
			depth++
		}
	}
}

// children calls f for the direct children of e, which was just read.
func (x *dies) children(e *dwarf.Entry, f func(*dwarf.Entry)) {
	if !e.Children {
		return
	}
	for {
		c := x.next()
		if c == nil || c.Tag == 0 {
			return
		}
		f(c)
		x.skip(c)
	}
}
