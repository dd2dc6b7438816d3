package symbols

import (
	"bytes"
	"debug/dwarf"
	"encoding/binary"
)

// plausibleLines checks the counts in the header of the line table at off
// (DWARF 5 §6.2.4) against its size. debug/dwarf allocates what they say, and a
// damaged file could take all memory.
func plausibleLines(section []byte, off uint64) bool {
	if off >= uint64(len(section)) {
		return false
	}
	c := &lineCursor{b: section[off:]}
	if c.uint(4) == 0xffffffff {
		c.wide = true
		c.uint(8)
	}
	if c.uint(2) < 5 {
		return true // older tables have no counts
	}
	c.skip(2) // address and segment selector size
	c.offset()
	c.skip(5) // instruction and operation lengths, default_is_stmt, line base and range
	c.skip(int(c.uint(1)) - 1)
	for range 2 { // directories, then files
		forms := c.formats()
		n := c.uleb()
		if c.bad || n > uint64(len(c.b)) {
			return false
		}
		for range n {
			for _, f := range forms {
				c.form(f)
			}
			if c.bad {
				return false
			}
		}
	}
	return true
}

// lineCursor reads a header; bad is set once it ran out.
type lineCursor struct {
	b    []byte
	wide bool // 64-bit DWARF
	bad  bool
}

func (c *lineCursor) skip(n int) {
	if n < 0 || n > len(c.b) {
		c.bad, c.b = true, nil
		return
	}
	c.b = c.b[n:]
}

func (c *lineCursor) uint(n int) uint64 {
	if n > len(c.b) {
		c.bad, c.b = true, nil
		return 0
	}
	v := uintOf(c.b[:n])
	c.b = c.b[n:]
	return v
}

func (c *lineCursor) offset() uint64 {
	if c.wide {
		return c.uint(8)
	}
	return c.uint(4)
}

func (c *lineCursor) uleb() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.bad, c.b = true, nil
		return 0
	}
	c.b = c.b[n:]
	return v
}

// formats reads the pairs of content type and form, and returns the forms.
func (c *lineCursor) formats() []uint64 {
	var forms []uint64
	for range c.uint(1) {
		c.uleb()
		forms = append(forms, c.uleb())
	}
	return forms
}

// form skips one value.
func (c *lineCursor) form(form uint64) {
	switch form {
	case 0x08: // DW_FORM_string
		c.skip(bytes.IndexByte(c.b, 0) + 1)
	case 0x0e, 0x1f, 0x17: // strp, line_strp, sec_offset
		c.offset()
	case 0x0b: // data1
		c.skip(1)
	case 0x05:
		c.skip(2)
	case 0x06:
		c.skip(4)
	case 0x07:
		c.skip(8)
	case 0x1e: // data16, a checksum
		c.skip(16)
	case 0x0f, 0x1a: // udata, strx
		c.uleb()
	case 0x09: // block
		n := c.uleb()
		c.skip(int(min(n, 1<<31)))
	default:
		c.bad = true
	}
}

// lineReader is the line table of u, nil if it has none or a damaged one.
func (d *dwarfData) lineReader(u *unit) *dwarf.LineReader {
	off, ok := u.entry.Val(dwarf.AttrStmtList).(int64)
	if !ok || !plausibleLines(d.lineSection, uint64(off)) {
		return nil
	}
	lr, err := d.data.LineReader(u.entry)
	if err != nil {
		return nil
	}
	return lr
}
