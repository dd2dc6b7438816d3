package symbols

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/gokprobe/gokprobe/internal/budget"
)

// joinedFile is a file whose units are joined with those of another one.
type joinedFile struct {
	j      *joiner
	s      sections
	at     map[string]uint64    // where its sections begin behind the other's
	units  contributions        // of units, by where they begin
	types  contributions        // of types' units
	old    bool                 // it is of DWARF 4
	wanted map[uint64]*skeleton // by ID; nil where all units are wanted
	isUsed bool
	// isPackage says that units and types are those of an index.
	isPackage bool
	acct      *budget.Account
	tables    map[uint64]*abbrevList
	parsed    uint64 // bytes of tables
}

func newJoinedFile(j *joiner, s sections, acct *budget.Account) *joinedFile {
	return &joinedFile{j: j, s: s, at: map[string]uint64{}, units: s.whole(), types: s.whole(), acct: acct, tables: map[uint64]*abbrevList{}}
}

var errNoUnit = errors.New("it has no unit of the program, which was built again since, or elsewhere")

// compileUnits joins the split units that are wanted, and returns how many.
func (f *joinedFile) compileUnits() (n int, err error) {
	eachUnit(f.s["info"], func(h unitHeader) {
		b := f.s["info"][h.start:h.end]
		if err != nil || h.version >= 5 && h.kind != unitSplit {
			return
		}
		idAt := 0
		if h.version < 5 {
			if idAt, h.id = f.oldID(h, b); idAt == 0 {
				return
			}
		}
		s := f.wanted[h.id]
		if s == nil || s.found {
			return
		}
		if err = f.use(); err == nil {
			err = f.unit(h, b, s, idAt)
		}
		if err == nil {
			s.found = true
			n++
		}
	})
	return n, err
}

// typeUnits joins the units of types.
func (f *joinedFile) typeUnits() (err error) {
	eachUnit(f.s["info"], func(h unitHeader) {
		if err == nil && f.isUsed && (h.kind == unitType || h.kind == unitSplitType) {
			err = f.typeUnit(h, f.s["info"][h.start:h.end])
		}
	})
	eachUnit(f.s["types"], func(h unitHeader) { // of DWARF 4: the header goes on with signature and offset
		b := f.s["types"][h.start:h.end]
		if h.id, h.typ = headerNumber(b, 11, 8), headerNumber(b, 19, 4); err == nil && len(b) > 23 && h.version < 5 {
			err = f.typeUnit(h, b)
		}
	})
	return err
}

func (f *joinedFile) typeUnit(h unitHeader, b []byte) error {
	if f.j.signatures[h.id] {
		return nil
	}
	f.j.signatures[h.id] = true
	return f.unit(h, b, nil, 0)
}

// oldID is the ID of a split unit of DWARF 4, and where it is in the unit; 0 if there is none.
func (f *joinedFile) oldID(h unitHeader, b []byte) (at int, id uint64) {
	const head = 11
	a, c, ok := f.root(h, b, head)
	if !ok {
		return 0, 0
	}
	for _, x := range a.attrs {
		if c.isBad {
			break
		}
		if x.attr == attrGNUDwoID && x.form == formData8 {
			return len(b) - len(c.b), c.uint(8)
		}
		c.skipForm(x.form)
	}
	return 0, 0
}

// root is the abbreviation of a unit's own entry, which begins behind head bytes; c stands at its attributes.
func (f *joinedFile) root(h unitHeader, b []byte, head int) (a abbreviation, c *lineCursor, ok bool) {
	if head >= len(b) || h.isWide {
		return a, nil, false
	}
	table, ok := f.abbrevs(h)
	if !ok {
		return a, nil, false
	}
	c = &lineCursor{b: b[head:]}
	a, ok = table.byCode[c.uleb()]
	return a, c, ok && !c.isBad
}

// abbrevList is a table of abbreviations.
type abbrevList struct {
	list   []abbreviation
	byCode map[uint64]abbreviation
}

// abbrevs is the table of a unit.
func (f *joinedFile) abbrevs(h unitHeader) (*abbrevList, bool) {
	row := f.row(h)
	if row == nil || f.isPackage && (h.version < 5) != f.old { // a package does not tell which parts are of the unit
		return nil, false
	}
	off := row["abbrev"].off + h.abbrev
	if t := f.tables[off]; t != nil {
		return t, len(t.list) > 0
	}
	b := f.s["abbrev"]
	if off >= uint64(len(b)) || f.parsed > uint64(len(b)) { // more than all: tables overlap
		return nil, false
	}
	t := &abbrevList{byCode: map[uint64]abbreviation{}}
	c := &lineCursor{b: b[off:]}
	for {
		a, ok := c.readAbbrev()
		if !ok {
			break
		}
		t.list = append(t.list, a)
		t.byCode[a.code] = a
	}
	if c.isBad {
		t.list = nil
	}
	size := uint64(len(b)) - off - uint64(len(c.b))
	const cost = 32 // bytes in memory for one in the file
	if f.parsed += size; f.acct.Take(cost*size, "the abbreviations of split debug information") != nil {
		t.list = nil
	}
	f.tables[off] = t
	return t, len(t.list) > 0
}

