package symbols

import (
	"debug/dwarf"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gokprobe/gokprobe/internal/budget"
)

// dwarfData is a file's DWARF, read on first use. Units are parsed one by one
// as addresses and lines ask for them; Delve's BinaryInfo would read them all.
type dwarfData struct {
	data  *dwarf.Data
	units []*unit

	kept    *budget.Account
	refused refusals
	headers []unitHeader
	read    atomic.Int64 // see dies

	replaced   map[dwarf.Offset]bool   // the skeleton units whose split units are here
	signatures map[uint64]dwarf.Offset // types, by what other units call them
	supplement *reach                  // the file's supplementary file (DWARF 5 §7.3.6; dwz)
	isJoined   bool                    // it depends on other files than its own

	info                                        []byte
	lineSection, lineStr, str, ranges, rnglists []byte
	loc, loclists, addrs                        []byte

	lineMu     sync.Mutex
	lineTables map[int64]*lineTable // by offset
	lineSeen   uint64               // bytes of tables

	rangeOnce sync.Once
	byAddr    []unitRange

	typeMu sync.Mutex
	types  map[dwarf.Offset]*dtype

	inline inlining
	sites  cache[callSites]

	globals globals
	named   namedTypes
	golang  goTypes
}

type unit struct {
	off   dwarf.Offset // of its first entry
	entry *dwarf.Entry
	code  *dwarf.Entry // the entry that tells where its code is: of a split unit, that of the skeleton unit
	lang  language
	// hasGoRegisters says that Go passes arguments in registers (1.17 and later).
	hasGoRegisters bool
	// hasRustMemory says that rustc returns aggregates of 9 to 16 bytes in memory (1.63 and later; earlier ones differ).
	hasRustMemory bool

	funcOnce sync.Once
	// innerFuncs are those that are described in others.
	innerFuncs []function
	innerOnce  sync.Once
	funcs      []function

	optimizedOnce sync.Once
	isOptimized   bool // see dwarfData.isOptimized
}

type unitRange struct {
	lo, hi uint64
	u      *unit
}

func (d *dwarfData) size() uint64 { return d.kept.Held() }

func (d *dwarfData) drop() { d.kept.Close() }

// newDWARF reads the DWARF of f, which must have some, and what of it lies in other files, where near looks for them; it may be nil. It checks the
// sections before it hands them to debug/dwarf.
func newDWARF(f *object, near *vicinity) (_ *dwarfData, err error) {
	d := &dwarfData{kept: budget.Process().Open(), types: map[dwarf.Offset]*dtype{}}
	defer func() {
		if p := recover(); p != nil { // of debug/dwarf, on damaged input
			err = fmt.Errorf("%v", p)
		}
		if err != nil {
			d.kept.Close()
			err = f.refuse(err)
		}
	}()
	own, err := readSections(f, "", d.kept)
	if err != nil {
		return nil, err
	}
	if err := d.check(own["info"], own["abbrev"], own["str"], own["line_str"]); err != nil {
		return nil, err
	}
	if err := d.load(own, nil); err != nil {
		return nil, err
	}
	if near == nil {
		return d, nil
	}
	return d.withOthers(f, own, near)
}

// sections are the contents of sections of debug information, by name without .debug_.
type sections map[string][]byte

var sectionNames = []string{"info", "types", "abbrev", "str", "line_str", "str_offsets", "line", "ranges", "rnglists", "loc", "loclists", "addr"}

// readSections reads those of f whose names end in suffix. An error is of the entries, without which the others say nothing.
func readSections(f *object, suffix string, acct *budget.Account) (sections, error) {
	s := sections{}
	for _, name := range sectionNames {
		b, err := f.debugSection(name+suffix, acct)
		if err != nil && name == "info" {
			return nil, err
		}
		s[name] = b
	}
	return s, nil
}

