package symbols

import (
	"debug/dwarf"
	"encoding/binary"
	"errors"
)

var errRanges = errors.New("implausible ranges")

// ranges is the code of e. Each range that it reads counts as an entry.
func (x *dies) ranges(e *dwarf.Entry) ([][2]uint64, error) {
	var out [][2]uint64
	if lo, ok := e.Val(dwarf.AttrLowpc).(uint64); ok {
		switch hi := e.Val(dwarf.AttrHighpc).(type) {
		case uint64:
			out = append(out, [2]uint64{lo, hi})
		case int64: // a length
			out = append(out, [2]uint64{lo, lo + uint64(hi)})
		}
	}
	f := e.AttrField(dwarf.AttrRanges)
	if f == nil {
		x.spend(1)
		return out, x.err
	}
	l := x.rangeList(e)
	h, _ := x.d.header(e.Offset)
	off, isPlain := f.Val.(int64)
	if index, ok := f.Val.(uint64); ok { // debug/dwarf has looked it up
		off = int64(index)
	} else if !isPlain {
		return out, nil
	} else if h.joined != nil {
		off += int64(h.joined.ranges)
	}
	ok := false
	if h.version >= 5 && len(x.d.rnglists) > 0 {
		ok = l.read5(x.d.rnglists, uint64(off))
	} else {
		ok = l.read4(x.d.ranges, uint64(off))
	}
	if !ok {
		return nil, errRanges
	}
	x.spend(l.rows)
	return append(out, l.out...), x.err
}

// rangeList reads a list of ranges.
type rangeList struct {
	base  uint64
	addrs *locationList
	out   [][2]uint64
	rows  int
}

// rangeList begins a list of e's, which may be a unit itself.
func (x *dies) rangeList(e *dwarf.Entry) *rangeList {
	of := e
	if e.Tag != dwarf.TagCompileUnit && e.Tag != dwarf.TagSkeletonUnit {
		if u := x.d.unitWith(e.Offset); u != nil {
			of = u.entry
		}
	}
	l := &rangeList{addrs: &locationList{d: x.d}}
	l.addrs.addr, _ = of.Val(dwarf.AttrAddrBase).(int64)
	var ok bool
	if l.base, ok = of.Val(dwarf.AttrEntrypc).(uint64); !ok {
		l.base, _ = of.Val(dwarf.AttrLowpc).(uint64)
	}
	return l
}

// read4 reads a list of DWARF 2 to 4 (§2.17.3). It returns false if there are too many.
func (l *rangeList) read4(section []byte, off uint64) bool {
	if off >= uint64(len(section)) {
		return true
	}
	for b := section[off:]; len(b) >= 16; b = b[16:] {
		if l.rows++; l.rows > mostRanges {
			return false
		}
		lo, hi := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		switch {
		case lo == 0 && hi == 0:
			return true
		case lo == ^uint64(0):
			l.base = hi
		default:
			l.out = append(l.out, [2]uint64{l.base + lo, l.base + hi})
		}
	}
	return true
}

// read5 reads a list of DWARF 5 (§7.25). It returns false if it is damaged, or there are too many.
func (l *rangeList) read5(section []byte, off uint64) bool {
	if off >= uint64(len(section)) {
		return false
	}
	c := &lineCursor{b: section[off:]}
	for ; l.rows < mostRanges; l.rows++ {
		var r [2]uint64
		switch kind := c.uint(1); kind {
		case 0: // the end
			return !c.isBad
		case 1: // base_addressx
			l.base = l.addrs.address(c.uleb())
			continue
		case 2: // startx_endx
			r = [2]uint64{l.addrs.address(c.uleb()), l.addrs.address(c.uleb())}
		case 3: // startx_length
			r[0] = l.addrs.address(c.uleb())
			r[1] = r[0] + c.uleb()
		case 4: // offset_pair
			r = [2]uint64{l.base + c.uleb(), l.base + c.uleb()}
		case 5: // base_address
			l.base = c.uint(8)
			continue
		case 6: // start_end
			r = [2]uint64{c.uint(8), c.uint(8)}
		case 7: // start_length
			r[0] = c.uint(8)
			r[1] = r[0] + c.uleb()
		default:
			return false
		}
		l.out = append(l.out, r)
	}
	return false
}
