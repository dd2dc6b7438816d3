package symbols

import "encoding/binary"

// locationList looks for the expression that holds at an address.
type locationList struct {
	d     *dwarfData
	base  uint64
	addr  int64 // where the unit's addresses begin in .debug_addr
	at    uint64
	found []byte
}

// mostLocations bounds a list: a damaged one may be as long as its section.
const mostLocations = 1 << 12

// offer takes an expression that holds from lo to hi. It returns false when the search is over.
func (l *locationList) offer(lo, hi uint64, expr []byte) bool {
	if lo <= l.at && l.at < hi {
		l.found = expr
		return false
	}
	return true
}

// read4 reads a list of DWARF 2 to 4 (§2.6.2).
func (l *locationList) read4(off uint64) {
	if off > uint64(len(l.d.loc)) {
		return
	}
	c := &lineCursor{b: l.d.loc[off:]}
	for range mostLocations {
		lo, hi := c.uint(8), c.uint(8)
		switch {
		case c.isBad || lo == 0 && hi == 0:
			return
		case lo == ^uint64(0):
			l.base = hi
			continue
		}
		expr, ok := c.block(c.uint(2))
		if !ok || !l.offer(l.base+lo, l.base+hi, expr) {
			return
		}
	}
}

// block is the next n bytes.
func (c *lineCursor) block(n uint64) ([]byte, bool) {
	b, ok := section(c.b, 0, n)
	if !ok {
		c.isBad, c.b = true, nil
		return nil, false
	}
	c.b = c.b[n:]
	return b, !c.isBad
}

// address is number n of the unit's addresses.
func (l *locationList) address(n uint64) uint64 {
	if n > uint64(len(l.d.addrs)) {
		return 0
	}
	b, ok := section(l.d.addrs, uint64(l.addr)+8*n, 8)
	if !ok {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// readGNU reads a list of GNU's split DWARF 4 (GCC wiki, DebugFission): as in DWARF 5, with other lengths of numbers.
func (l *locationList) readGNU(off uint64) {
	if off > uint64(len(l.d.loc)) {
		return
	}
	c := &lineCursor{b: l.d.loc[off:]}
	for range mostLocations {
		lo, hi := uint64(0), uint64(0)
		switch kind := c.uint(1); kind {
		case 1: // base_address_selection_entry
			l.base = l.address(c.uleb())
			continue
		case 2: // start_end_entry
			lo, hi = l.address(c.uleb()), l.address(c.uleb())
		case 3: // start_length_entry
			lo = l.address(c.uleb())
			hi = lo + c.uint(4)
		case 4: // offset_pair_entry
			lo, hi = l.base+c.uint(4), l.base+c.uint(4)
		default: // the end
			return
		}
		expr, ok := c.block(c.uint(2))
		if !ok || !l.offer(lo, hi, expr) {
			return
		}
	}
}

// read5 reads a list of DWARF 5 (§7.29).
func (l *locationList) read5(off uint64) {
	if off > uint64(len(l.d.loclists)) {
		return
	}
	c := &lineCursor{b: l.d.loclists[off:]}
	var otherwise []byte
	for range mostLocations {
		lo, hi := uint64(0), uint64(0)
		switch kind := c.uint(1); kind {
		case 1: // base_addressx
			l.base = l.address(c.uleb())
			continue
		case 2: // startx_endx
			lo, hi = l.address(c.uleb()), l.address(c.uleb())
		case 3: // startx_length
			lo = l.address(c.uleb())
			hi = lo + c.uleb()
		case 4: // offset_pair
			lo, hi = l.base+c.uleb(), l.base+c.uleb()
		case 5: // default_location
			lo, hi = 1, 0
		case 6: // base_address
			l.base = c.uint(8)
			continue
		case 7: // start_end
			lo, hi = c.uint(8), c.uint(8)
		case 8: // start_length
			lo = c.uint(8)
			hi = lo + c.uleb()
		default: // the end
			l.found = otherwise
			return
		}
		expr, ok := c.block(c.uleb())
		if !ok {
			return
		}
		if lo > hi {
			otherwise = expr
		} else if !l.offer(lo, hi, expr) {
			return
		}
	}
}
