package symbols

import (
	"bytes"
	"debug/dwarf"
	"encoding/binary"
	"fmt"
)

// Limits far above the counts and sizes in the debug information of real programs. debug/dwarf reads a whole entry, table or
// list at once, so each must be checked before.
const (
	mostAttributes = 128     // of one abbreviation
	longestText    = 1 << 18 // bytes of a name
	mostRanges     = 1 << 18 // of one list
	unitCost       = 1 << 10 // bytes, here and in debug/dwarf
	abbrevCost     = 112     // bytes, for an abbreviation
	attributeCost  = 24      // bytes, for one of its attributes
)

// check checks sections of debug information before debug/dwarf reads them. It returns an error for contents that can't be
// right, or that would exceed the budget.
func (d *dwarfData) check(info, abbrev []byte, texts ...[]byte) error {
	for _, text := range append(texts, info) {
		if hasLongName(text) {
			return fmt.Errorf("%w: a name of over %d bytes", errTooMuch, longestText)
		}
	}
	units := uint64(0)
	eachUnit(info, func(unitHeader) { units++ })
	if err := d.kept.Take(units*unitCost, "the units of the debug information"); err != nil {
		return err
	}
	seen := map[uint64]bool{}
	read, cost := 0, uint64(0)
	for _, u := range unitHeaders(info) {
		if seen[u.abbrev] {
			continue
		}
		seen[u.abbrev] = true
		if u.abbrev >= uint64(len(abbrev)) {
			continue
		}
		n, c, ok := abbrevTable(abbrev[u.abbrev:])
		if !ok {
			return fmt.Errorf("%w: attributes of an abbreviation", errTooMuch)
		}
		cost += c
		if read += n; read > len(abbrev) {
			return fmt.Errorf("%w: tables of abbreviations overlap", errTooMuch)
		}
	}
	return d.kept.Take(cost, "the abbreviations of the debug information")
}

// hasLongName reports whether text has a name of more than longestText bytes.
func hasLongName(text []byte) bool {
	for len(text) > longestText {
		end := bytes.LastIndexByte(text[:longestText], 0)
		if end < 0 {
			return true
		}
		text = text[end+1:]
	}
	return false
}

// abbrevTable goes through one table of abbreviations (DWARF 5 §7.5.3). It returns how many bytes the table has, and how many it
// takes in memory.
func abbrevTable(b []byte) (size int, cost uint64, ok bool) {
	const implicitConst = 0x21
	c := &lineCursor{b: b}
	for c.uleb() != 0 && !c.isBad {
		c.uleb() // tag
		c.skip(1)
		n := 0
		for !c.isBad {
			attr, form := c.uleb(), c.uleb()
			if form == implicitConst {
				c.sleb()
			}
			if attr == 0 && form == 0 {
				break
			}
			if n++; n > mostAttributes {
				return 0, 0, false
			}
		}
		cost += abbrevCost + uint64(n)*attributeCost
	}
	return len(b) - len(c.b), cost, !c.isBad
}

// unitHeader is the header of a unit and the place of its first entry.
type unitHeader struct {
	start   uint64
	first   dwarf.Offset // its first entry
	end     uint64
	version uint16
	kind    uint8  // DW_UT_*, 0 before DWARF 5
	isWide  bool   // 64-bit DWARF
	abbrev  uint64 // where its abbreviations are
	id      uint64 // that joins a skeleton unit and its split unit, or a type's signature
	typ     uint64 // of a type unit, where the type's entry is in it

	joined *joinedUnit // nil for a unit of the file itself
}

// Kinds of units (DWARF 5 §7.5.1).
const (
	unitType      = 2
	unitSkeleton  = 4
	unitSplit     = 5
	unitSplitType = 6
)

// unitHeaders lists the headers of all units.
func unitHeaders(info []byte) []unitHeader {
	var out []unitHeader
	eachUnit(info, func(u unitHeader) { out = append(out, u) })
	return out
}

// eachUnit reads the headers of all units (DWARF 5 §7.5.1).
func eachUnit(info []byte, f func(unitHeader)) {
	for off := uint64(0); off+12 <= uint64(len(info)); {
		b := info[off:]
		length, head, offSize := uint64(binary.LittleEndian.Uint32(b)), uint64(4), uint64(4)
		if length == 0xffffffff {
			if len(b) < 24 {
				return
			}
			length, head, offSize = binary.LittleEndian.Uint64(b[4:]), 12, 8
		}
		if length < 8 || length > uint64(len(b))-head {
			return
		}
		size := head + 2 + offSize + 1 // length, version, abbrev offset, address size
		u := unitHeader{start: off, end: off + head + length, version: binary.LittleEndian.Uint16(b[head:]), isWide: offSize == 8}
		abbrev := head + 2
		if u.version >= 5 {
			size++ // unit type
			abbrev += 2
			rest := size
			switch u.kind = b[head+2]; u.kind {
			case unitSkeleton, unitSplit: // an id of 8 bytes
				size += 8
			case unitType, unitSplitType: // signature and offset
				size += 8 + offSize
			}
			u.id, u.typ = headerNumber(b, rest, min(8, size-rest)), headerNumber(b, rest+8, size-min(size, rest+8))
		}
		u.abbrev = headerNumber(b, abbrev, offSize)
		u.first = dwarf.Offset(off + size)
		f(u)
		off = u.end
	}
}

// headerNumber is the number of n bytes at off, 0 if b is too short.
func headerNumber(b []byte, off, n uint64) uint64 {
	s, _ := section(b, off, n)
	return uintOf(s)
}
