package symbols

import (
	"bytes"
	"cmp"
	"debug/dwarf"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
)

// Inlined counts the calls of the function that contains a which the compiler has replaced
// by the function's body: a probe at its entry does not see them. known is false if n may be
// too small: the debug information does not tell, or has more than a million entries, after
// which reading stops. The first question about a function that was inlined anywhere reads
// all entries of its file, which takes up to a second.
func (t *Table) Inlined(a arch.Addr) (n int, known bool) {
	m := t.module(a)
	if m == nil || m.img == nil {
		return 0, false
	}
	d, err := m.img.dwarfOf(t)
	if err != nil {
		return 0, false
	}
	_, off, ok := d.subprogram(m.link(a))
	if !ok {
		return 0, false
	}
	origin, ok := d.abstract(off)
	if !ok {
		return 0, true // nobody has a copy of it
	}
	d.readInlined()
	return len(d.inline.calls[origin]), d.inline.isAll
}

// abstract is the entry that a function's copies, inlined ones among them, refer to. ok is
// false if there is none.
func (d *dwarfData) abstract(off dwarf.Offset) (origin dwarf.Offset, ok bool) {
	e := d.entryAt(off)
	if e == nil {
		return 0, false
	}
	origin, ok = e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
	return origin, ok
}

// vanished is a function that has calls in a module, all inlined, and no code of its own.
type vanished struct {
	calls int
	// A line of it that has code in them, and in how many places; none if file is empty.
	file         string
	line, places int
}

// inlinedAway finds the function of a name without a symbol whose calls in m were all inlined. Debug information
// describes such a function. The first question about a name that occurs there reads all of it.
func (m *Module) inlinedAway(t *Table, name string) (v vanished, ok bool) {
	if m.img == nil || name == "" {
		return vanished{}, false
	}
	d, err := m.img.dwarfOf(t)
	if err != nil || !d.mentions(name) {
		return vanished{}, false
	}
	d.readInlined()
	origins := d.inline.of(name)
	for _, origin := range origins {
		v.calls += len(d.inline.calls[origin])
	}
	const most = 8 // of one name's functions that are asked for a line
	for _, origin := range origins[:min(len(origins), most)] {
		calls := d.inline.calls[origin]
		if len(calls) == 0 {
			continue
		}
		file, line := d.lineInside(origin, calls[0])
		if file == "" {
			continue
		}
		short := filepath.Base(file)
		if v.places = t.placesOf(m, short, line); v.places > t.placesOf(m, file, line) {
			short = file // another file is called so, too
			v.places = t.placesOf(m, file, line)
		}
		if v.places > 0 {
			v.file, v.line = short, line
			break
		}
	}
	return v, len(origins) > 0
}

// placesOf counts the places of a line of m.
func (t *Table) placesOf(m *Module, file string, line int) int {
	locs, _, err := t.moduleLine(m, query{file: file, line: line}, map[int]bool{})
	if err != nil {
		return 0
	}
	return len(dedupe(locs))
}

// mentions reports whether the file's debug information contains name. It is quick, and spares reading the entries for
// most unknown names.
func (d *dwarfData) mentions(name string) bool {
	word := []byte(name)
	if hint := mangledHint(name); hint != "" {
		word = []byte(hint)
	} else if isOperator(name) { // of which mangled names have abbreviations
		return true
	}
	return bytes.Contains(d.str, word) || bytes.Contains(d.info, word)
}

// lineInside returns the first line of an inlined function that has code in the call. Lines of functions that were
// inlined into it in turn do not count. file is empty if there is no such line. Compilers mix in code of the caller,
// which is left out: its line is that of the call, or stands before the function, or in another file.
func (d *dwarfData) lineInside(origin, call dwarf.Offset) (file string, line int) {
	r := d.entriesAt(call)
	e := r.next()
	if e == nil {
		return "", 0
	}
	ranges, err := r.ranges(e)
	if err != nil || len(ranges) == 0 {
		return "", 0
	}
	decl, start := d.declared(origin)
	first := d.firstLine(decl, start, call, e, ranges)
	return first.file, first.line
}

