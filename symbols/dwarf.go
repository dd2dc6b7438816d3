package symbols

import (
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/go-delve/delve/pkg/dwarf/godwarf"
)

// dwarfData is a file's DWARF, read on first use. Units are parsed one by one
// as addresses and lines ask for them; Delve's BinaryInfo would read them all.
type dwarfData struct {
	once  sync.Once
	err   error
	data  *dwarf.Data
	units []*unit

	lineSection []byte

	rangeOnce sync.Once
	byAddr    []unitRange

	typeMu sync.Mutex
	types  map[dwarf.Offset]*dtype

	inline inlining
}

type unit struct {
	off   dwarf.Offset // of its first entry
	entry *dwarf.Entry
	lang  language
	// goRegisters tells that Go passes arguments in registers (1.17 and later).
	goRegisters bool

	funcOnce sync.Once
	funcs    []function

	lineOnce sync.Once
	rows     []row // by address
	files    []string
}

type unitRange struct {
	lo, hi uint64
	u      *unit
}

// debugSection reads .debug_NAME, decompressed.
func debugSection(f *elf.File, name string) ([]byte, error) {
	if s := f.Section(".debug_" + name); s != nil && s.Type == elf.SHT_NOBITS {
		return nil, nil
	}
	return godwarf.GetDebugSectionElf(f, name)
}

// dwarfOf returns img's DWARF data, from its debug file if it has none itself.
func (img *image) dwarfOf(t *Table) (*dwarfData, error) {
	d := &img.dwarf
	d.once.Do(func() { d.err = img.loadDWARF(d, t) })
	return d, d.err
}

func (img *image) loadDWARF(d *dwarfData, t *Table) error {
	f := img.f
	info, err := debugSection(f, "info")
	if err != nil || len(info) == 0 {
		if f = img.debug(t); f == nil {
			return img.noDWARF()
		}
		if info, err = debugSection(f, "info"); err != nil || len(info) == 0 {
			return img.noDWARF()
		}
	}
	get := func(name string) []byte {
		b, _ := debugSection(f, name)
		return b
	}
	d.lineSection = get("line")
	d.data, err = dwarf.New(get("abbrev"), nil, nil, info, d.lineSection, nil, get("ranges"), get("str"))
	if err != nil {
		return fmt.Errorf("%w: DWARF of %s: %w", ErrNoLines, img.path, err)
	}
	for _, name := range []string{"addr", "line_str", "str_offsets", "rnglists"} {
		if b := get(name); len(b) > 0 {
			if err := d.data.AddSection(".debug_"+name, b); err != nil {
				return fmt.Errorf("%w: DWARF of %s: %w", ErrNoLines, img.path, err)
			}
		}
	}
	d.types = map[dwarf.Offset]*dtype{}
	d.units = d.readUnits(unitOffsets(info))
	return nil
}

// noDWARF says which debug files were looked for.
func (img *image) noDWARF() error {
	seen, places := map[string]bool{}, []string(nil)
	for _, p := range img.searched {
		if !seen[p] {
			seen[p] = true
			places = append(places, p)
		}
	}
	if len(places) == 0 {
		return fmt.Errorf("%w: %s has %w and names no debug file", ErrNoLines, img.path, ErrNoDebugInfo)
	}
	return fmt.Errorf("%w: %s has %w, no debug file at %s", ErrNoLines, img.path, ErrNoDebugInfo, strings.Join(places, ", "))
}

// unitOffsets lists the offsets of the first entries of all units: the end of
// each unit's header (DWARF 5 §7.5.1).
func unitOffsets(info []byte) []dwarf.Offset {
	var out []dwarf.Offset
	for off := uint64(0); off+12 <= uint64(len(info)); {
		b := info[off:]
		length, head, offSize := uint64(binary.LittleEndian.Uint32(b)), uint64(4), uint64(4)
		if length == 0xffffffff {
			if len(b) < 24 {
				return out
			}
			length, head, offSize = binary.LittleEndian.Uint64(b[4:]), 12, 8
		}
		if length < 8 || length > uint64(len(b))-head {
			return out
		}
		size := head + 2 + offSize + 1 // length, version, abbrev offset, address size
		if binary.LittleEndian.Uint16(b[head:]) >= 5 {
			size++ // unit type
			switch b[head+2] {
			case 4, 5: // skeleton and split units: 8-byte id
				size += 8
			case 2, 6: // type units: signature and offset
				size += 8 + offSize
			}
		}
		out = append(out, dwarf.Offset(off+size))
		off += head + length
	}
	return out
}

func (d *dwarfData) readUnits(offs []dwarf.Offset) []*unit {
	var out []*unit
	r := d.data.Reader()
	for _, off := range offs {
		r.Seek(off)
		e, err := r.Next()
		if err != nil || e == nil || e.Tag != dwarf.TagCompileUnit {
			continue
		}
		out = append(out, newUnit(off, e))
	}
	return out
}

