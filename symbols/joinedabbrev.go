package symbols

import (
	"encoding/binary"
	"errors"
)

// Forms, attributes and tags that debug/dwarf has no names for, or not those (DWARF 5 §7.5.6; GNU's of split DWARF 4).
const (
	formAddr          = 0x01
	formBlock2        = 0x03
	formBlock4        = 0x04
	formBlock         = 0x09
	formBlock1        = 0x0a
	formData4         = 0x06
	formData8         = 0x07
	formStrp          = 0x0e
	formRefAddr       = 0x10
	formIndirect      = 0x16
	formExprloc       = 0x18
	formStrx          = 0x1a
	formAddrx         = 0x1b
	formLineStrp      = 0x1f
	formImplicitConst = 0x21
	formGNUAddrIndex  = 0x1f01
	formGNUStrIndex   = 0x1f02
	formGNURefAlt     = 0x1f20
	formGNUStrpAlt    = 0x1f21

	attrGNUDwoName    = 0x2130
	attrGNUDwoID      = 0x2131
	attrGNURangesBase = 0x2132
	attrGNUAddrBase   = 0x2133
)

var errUnit = errors.New("a unit of it is not understood")

// attrForm is one attribute of an abbreviation.
type attrForm struct {
	attr, form uint64
	value      int64 // of formImplicitConst
}

// abbreviation is an entry of a table of abbreviations.
type abbreviation struct {
	code, tag uint64
	children  byte
	attrs     []attrForm
}

// readAbbrev reads the next one. ok is false at the end.
func (c *lineCursor) readAbbrev() (a abbreviation, ok bool) {
	if a.code = c.uleb(); a.code == 0 {
		return a, false
	}
	a.tag, a.children = c.uleb(), byte(c.uint(1))
	for !c.isBad && len(a.attrs) <= mostAttributes {
		x := attrForm{attr: c.uleb(), form: c.uleb()}
		if x.form == formImplicitConst {
			x.value = c.sleb()
		}
		if x.attr == 0 && x.form == 0 {
			return a, !c.isBad
		}
		a.attrs = append(a.attrs, x)
	}
	return a, false
}

func (a *abbreviation) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, a.code)
	b = append(binary.AppendUvarint(b, a.tag), a.children)
	for _, x := range a.attrs {
		b = binary.AppendUvarint(binary.AppendUvarint(b, x.attr), x.form)
		if x.form == formImplicitConst {
			b = appendSleb(b, x.value)
		}
	}
	return append(b, 0, 0)
}