// beginning is the first line of an inlined function that has code in a call.
type beginning struct {
	file   string
	line   int
	at     uint64 // the lowest address with code of it
	pieces int    // ranges of the call that have such code
	asked  int
	isCut  bool // not all of the call was looked at
}

// firstLine is lineInside of an entry that was read, of a function that is declared at a line of decl.
func (d *dwarfData) firstLine(decl string, start int, call dwarf.Offset, e *dwarf.Entry, ranges [][2]uint64) (b beginning) {
	u := d.unitAt(ranges[0][0])
	_, fn, ok := d.subprogram(ranges[0][0])
	if u == nil || !ok || decl == "" {
		return b
	}
	callLine, _ := e.Val(dwarf.AttrCallLine).(int64)
	rows, files := d.lines(u)
	const mostRanges, mostAsked = 64, 256
	b.isCut = len(ranges) > mostRanges
	for _, rg := range ranges[:min(len(ranges), mostRanges)] {
		first := sort.Search(len(rows), func(i int) bool { return rows[i].addr >= rg[0] })
		counted := false
		for _, row := range rows[first:] {
			if row.addr >= rg[1] {
				break
			}
			n := int(row.line)
			if !row.isStmt || row.file < 0 || files[row.file] != decl || n < start || n == int(callLine) || b.line > 0 && (n > b.line || n == b.line && counted) {
				continue
			}
			if b.asked == mostAsked {
				b.isCut = true
				break
			}
			b.asked++
			if d.inlined(fn, row.addr) != call {
				continue
			}
			if n != b.line {
				b.file, b.line, b.at, b.pieces = decl, n, row.addr, 0
			}
			b.at, b.pieces, counted = min(b.at, row.addr), b.pieces+1, true
		}
	}
	return b
}

// declared returns the place in the source of the function whose entry is at off. file is empty if it is unknown.
func (d *dwarfData) declared(off dwarf.Offset) (file string, line int) {
	i := sort.Search(len(d.units), func(i int) bool { return d.units[i].off > off }) - 1
	e := d.entryAt(off)
	if i < 0 || e == nil || d.lineTable(d.units[i]) == nil {
		return "", 0
	}
	origins := d.origins(e)
	n, _ := attr(origins, dwarf.AttrDeclFile).(int64)
	at, _ := attr(origins, dwarf.AttrDeclLine).(int64)
	lr := d.lineReader(d.units[i])
	if lr == nil || n < 0 || n >= int64(len(lr.Files())) || lr.Files()[n] == nil {
		return "", 0
	}
	return lr.Files()[n].Name, int(at)
}

// inlining holds the facts about inlined functions in a file's debug information. They are read once.
type inlining struct {
	once sync.Once
	// names has the entries of functions whose calls may be inlined; copies of the functions refer to these entries. The
	// key is the linkage name or, if there is none, the qualified name: GCC gives no linkage name to a function that
	// no other file can call.
	names map[string][]dwarf.Offset
	// calls has the inlined calls by the entry of the function. Calls within copies of the function itself are left out:
	// there they are parts into which GCC has split it.
	calls map[dwarf.Offset][]dwarf.Offset
	isAll bool // nothing was left out
}

// of finds the functions that a name may mean, as a user spells it.
func (in *inlining) of(name string) []dwarf.Offset {
	for _, spelled := range []string{name, withoutParams(name)} {
		if origins := in.names[spelled]; len(origins) > 0 {
			return origins
		}
	}
	hint := mangledHint(name)
	if hint == "" && !isOperator(name) {
		return nil
	}
	var origins []dwarf.Offset
	squeezed := squeeze(name)
	for linkage, at := range in.names {
		if isMangled(linkage) && strings.Contains(linkage, hint) && matchesMangled(linkage, squeezed) {
			origins = append(origins, at...)
		}
	}
	slices.Sort(origins)
	return origins
}

// readInlined reads what d says of them, once.
func (d *dwarfData) readInlined() {
	d.inline.once.Do(func() {
		d.inline.read(d.entriesAt(0))
		const cost = 64 // bytes, of one in a map
		size := uint64(2*len(d.inline.calls)+len(d.inline.names)) * cost
		for name := range d.inline.names {
			size += uint64(len(name))
		}
		for _, calls := range d.inline.calls {
			size += 4 * uint64(cap(calls))
		}
		if d.keep(size, "the inlined functions of the debug information") != nil {
			d.inline.names, d.inline.calls, d.inline.isAll = nil, nil, false
		}
	})
}

