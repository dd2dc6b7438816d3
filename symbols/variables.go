package symbols

import (
	"debug/dwarf"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// Variables is what the source names at one instruction.
type Variables struct {
	Params []Param // of the function, or of the one that is inlined there
	Locals []Param // those of blocks around the instruction, outer ones first; a name is that of the innermost one
}

// mostVariables bounds what is named at an instruction: of more, the first are listed.
const mostVariables = 1000

// Variables lists the variables at the instruction at a, with their places just before it is executed, as debug information tells them: in registers,
// in the function's frame, at an address, constant. The function is the innermost one: of an inlined call, where a is in its body.
//
// A value is unknown where the compiler has left it nowhere at a, or tells its place in another way than these. Where it tells one place for the
// whole function, as without optimization, that is believed behind the prologue alone, and of a local variable behind the line of its declaration.
// What the program has not stored there yet is no value of its.
//
// At a function's entry, the parameters are those of Table.Params. The error is as for that.
func (t *Table) Variables(a arch.Addr) (Variables, error) {
	m := t.module(a)
	if m == nil {
		return Variables{}, errNotMapped(a)
	}
	if m.img == nil {
		return Variables{}, fmt.Errorf("%w: %w", ErrNoParams, m.Err)
	}
	d, err := m.img.dwarfOf(t)
	if err != nil {
		return Variables{}, fmt.Errorf("%w: %w", ErrNoParams, err)
	}
	v := m.link(a)
	u, off, ok := d.subprogram(v)
	if !ok || u.isAssembly() {
		return Variables{}, fmt.Errorf("%w: the debug information has no function of a compiler at %s", ErrNoParams, a)
	}
	sc := &scope{d: d, u: u, at: callee{low: v, isInside: true}, files: map[*unit][]*dwarf.LineFile{}}
	if err := sc.read(m.img, off); err != nil {
		return Variables{}, fmt.Errorf("%w: %w", ErrNoParams, err)
	}
	out := Variables{Params: sc.params, Locals: sc.visible()}
	for _, list := range [][]Param{out.Params, out.Locals} {
		for i := range list {
			list[i].table, list[i].mod, list[i].lang = t, m, u.lang
			list[i].settle(t, m)
		}
	}
	if sc.atEntry {
		out.Params, err = t.Params(a)
	}
	return out, err
}

// settle makes a place of p's in the file one in the process, in which m is the file.
func (p *Param) settle(t *Table, m *Module) {
	if p.place = p.place.loaded(t, m); p.place.isLate() && leadsOn(p.typ, &reader{lang: p.lang, bounds: p.bounds.made()}, 0) {
		p.place = place{isUnknown: true} // else the thread would have to stop for it
	}
}

// loaded is a place in the process: m tells where what is at an address of the file's is mapped.
func (p place) loaded(t *Table, m *Module) place {
	parts := slices.Clone(p.parts)
	for i := range parts {
		switch x := &parts[i]; x.reg {
		case staticPart:
			v := uint64(x.stack)
			if !m.img.hasData(v) || m.replacesData(v) {
				return place{isUnknown: true}
			}
			*x = part{off: x.off, size: 8, reg: constantPart, stack: int64(m.addr(v))}
		case threadPart:
			own, ok := t.inThread(m, x.stack)
			if !ok {
				return place{isUnknown: true}
			}
			return own
		case computedPart:
			made, ok := x.made.loaded(t, m)
			if !ok {
				return place{isUnknown: true}
			}
			x.made = made
		}
	}
	p.parts = parts
	return p
}

// replacesData tells that another module's object may be used in place of the one at v, as of the static variables of C++'s inline functions, of which each library has a copy.
func (m *Module) replacesData(v uint64) bool {
	if m.Kind == KindExecutable {
		return false
	}
	st := m.symbols()
	for i := range st.entries {
		if e := &st.entries[i]; e.kind == kindObject && e.isExported && e.value <= v && v-e.value < max(e.size, 1) {
			return true
		}
	}
	return false
}

// scope is the search for what is named at an instruction.
type scope struct {
	d       *dwarfData
	u       *unit
	at      callee
	atEntry bool   // of the function that is not inlined
	file    string // of the instruction, empty if it is unknown, and its line
	line    int
	files   map[*unit][]*dwarf.LineFile

	types  *typeReader
	params []Param
	locals []local
	isDone bool // what is around the innermost inlined call is no concern
}

// local is a variable, in so many blocks.
type local struct {
	Param
	depth int
}

// read reads the function at off, whose code img has.
func (sc *scope) read(img *image, off dwarf.Offset) error {
	d, x := sc.d, sc.d.entriesAt(off)
	e := x.next()
	if e == nil {
		return fmt.Errorf("the debug information ends at %#x", off)
	}
	ranges, err := x.ranges(e)
	if err != nil || len(ranges) == 0 {
		return fmt.Errorf("the debug information does not tell where the function at %#x is", off)
	}
	start, _ := entryPC(e, ranges[0][0])
	if start == 0 {
		start = ranges[0][0]
	}
	if sc.atEntry = sc.at.low == start; sc.atEntry {
		sc.at.inPrologue = true // nothing but what is certain there
	} else {
		sc.place(img, e, start, ranges)
	}
	sc.at.address = d.address(sc.u)
	sc.at.numbers = d.numbers(sc.u)
	d.typeMu.Lock()
	defer d.typeMu.Unlock()
	sc.types = &typeReader{d: d, cache: d.types, lang: sc.u.lang}
	if sc.block(x, e, 0); sc.types.err != nil {
		return sc.types.err
	}
	return x.err
}

// place finds out what holds at an instruction behind the first one of the function e, which begins at start.
func (sc *scope) place(img *image, e *dwarf.Entry, start uint64, ranges [][2]uint64) {
	d := sc.d
	made, known := uint64(0), false
	for _, rg := range ranges {
		if rg[0] <= start && start < rg[1] {
			made, known = d.behindPrologue(sc.u, start, rg[1])
			sc.at.inPrologue = !known || sc.at.low >= start && sc.at.low < made
		}
	}
	sc.file, sc.line, _ = lineAt(d, sc.u, sc.at.low)
	row, then := img.row(sc.at.low), (*unwindRow)(nil)
	if known {
		then = img.row(made)
	}
	origins := d.origins(e)
	convention, _ := attr(origins, dwarf.AttrCalling).(int64)
	sc.at.caller = newCallerPlace(start, convention, row)
	sc.at.isSettled = row != nil && then != nil && row.cfa.Rule == frame.RuleCFA && then.cfa.Rule == frame.RuleCFA && row.cfa.Reg == then.cfa.Reg && row.cfa.Offset == then.cfa.Offset
	if sc.at.caller != nil {
		sc.at.caller.reenters = sync.OnceValue(func() bool { return d.entersItself(img, e.Offset, start) })
	}
	base, _ := attr(origins, dwarf.AttrFrameBase).([]byte)
	sc.at.frame = frameAt(base, row, sc.at.isSettled)
}

// block reads what e declares, which x has just read: a function, an inlined call or a block; and those around the instruction in it. It tells
// whether something of that was found to cover the instruction, other than e.
func (sc *scope) block(x *dies, e *dwarf.Entry, depth int) (covers bool) {
	if !e.Children {
		return false
	}
	for {
		c := x.next()
		if c == nil || c.Tag == 0 {
			return covers
		}
		switch c.Tag {
		case dwarf.TagFormalParameter:
			sc.param(c, depth)
		case dwarf.TagVariable:
			sc.local(c, depth)
		case dwarf.TagLexDwarfBlock, dwarf.TagInlinedSubroutine:
			if !(c.Tag == dwarf.TagInlinedSubroutine && sc.atEntry) && depth < mostNested && x.covers(c, sc.at.low) {
				covers = sc.inner(x, c, depth+1) || covers
				if sc.isDone || x.err != nil {
					return covers
				}
				continue // its children have been read
			}
		}
		x.skip(c)
	}
}

// mostNested bounds the depth of blocks.
const mostNested = 1 << 10

// inner is block for e in another block. Of a block without an address nothing is taken, unless something in it covers the instruction.
func (sc *scope) inner(x *dies, e *dwarf.Entry, depth int) (covers bool) {
	ranges, err := x.ranges(e)
	covers = err == nil && len(ranges) > 0
	if e.Tag == dwarf.TagInlinedSubroutine {
		sc.params, sc.locals = nil, nil
		sc.block(x, e, depth)
		sc.isDone = true
		return true
	}
	before := len(sc.locals)
	if covers = sc.block(x, e, depth) || covers; !covers {
		sc.locals = sc.locals[:before]
	}
	return covers
}

// param adds a parameter, or a result of Go's, which is a local variable if it has a name.
func (sc *scope) param(e *dwarf.Entry, depth int) {
	n := len(sc.params)
	if n == mostVariables {
		return
	}
	if isResult(sc.d.origins(e)) {
		sc.local(e, depth)
	} else if p, ok := sc.variable(e); ok && (n == 0 || !sc.isSplit(&sc.params[n-1], &p)) {
		sc.params = append(sc.params, p)
	}
}

// isResult tells of a parameter of Go's, by its entry and those that this refers to, that it is a result.
func isResult(origins []*dwarf.Entry) bool {
	result, _ := attr(origins, dwarf.AttrVarParam).(bool)
	return result
}

func (sc *scope) local(e *dwarf.Entry, depth int) {
	n := len(sc.locals)
	if n == mostVariables {
		return
	}
	p, ok := sc.variable(e)
	if !ok || n > 0 && sc.locals[n-1].depth == depth && sc.isSplit(&sc.locals[n-1].Param, &p) {
		return
	}
	if p.place.isKnown(p.typ) && e.Tag == dwarf.TagVariable && sc.isBefore(e, p.place) {
		p.place = place{isUnknown: true}
	}
	sc.locals = append(sc.locals, local{p, depth})
}

// isSplit tells of two variables, one behind the other in one block, that they are one: Go describes a variable that it has split twice.
func (sc *scope) isSplit(before, p *Param) bool { return sc.u.lang == langGo && before.Name == p.Name }

// variable reads what e declares. ok is false for what has no name, or is no variable of the program's.
func (sc *scope) variable(e *dwarf.Entry) (p Param, ok bool) {
	p, origins := sc.types.param(e)
	if declared, _ := attr(origins, dwarf.AttrDeclaration).(bool); declared || p.Name == "" || p.Name == "_" || strings.HasPrefix(p.Name, "~") { // Go's ~r0 is a result without a name
		return p, false
	}
	if artificial, _ := attr(origins, dwarf.AttrArtificial).(bool); artificial && e.Tag == dwarf.TagVariable {
		return p, false // such as __func__
	}
	l := sc.d.locate(sc.u, sc.at, e, p.typ)
	if p.place = l.place; l.knowledge != saidPlace {
		p.place = place{isUnknown: true}
	}
	return p, true
}

// isBefore tells of a local variable that has one place all the time that its declaration has not been executed yet, by the lines, or that they do not tell. One that
// is always at the same address is there from the beginning.
func (sc *scope) isBefore(e *dwarf.Entry, p place) bool {
	if _, whole := e.Val(dwarf.AttrLocation).([]byte); !whole || len(p.parts) == 1 && (p.parts[0].reg == staticPart || p.parts[0].reg == threadPart) {
		return false
	}
	file, line := sc.file, int64(0) // Go's are in the function's file
	for _, o := range sc.d.origins(e) {
		if n, ok := o.Val(dwarf.AttrDeclLine).(int64); ok && line == 0 {
			line = n
		}
		if n, ok := o.Val(dwarf.AttrDeclFile).(int64); ok {
			file = sc.fileOf(o.Offset, n)
			break
		}
	}
	return file == "" || sc.file == "" || line == 0 || file == sc.file && int(line) >= sc.line
}

// fileOf is number n of the files of the unit that has the entry at off, empty if it is unknown.
func (sc *scope) fileOf(off dwarf.Offset, n int64) string {
	i := sort.Search(len(sc.d.units), func(i int) bool { return sc.d.units[i].off > off }) - 1
	if i < 0 {
		return ""
	}
	u := sc.d.units[i]
	if k := sort.Search(len(sc.d.headers), func(k int) bool { return sc.d.headers[k].end > uint64(off) }); k == len(sc.d.headers) || sc.d.headers[k].first != u.off {
		return "" // it is in a part of a unit, which has files of its own
	}
	files, read := sc.files[u]
	if !read {
		if lr := sc.d.lineReader(u); sc.d.lineTable(u) != nil && lr != nil {
			files = lr.Files()
		}
		sc.files[u] = files
	}
	if n < 0 || n >= int64(len(files)) || files[n] == nil {
		return ""
	}
	return files[n].Name
}

// visible lists the locals, outer ones first, without those that inner ones hide. Where Go has moved a variable to the heap its name begins with &.
func (sc *scope) visible() (out []Param) {
	slices.SortStableFunc(sc.locals, func(a, b local) int { return a.depth - b.depth })
	last := map[string]int{}
	for i, l := range sc.locals {
		last[strings.TrimPrefix(l.Name, "&")] = i
	}
	for i, l := range sc.locals {
		if last[strings.TrimPrefix(l.Name, "&")] == i {
			out = append(out, l.Param)
		}
	}
	return out
}

// behindPrologue is where the code begins, by the line table, that a function's first statements have, behind what makes its frame. low is the
// function's first instruction, end where its code ends. ok is false if the line table does not tell.
func (d *dwarfData) behindPrologue(u *unit, low, end uint64) (v uint64, ok bool) {
	rows, _ := d.lines(u)
	for k := sort.Search(len(rows), func(k int) bool { return rows[k].addr >= low }); k < len(rows) && rows[k].addr < end; k++ {
		if row := rows[k]; row.addr > low && row.isStmt && row.file >= 0 {
			return row.addr, true
		}
	}
	return 0, false
}

// frameBase is where a function's frame is at one instruction: off behind what the register holds.
type frameBase struct {
	known bool
	isCFA bool   // what DW_OP_call_frame_cfa means
	reg   string // empty for the stack pointer
	off   int64
}

// frameAt is the place of a frame at an instruction: expr is the DWARF expression for it, row the unwinding rules there. An expression that names a
// register holds in the body, not where the frame is not made yet, or is given back: so it is believed only where the rules are settled, as they are behind the prologue.
func frameAt(expr []byte, row *unwindRow, isSettled bool) frameBase {
	if len(expr) != 1 || row == nil || row.cfa.Rule != frame.RuleCFA || row.cfa.Reg >= uint64(len(host.DwarfNames)) {
		return frameBase{}
	}
	switch reg := uint64(expr[0] - opReg0); expr[0] {
	case opCFA:
		b := baseOn(row.cfa.Reg, row.cfa.Offset)
		b.isCFA = true
		return b
	case opReg0 + host.DwarfFP:
		if isSettled && row.cfa.Reg == reg {
			return baseOn(reg, 0)
		}
	case opReg0 + host.DwarfSP:
		if isSettled && row.cfa.Reg == reg && row.cfa.Offset > entryStack { // else the frame may be made later than that
			return baseOn(reg, 0)
		}
	}
	return frameBase{}
}

func baseOn(reg uint64, off int64) frameBase {
	b := frameBase{known: true, off: off}
	if reg != host.DwarfSP {
		b.reg = host.DwarfNames[reg]
	}
	return b
}