func appendSleb(b []byte, v int64) []byte {
	for {
		low := byte(v & 0x7f)
		if v >>= 7; v == 0 && low&0x40 == 0 || v == -1 && low&0x40 != 0 {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}

// asJoined is the form that stands for the same bytes, but counts from elsewhere: what one unit of its file says of another, and offsets of its file's
// strings, are as if that were a supplementary file. GNU's indexes are those of DWARF 5.
func asJoined(form uint64) uint64 {
	switch form {
	case formGNUAddrIndex:
		return formAddrx
	case formGNUStrIndex:
		return formStrx
	case formStrp:
		return formGNUStrpAlt
	case formRefAddr:
		return formGNURefAlt
	case formLineStrp: // of a section that is not read
		return formData4
	}
	return form
}

// tableKey is of what a table of abbreviations was made: tables are shared by units that have the same.
type tableKey struct {
	file        *joinedFile
	from, root  uint64
	bases       bases
	moved, lost bool
}

// bases is what debug/dwarf counts a unit's indexes from.
type bases struct{ str, addr, ranges, loc int64 }

// table puts the abbreviations of a unit behind the others, or finds that this was done.
func (j *joiner) table(k tableKey, list []abbreviation) (at uint64, err error) {
	if at, done := j.tables[k]; done {
		return at, nil
	}
	var out []byte
	for _, a := range list {
		attrs := make([]attrForm, len(a.attrs))
		for i, x := range a.attrs {
			x.form = asJoined(x.form)
			attrs[i] = x
		}
		if a.attrs = attrs; a.code == k.root {
			a.attrs = k.rootAttrs(attrs)
		}
		out = a.appendTo(out)
	}
	at, err = j.put("abbrev", append(out, 0))
	j.tables[k] = at
	return at, err
}

// rootAttrs are the attributes of a unit's own entry: with the bases that DWARF takes for granted, and with what fills the room that the header has left.
func (k *tableKey) rootAttrs(attrs []attrForm) (out []attrForm) {
	if k.moved { // see padded
		out = append(out, attrForm{attr: attrGNUDwoID, form: formBlock1})
	}
	for _, x := range attrs {
		if k.lost && x.attr == attrGNUDwoID && x.form == formData8 { // see shifted
			x.form = formBlock1
		}
		out = append(out, x)
	}
	for _, x := range []struct {
		attr uint64
		base int64
	}{{0x72, k.bases.str}, {0x73, k.bases.addr}, {0x74, k.bases.ranges}, {0x8c, k.bases.loc}} {
		if isFirst := x.attr == 0x73 && (k.moved || k.lost); x.base > 0 || isFirst { // GNU's table of addresses has no header
			out = append(out, attrForm{x.attr, formImplicitConst, x.base})
		}
	}
	return out
}

// fixedForms are the lengths of forms that have one, in 32-bit DWARF and with addresses of 8 bytes.
var fixedForms = map[uint64]int{
	formAddr: 8, 0x05: 2, formData4: 4, formData8: 8, 0x0b: 1, 0x0c: 1, formStrp: 4, formRefAddr: 4, 0x11: 1, 0x12: 2, 0x13: 4, 0x14: 8,
	0x17: 4, 0x19: 0, 0x1c: 4, 0x1d: 4, 0x1e: 16, formLineStrp: 4, 0x20: 8, formImplicitConst: 0, 0x24: 8, 0x25: 1, 0x26: 2, 0x27: 3, 0x28: 4,
	0x29: 1, 0x2a: 2, 0x2b: 3, 0x2c: 4, formGNURefAlt: 4, formGNUStrpAlt: 4,
}

// skipForm passes over an attribute's value.
func (c *lineCursor) skipForm(form uint64) {
	if n, ok := fixedForms[form]; ok {
		c.skip(n)
		return
	}
	switch form {
	case 0x0f, 0x0d, 0x15, formStrx, formAddrx, 0x22, 0x23, formGNUAddrIndex, formGNUStrIndex: // LEB128, signed or not
		c.uleb()
	case formString:
		c.form(formString)
	case formBlock1:
		c.block(c.uint(1))
	case formBlock2:
		c.block(c.uint(2))
	case formBlock4:
		c.block(c.uint(4))
	case formBlock, formExprloc:
		c.block(c.uleb())
	default: // formIndirect among them
		c.isBad, c.b = true, nil
	}
}

// shifted is a split unit of DWARF 4 with a header of DWARF 5, which is one byte longer. Its ID makes room: of its 8 bytes 7 are left, as a block.
func shifted(b []byte, at int) []byte {
	out := header5(b, 11)
	out = append(out, b[11:at]...)
	out = append(out, 6, 0, 0, 0, 0, 0, 0)
	return append(out, b[at+8:]...)
}

// padded is a unit of DWARF 4 for one type, with a shorter header. What was in the longer one fills the room as a block, behind the first entry's code of n bytes.
func padded(b []byte, n int) []byte {
	const head = 23
	out := header5(b, head)
	out = append(out, b[head:head+n]...)
	out = append(out, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	return append(out, b[head+n:]...)
}

// header5 is the header of a DWARF 5 unit (§7.5.1.1) that is as long as b, a unit of DWARF 4. The place of its abbreviations is to be told.
func header5(b []byte, head int) []byte {
	const compile, addressSize = 1, 8
	out := make([]byte, 0, len(b)+head)
	return append(append(out, b[:4]...), 5, 0, compile, addressSize, 0, 0, 0, 0)
}