func (in *inlining) read(r *dies) {
	in.names, in.calls = map[string][]dwarf.Offset{}, map[dwarf.Offset][]dwarf.Offset{}
	var within dwarf.Offset // what the function that is read is a copy of, if it is one
	var scopes scopes
	declared := map[dwarf.Offset]string{} // those without linkage names
	for {
		e := r.next()
		if e == nil {
			in.isAll = r.err == nil
			return
		}
		if r.d.isReplaced(e) { // some skeletons have copies of what the split unit says
			r.skip(e)
			continue
		}
		origin, _ := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
		switch {
		case e.Tag == dwarf.TagSubprogram:
			within = origin
			if isDeclaration(e) && len(scopes) > 1 && linkageOf([]*dwarf.Entry{e}) == "" {
				declared[e.Offset] = scopes.qualified(e)
				r.spend(len(declared[e.Offset]) >> 6)
			}
			if mayBeInlined(e) {
				origins := r.d.origins(e)
				for _, o := range origins[1:] { // which readers of their own have read
					r.spend(1 + textOf(o)>>8)
				}
				name := cmp.Or(linkageOf(origins), declared[origins[len(origins)-1].Offset], scopes.qualified(e))
				r.spend(len(name) >> 6)
				in.names[name] = append(in.names[name], e.Offset)
			}
		case e.Tag == dwarf.TagInlinedSubroutine && origin != 0 && origin != within:
			in.calls[origin] = append(in.calls[origin], e.Offset)
		}
		scopes.pass(e)
	}
}

// scopes are the prefixes that the entries around the next one put in front of its name, from the outermost in. Each
// includes the ones before it.
type scopes []string

// longestScope bounds the prefix of a name, in bytes. A scope with a longer name adds no prefix.
const longestScope = 4 << 10

// pass updates s after e was read: it enters a scope, or leaves one at an empty entry.
func (s *scopes) pass(e *dwarf.Entry) {
	switch {
	case e.Tag == 0:
		*s = (*s)[:max(len(*s)-1, 0)]
	case e.Children:
		around := s.innermost()
		switch e.Tag {
		case dwarf.TagNamespace, dwarf.TagModule, dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType:
			if name, _ := e.Val(dwarf.AttrName).(string); name != "" && len(around)+len(name) < longestScope {
				around += name + "::"
			}
		}
		*s = append(*s, around)
	}
}

func (s *scopes) innermost() string {
	if len(*s) == 0 {
		return ""
	}
	return (*s)[len(*s)-1]
}

// qualified is e's name with the prefix of its scopes.
func (s *scopes) qualified(e *dwarf.Entry) string {
	name, _ := e.Val(dwarf.AttrName).(string)
	return s.innermost() + name
}

func isDeclaration(e *dwarf.Entry) bool {
	only, _ := e.Val(dwarf.AttrDeclaration).(bool)
	return only
}

// mayBeInlined reports whether the compiler has inlined calls of e, or was free to. GCC says of constructors that it has not (DW_INL_declared_not_inlined),
// and has inlined copies of them. Before the link, with -flto, it says nothing: then of each function that is described without code.
func mayBeInlined(e *dwarf.Entry) bool {
	if n, ok := e.Val(dwarf.AttrInline).(int64); ok {
		return n != 0 // DW_INL_not_inlined (DWARF 5 §7.20)
	}
	return e.AttrField(dwarf.AttrLowpc) == nil && e.AttrField(dwarf.AttrRanges) == nil && e.AttrField(dwarf.AttrAbstractOrigin) == nil && !isDeclaration(e)
}

// linkageOf is the linkage name of a list of origins, empty if there is none.
func linkageOf(list []*dwarf.Entry) string {
	const mipsLinkageName = dwarf.Attr(0x2007) // of GCC before DWARF 4
	name, ok := attr(list, dwarf.AttrLinkageName).(string)
	if !ok {
		name, _ = attr(list, mipsLinkageName).(string)
	}
	return name
}