// load takes sections into use, in which units of other files may be joined with the file's.
func (d *dwarfData) load(s sections, joined []*joinedUnit) (err error) {
	if len(s["info"]) > math.MaxUint32 { // what an offset of debug/dwarf holds
		return fmt.Errorf("%w: the debug information has %d bytes", errTooMuch, len(s["info"]))
	}
	d.info, d.lineSection, d.str, d.lineStr = s["info"], s["line"], s["str"], s["line_str"]
	d.ranges, d.rnglists, d.loc, d.loclists, d.addrs = s["ranges"], s["rnglists"], s["loc"], s["loclists"], s["addr"]
	d.headers = unitHeaders(d.info)
	d.haveJoined(joined)
	if d.data, err = dwarf.New(s["abbrev"], nil, nil, d.info, d.lineSection, nil, d.ranges, d.str); err != nil {
		return err
	}
	for _, name := range []string{"addr", "line_str", "str_offsets", "rnglists"} {
		if b := s[name]; len(b) > 0 {
			if err := d.data.AddSection(".debug_"+name, b); err != nil {
				return err
			}
		}
	}
	d.units, err = d.readUnits() // without some, functions would seem not to be there
	return err
}

// header is that of the unit that contains the entry at off.
func (d *dwarfData) header(off dwarf.Offset) (h unitHeader, ok bool) {
	i := sort.Search(len(d.headers), func(i int) bool { return d.headers[i].end > uint64(off) })
	if i == len(d.headers) {
		return h, false
	}
	return d.headers[i], true
}

// keep asks the memory budget for n bytes that are kept with d. A refusal is noted.
func (d *dwarfData) keep(n uint64, what string) error { return d.refused.note(d.kept.Take(n, what)) }

func (d *dwarfData) readUnits() (out []*unit, err error) {
	for _, h := range d.headers {
		e := d.entryAt(h.first)
		if e == nil || e.Tag != dwarf.TagCompileUnit && e.Tag != dwarf.TagSkeletonUnit || d.isReplaced(e) {
			continue
		}
		if err := d.kept.Take(uint64(textOf(e)), "the units of the debug information"); err != nil {
			return nil, err
		}
		u := newUnit(h.first, e)
		if h.joined != nil && h.joined.skeleton == nil {
			continue
		}
		if h.joined != nil {
			u.code = h.joined.skeleton.entry
			u.entry = united(e, u.code)
		}
		out = append(out, u)
	}
	return out, nil
}

func newUnit(off dwarf.Offset, e *dwarf.Entry) *unit {
	u := &unit{off: off, entry: e, code: e}
	const dwLangGo, dwLangRust = 0x16, 0x1c // DWARF 5 §7.12
	switch lang, _ := e.Val(dwarf.AttrLanguage).(int64); lang {
	case dwLangGo:
		u.lang = langGo
		minor, ok := versionBehind(e, "go1.")
		u.hasGoRegisters = !ok || minor >= 17 // a development version has no number
	case dwLangRust:
		u.lang = langRust
		minor, _ := versionBehind(e, "rustc version 1.")
		u.hasRustMemory = minor >= 63
	}
	return u
}

// versionBehind returns the version number that follows name in the producer of the unit e (DW_AT_producer).
func versionBehind(e *dwarf.Entry, name string) (n int, ok bool) {
	producer, _ := e.Val(dwarf.AttrProducer).(string)
	_, version, _ := strings.Cut(producer, name)
	end := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(version)
	}
	n, err := strconv.Atoi(version[:end])
	return n, err == nil
}

