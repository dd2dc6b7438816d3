package filter

import (
	"encoding/binary"
	"strings"

	"github.com/gokprobe/gokprobe/program"
)

// compared is how many bytes of a string the target looks at.
const compared = 32

// weakenText compares the beginning of a string, with its zero if it is short. Bytes
// that can't be read are zero then, as is the value that Match gets.
func (p *pred) weakenText(t Target, negate bool) weaker {
	at, size, ok := t.Text(p.field)
	text, begins := p.text, false
	if p.op == glob {
		negate = negate != p.not
		if n := strings.IndexAny(text, `*?[\`); n >= 0 {
			text, begins = text[:n], true
		}
	}
	negate = negate != (p.op == notEqual)
	switch {
	case !ok, strings.Contains(text, "\x00"),
		len(text) >= size-1, // a longer one would be cut there
		text == "":          // all that can't be read is, too
		return weaker{always: true}
	}
	if !begins {
		text += "\x00"
	}
	if len(text) > compared {
		text, begins = text[:compared], true
	}
	switch {
	case begins && negate: // what is behind decides, and whether it can be read
		return weaker{always: true}
	case negate:
		return weaker{cond: program.Not(beginsWith(at, text)), exact: true}
	}
	return weaker{cond: beginsWith(at, text), exact: !begins}
}

// beginsWith compares the bytes at an address with text. None of the numbers that they are compared as is zero, so
// bytes that can't be read are not equal.
func beginsWith(at program.Expr, text string) program.Cond {
	size := 8
	for size > len(text) {
		size /= 2
	}
	var all []program.Cond
	for off := 0; off < len(text); off += size {
		off = min(off, len(text)-size) // the last one overlaps
		var b [8]byte
		copy(b[:], text[off:off+size])
		e := at.Load(int64(off), program.Type{Size: size}).OrZero()
		all = append(all, program.Compare(e, program.Equal, program.Const(int64(binary.LittleEndian.Uint64(b[:])))))
	}
	return program.All(all...)
}
