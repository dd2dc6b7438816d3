package symbols

import (
	"encoding/binary"
	"math"
)

// extent is a part of a section.
type extent struct{ off, size uint64 }

// contribution tells which parts of sections are of one unit.
type contribution map[string]extent

// contributions are those of units, by where these begin.
type contributions map[uint64]contribution

// wholeFile is the key of what is of all units without a contribution of their own.
const wholeFile = math.MaxUint64

// whole is the contribution of a file that is no package: everything.
func (s sections) whole() contributions {
	all := contribution{}
	for name, b := range s {
		all[name] = extent{0, uint64(len(b))}
	}
	return contributions{wholeFile: all}
}

// Sections by the numbers that packages give them: of GNU's version 2, and of DWARF 5 (§7.3.5.3).
var (
	packageSections2 = map[uint32]string{1: "info", 2: "types", 3: "abbrev", 4: "line", 5: "loc", 6: "str_offsets"}
	packageSections5 = map[uint32]string{1: "info", 3: "abbrev", 4: "line", 5: "loclists", 6: "str_offsets", 8: "rnglists"}
)

// packageIndex reads .debug_cu_index or .debug_tu_index (DWARF 5 §7.3.5). Units are found by where they begin, so the table of their IDs is passed over.
func packageIndex(b []byte) (out contributions, version uint16, ok bool) {
	const head, mostColumns = 16, 16
	if len(b) < head {
		return nil, 0, false
	}
	version = binary.LittleEndian.Uint16(b)
	columns, units, slots := uint64(uintOf(b[4:8])), uint64(uintOf(b[8:12])), uint64(uintOf(b[12:16]))
	names := map[uint16]map[uint32]string{2: packageSections2, 5: packageSections5}[version]
	b = b[head:]
	const mostUnits = 1 << 18
	if names == nil || columns == 0 || columns > mostColumns || units > min(slots, mostUnits) || slots > uint64(len(b))/12 {
		return nil, version, false
	}
	b = b[12*slots:] // IDs, and the rows that they have
	if (1+2*units)*columns > uint64(len(b))/4 {
		return nil, version, false
	}
	number := func(i uint64) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	out = contributions{}
	for u := range units {
		row := contribution{}
		for c := range columns {
			if name := names[number(c)]; name != "" {
				row[name] = extent{uint64(number((1+u)*columns + c)), uint64(number((1+units+u)*columns + c))}
			}
		}
		unit, has := row["info"]
		if !has {
			unit = row["types"]
		}
		out[unit.off] = row
	}
	return out, version, true
}