// unitAt returns the unit that covers link-time address v.
func (d *dwarfData) unitAt(v uint64) *unit {
	d.rangeOnce.Do(func() {
		x := &dies{d: d, left: mostEntries, most: mostEntries}
		for _, u := range d.units {
			ranges, err := x.ranges(u.code)
			if err != nil {
				continue
			}
			for _, r := range ranges {
				if r[0] < r[1] {
					d.byAddr = append(d.byAddr, unitRange{r[0], r[1], u})
				}
			}
		}
		const cost = 48 // bytes, while the list grows
		if d.keep(uint64(len(d.byAddr))*cost, "the ranges of the debug information") != nil {
			d.byAddr = nil
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
	for _, x := range []struct {
		once *sync.Once
		list *[]function
		deep bool
	}{{&u.funcOnce, &u.funcs, false}, {&u.innerOnce, &u.innerFuncs, true}} {
		x.once.Do(func() {
			const cost = 32 // bytes; lists grow by a quarter
			if list := d.functions(u, x.deep); d.keep(uint64(len(list))*cost, "the functions of the debug information") == nil {
				*x.list = list
			}
		})
		list := *x.list
		if i := sort.Search(len(list), func(i int) bool { return list[i].lo > v }) - 1; i >= 0 && v < list[i].hi {
			return u, list[i].off, true
		}
	}
	return u, 0, false
}

// functions lists u's functions by address. Most sit below namespaces and types. With deep, those are listed that are described in other functions, as GCC
// does with closures, methods of local classes, and nested functions of C. For them all of u is read.
func (d *dwarfData) functions(u *unit, deep bool) []function {
	var out []function
	r := d.entriesAt(u.off)
	r.next()
	for depth, within := 1, 0; depth > 0; { // within: the depth of a function, 0 outside of them
		e := r.next()
		if e == nil {
			break
		}
		if e.Tag == 0 {
			if depth--; depth < within {
				within = 0
			}
			continue
		}
		if e.Tag == dwarf.TagSubprogram && deep == (within > 0) {
			ranges, _ := r.ranges(e)
			for _, x := range ranges {
				out = append(out, function{x[0], x[1], e.Offset})
			}
		}
		switch {
		case !e.Children:
		case mayHold(e, deep):
			if depth++; e.Tag == dwarf.TagSubprogram && within == 0 {
				within = depth
			}
		default:
			r.skip(e)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].lo < out[j].lo })
	return out
}

// mayHold tells that functions may be described below e; with deep, also those in other functions.
func mayHold(e *dwarf.Entry, deep bool) bool {
	switch e.Tag {
	case dwarf.TagNamespace, dwarf.TagModule, dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType:
		return true
	case dwarf.TagSubprogram, dwarf.TagLexDwarfBlock, dwarf.TagInlinedSubroutine:
		return deep
	}
	return false
}

// origins is e followed by the entries that it completes: the abstract entry of which it is a
// concrete copy (DW_AT_abstract_origin), and the declaration that it defines
// (DW_AT_specification).
func (d *dwarfData) origins(e *dwarf.Entry) []*dwarf.Entry {
	const longest = 8 // damaged references may form a cycle
	list := []*dwarf.Entry{e}
	for len(list) < longest {
		off, ok := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
		if !ok {
			off, ok = e.Val(dwarf.AttrSpecification).(dwarf.Offset)
		}
		if !ok {
			break
		}
		if e = d.entryAt(off); e == nil {
			break
		}
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
	r := d.entriesAt(off)
	if e := r.next(); e == nil || !e.Children {
		return 0
	}
	found := dwarf.Offset(0)
	for depth := 1; depth > 0; {
		e := r.next()
		if e == nil {
			break
		}
		if e.Tag == 0 {
			depth--
			continue
		}
		if (e.Tag == dwarf.TagInlinedSubroutine || e.Tag == dwarf.TagLexDwarfBlock) && r.covers(e, v) {
			if e.Tag == dwarf.TagInlinedSubroutine {
				found = e.Offset
			}
			if e.Children {
				depth++
			}
			continue
		}
		r.skip(e)
	}
	return found
}

// covers reports whether v is in e's code. It reports true for a block without an address, which
// some compilers write: the entries within may cover v.
func (x *dies) covers(e *dwarf.Entry, v uint64) bool {
	ranges, err := x.ranges(e)
	if err != nil || len(ranges) == 0 {
		return e.Tag == dwarf.TagLexDwarfBlock
	}
	for _, r := range ranges {
		if v >= r[0] && v < r[1] {
			return true
		}
	}
	return false
}