func newUnit(off dwarf.Offset, e *dwarf.Entry) *unit {
	u := &unit{off: off, entry: e}
	const dwLangGo, dwLangRust = 0x16, 0x1c // DWARF 5 §7.12
	switch lang, _ := e.Val(dwarf.AttrLanguage).(int64); lang {
	case dwLangGo:
		u.lang = langGo
		producer, _ := e.Val(dwarf.AttrProducer).(string)
		_, version, _ := strings.Cut(producer, "go1.")
		end := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			end = len(version)
		}
		minor, err := strconv.Atoi(version[:end])
		u.goRegisters = err != nil || minor >= 17 // a development version has no number
	case dwLangRust:
		u.lang = langRust
	}
	return u
}

// unitAt returns the unit that covers link-time address v.
func (d *dwarfData) unitAt(v uint64) *unit {
	d.rangeOnce.Do(func() {
		for _, u := range d.units {
			ranges, err := d.data.Ranges(u.entry)
			if err != nil {
				continue
			}
			for _, r := range ranges {
				if r[0] < r[1] {
					d.byAddr = append(d.byAddr, unitRange{r[0], r[1], u})
				}
			}
		}
		sort.Slice(d.byAddr, func(i, j int) bool { return d.byAddr[i].lo < d.byAddr[j].lo })
	})
	i := sort.Search(len(d.byAddr), func(i int) bool { return d.byAddr[i].lo > v })
	// A range of address 0 belongs to discarded code and may span others.
	for i--; i >= 0; i-- {
		if v < d.byAddr[i].hi {
			return d.byAddr[i].u
		}
		if v-d.byAddr[i].hi > 1<<24 {
			break
		}
	}
	return nil
}

// function is one range of code of a function's entry.
type function struct {
	lo, hi uint64
	off    dwarf.Offset
}

// subprogram finds the entry of the function that covers v.
func (d *dwarfData) subprogram(v uint64) (*unit, dwarf.Offset, bool) {
	u := d.unitAt(v)
	if u == nil {
		return nil, 0, false
	}
	u.funcOnce.Do(func() { u.funcs = d.functions(u) })
	i := sort.Search(len(u.funcs), func(i int) bool { return u.funcs[i].lo > v }) - 1
	if i < 0 || v >= u.funcs[i].hi {
		return u, 0, false
	}
	return u, u.funcs[i].off, true
}

// functions lists u's functions by address. They sit below namespaces and
// types, never below each other.
func (d *dwarfData) functions(u *unit) []function {
	var out []function
	r := d.data.Reader()
	r.Seek(u.off)
	if _, err := r.Next(); err != nil {
		return nil
	}
	for depth := 1; depth > 0; {
		e, err := r.Next()
		if err != nil || e == nil {
			break
		}
		switch e.Tag {
		case 0:
			depth--
			continue
		case dwarf.TagSubprogram:
			ranges, _ := d.data.Ranges(e)
			for _, x := range ranges {
				out = append(out, function{x[0], x[1], e.Offset})
			}
		case dwarf.TagNamespace, dwarf.TagModule, dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType:
			if e.Children {
				depth++
			}
			continue
		}
		if e.Children {
			r.SkipChildren()
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].lo < out[j].lo })
	return out
}

// origins is e followed by the entries it completes: what it is a concrete copy
// of and what it defines (DW_AT_abstract_origin, DW_AT_specification).
func (d *dwarfData) origins(e *dwarf.Entry) []*dwarf.Entry {
	const longest = 8 // damaged references may form a cycle
	list := []*dwarf.Entry{e}
	r := d.data.Reader()
	for len(list) < longest {
		off, ok := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
		if !ok {
			off, ok = e.Val(dwarf.AttrSpecification).(dwarf.Offset)
		}
		if !ok {
			break
		}
		r.Seek(off)
		next, err := r.Next()
		if err != nil || next == nil {
			break
		}
		e = next
		list = append(list, e)
	}
	return list
}

// attr is the first value of an attribute in a list of origins.
func attr(list []*dwarf.Entry, a dwarf.Attr) any {
	for _, e := range list {
		if v := e.Val(a); v != nil {
			return v
		}
	}
	return nil
}

// inlined returns the innermost inlined call around v in the function at off, 0
// if v is the function's own code.
func (d *dwarfData) inlined(off dwarf.Offset, v uint64) dwarf.Offset {
	r := d.data.Reader()
	r.Seek(off)
	if e, err := r.Next(); err != nil || e == nil || !e.Children {
		return 0
	}
	found := dwarf.Offset(0)
	for depth := 1; depth > 0; {
		e, err := r.Next()
		if err != nil || e == nil {
			break
		}
		if e.Tag == 0 {
			depth--
			continue
		}
		if (e.Tag == dwarf.TagInlinedSubroutine || e.Tag == dwarf.TagLexDwarfBlock) && d.covers(e, v) {
			if e.Tag == dwarf.TagInlinedSubroutine {
				found = e.Offset
			}
			if e.Children {
				depth++
			}
			continue
		}
		if e.Children {
			r.SkipChildren()
		}
	}
	return found
}

// covers reports whether v is in e's code. A block without an address, of a
// damaged or odd compiler, is entered.
func (d *dwarfData) covers(e *dwarf.Entry, v uint64) bool {
	ranges, err := d.data.Ranges(e)
	if err != nil || len(ranges) == 0 {
		return e.Tag == dwarf.TagLexDwarfBlock
	}
	for _, x := range ranges {
		if v >= x[0] && v < x[1] {
			return true
		}
	}
	return false
}
