package symbols

import (
	"bytes"
	"encoding/binary"
)

// lineHeader says how much memory a line table takes when it is read.
type lineHeader struct {
	size  uint64 // bytes of the table, from its offset on
	names uint64 // entries of directories and files
	text  uint64 // bytes of their names; a file's has its directory in front
}

// lineHeader checks the counts in the header of the line table at off
// (DWARF 5 §6.2.4, DWARF 4 §6.2.4) against its size. debug/dwarf allocates memory by these
// counts, so a damaged file could take all memory.
func (d *dwarfData) lineHeader(off uint64) (h lineHeader, ok bool) {
	if off >= uint64(len(d.lineSection)) {
		return h, false
	}
	c := &lineCursor{b: d.lineSection[off:], d: d}
	h.size = c.uint(4)
	head := uint64(4)
	if h.size == 0xffffffff {
		c.isWide = true
		h.size, head = c.uint(8), 12
	}
	if c.isBad || h.size > uint64(len(c.b)) {
		return h, false
	}
	c.b = c.b[:h.size]
	h.size += head
	version := c.uint(2)
	if version >= 5 {
		c.skip(2) // address and segment selector size
	}
	c.offset()
	c.skip(4) // length of instructions, default_is_stmt, line base and range
	if version >= 4 {
		c.skip(1) // operations in one instruction
	}
	c.skip(int(c.uint(1)) - 1)
	if version >= 5 {
		return h, c.tables(&h)
	}
	return h, c.oldTables(&h)
}

// tables reads the directories and files of DWARF 5.
func (c *lineCursor) tables(h *lineHeader) bool {
	longest := uint64(0)
	for range 2 { // directories, then files
		forms := c.formats()
		n := c.uleb()
		if c.isBad || n > uint64(len(c.b)) || len(forms) == 0 && n > 0 {
			return false
		}
		for range n {
			text := uint64(0)
			for _, f := range forms {
				text += c.form(f)
			}
			if c.isBad || !h.add(text+longest) {
				return false
			}
		}
		if longest == 0 {
			longest = h.text // no directory is longer than all
		}
	}
	return true
}

// oldTables reads the directories and files of the versions before.
func (c *lineCursor) oldTables(h *lineHeader) bool {
	longest := uint64(0)
	for len(c.b) > 0 && c.b[0] != 0 {
		n := c.form(formString)
		if longest = max(longest, n); c.isBad || !h.add(n) {
			return false
		}
	}
	c.skip(1)
	for len(c.b) > 0 && c.b[0] != 0 {
		n := c.form(formString)
		for range 3 { // directory, time, size
			c.uleb()
		}
		if c.isBad || !h.add(n+longest) {
			return false
		}
	}
	return true
}

// Limits of the header of one table.
const (
	mostLineNames = 1 << 17
	mostLineText  = 32 << 20
)

func (h *lineHeader) add(text uint64) bool {
	h.names++
	h.text += text
	return h.names <= mostLineNames && h.text <= mostLineText
}

// lineCursor reads a header. bad is set when it has read beyond the end.
type lineCursor struct {
	b      []byte
	d      *dwarfData
	isWide bool // 64-bit DWARF
	isBad  bool
}

func (c *lineCursor) skip(n int) {
	if n < 0 || n > len(c.b) {
		c.isBad, c.b = true, nil
		return
	}
	c.b = c.b[n:]
}

func (c *lineCursor) uint(n int) uint64 {
	if n > len(c.b) {
		c.isBad, c.b = true, nil
		return 0
	}
	v := uintOf(c.b[:n])
	c.b = c.b[n:]
	return v
}

func (c *lineCursor) offset() uint64 {
	if c.isWide {
		return c.uint(8)
	}
	return c.uint(4)
}

func (c *lineCursor) uleb() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.isBad, c.b = true, nil
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

const formString = 0x08 // DW_FORM_string

// form skips one value, and returns how many bytes of text it stands for.
func (c *lineCursor) form(form uint64) (text uint64) {
	switch form {
	case formString:
		n := bytes.IndexByte(c.b, 0)
		c.skip(n + 1)
		c.isBad = c.isBad || n < 0
		return uint64(max(n, 0))
	case 0x0e: // strp
		return nameLength(c.d.str, c.offset())
	case 0x1f: // line_strp
		return nameLength(c.d.lineStr, c.offset())
	case 0x17: // sec_offset
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
	case 0x0f: // udata
		c.uleb()
	case 0x1a: // strx
		c.uleb()
		return longestText
	case 0x09: // block
		n := c.uleb()
		c.skip(int(min(n, 1<<31)))
	default:
		c.isBad = true
	}
	return 0
}

// nameLength is the length of the name at off.
func nameLength(section []byte, off uint64) uint64 {
	if off >= uint64(len(section)) {
		return 0
	}
	return uint64(max(bytes.IndexByte(section[off:min(off+longestText+1, uint64(len(section)))], 0), 0))
}