// row tells which parts of the sections are of a unit.
func (f *joinedFile) row(h unitHeader) contribution {
	of := f.units
	if h.kind == unitSplitType || h.typ > 0 {
		of = f.types
	}
	if row, ok := of[h.start]; ok {
		return row
	}
	return of[wholeFile]
}

// use puts the sections to which units refer behind those of the other file.
func (f *joinedFile) use() (err error) {
	if f.isUsed {
		return nil
	}
	f.isUsed = true
	if f.at["str"], err = f.j.put("str", f.s["str"]); err != nil {
		return err
	}
	if err := f.moveStrings(); err != nil {
		return err
	}
	for _, name := range []string{"str_offsets", "loc", "loclists", "rnglists"} {
		if f.at[name], err = f.j.put(name, f.s[name]); err != nil {
			return err
		}
	}
	return nil
}

// moveStrings adds to the offsets of strings where the strings begin now.
func (f *joinedFile) moveStrings() error {
	if f.at["str"]+uint64(len(f.s["str"])) > math.MaxUint32 {
		return fmt.Errorf("%w: strings of over 4 GiB", errTooMuch)
	}
	seen := map[uint64]bool{}
	for _, of := range []contributions{f.units, f.types} {
		for _, row := range of {
			e := row["str_offsets"]
			b, ok := section(f.s["str_offsets"], e.off, e.size)
			if seen[e.off] || !ok {
				continue
			}
			seen[e.off] = true
			if !f.old {
				b = b[min(len(b), strOffsetsHeader):]
			}
			for ; len(b) >= 4; b = b[4:] {
				binary.LittleEndian.PutUint32(b, binary.LittleEndian.Uint32(b)+uint32(f.at["str"]))
			}
		}
	}
	return nil
}

// Lengths of headers (DWARF 5 §7.26, §7.28, §7.29).
const (
	strOffsetsHeader = 8
	listsHeader      = 12
)

// unit joins one unit: s is its skeleton, if it has one, and idAt where its ID is, if it is one of DWARF 4.
func (f *joinedFile) unit(h unitHeader, b []byte, s *skeleton, idAt int) error {
	if err := f.use(); err != nil {
		return err
	}
	row := f.row(h)
	u := &joinedUnit{version: h.version, skeleton: s, id: h.id, typ: h.typ}
	k := tableKey{file: f, from: row["abbrev"].off + h.abbrev}
	k.bases.str = int64(f.at["str_offsets"] + row["str_offsets"].off)
	head := int(uint64(h.first) - h.start)
	if h.version >= 5 {
		u.loc, u.ranges = f.at["loclists"]+row["loclists"].off, f.at["rnglists"]+row["rnglists"].off
		k.bases = bases{str: k.bases.str + strOffsetsHeader, loc: int64(u.loc) + listsHeader, ranges: int64(u.ranges) + listsHeader}
	} else {
		u.loc = f.at["loc"] + row["loc"].off
		if s == nil {
			head = 23
		}
	}
	if s != nil {
		k.bases.addr = s.addrBase
		if h.version < 5 {
			u.ranges = s.rangesBase
		}
	}
	a, c, ok := f.root(h, b, head)
	if !ok {
		return errUnit
	}
	k.root, k.lost, k.moved = a.code, h.version < 5 && s != nil, h.version < 5 && s == nil
	table, _ := f.abbrevs(h)
	at, err := f.j.table(k, table.list)
	if err != nil {
		return err
	}
	switch {
	case k.lost:
		b = shifted(b, idAt)
	case k.moved:
		b = padded(b, len(b)-head-len(c.b))
	default:
		b = append([]byte(nil), b...)
	}
	binary.LittleEndian.PutUint32(b[8:], uint32(at))
	next := uint64(len(f.j.own["info"]) + len(f.j.more["info"]))
	u.reach = &reach{add: next - h.start, lo: next, hi: next + uint64(len(b)), str: f.s["str"]}
	return f.j.putUnit(b, u)
}
