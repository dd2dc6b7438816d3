package symbols

import (
	"debug/dwarf"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// Variables is what the source names at one instruction.
type Variables struct {
	Params []Param // of the function, or of the one that is inlined there
	Locals []Param // those of blocks around the instruction, outer ones first; a name is that of the innermost one
}

// Variables lists the variables at the instruction at a, with their places just before it is executed, as debug information tells them: in registers,
// in the function's frame, at an address, constant. The function is the innermost one: of an inlined call, where a is in its body.
//
// A value is unknown where the compiler has left it nowhere at a, or tells its place in another way than these. So are, in code that was not
// optimized, local variables at and before the line of their declaration, which has not been executed, and all that is in the frame before the
// prologue has made that. Such code tells one place for the whole function; what the program has not stored there yet is no value of its.
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
	start := v
	if f, known := t.Function(a); known {
		start = m.link(f.Start)
	}
	sc := &scope{d: d, u: u, at: callee{low: v, isInside: true}, atEntry: v == start}
	if err := sc.read(m.img, off, start); err != nil {
		return Variables{}, fmt.Errorf("%w: %w", ErrNoParams, err)
	}
	out := Variables{Params: sc.params, Locals: withoutHidden(sc.locals)}
	for _, list := range [][]Param{out.Params, out.Locals} {
		for i := range list {
			p := &list[i]
			p.table, p.mod, p.lang = t, m, u.lang
			if parts := p.place.parts; len(parts) == 1 && parts[0].reg == staticPart {
				p.place.parts = []part{{size: 8, reg: constantPart, stack: int64(m.addr(uint64(parts[0].stack)))}}
			}
		}
	}
	if sc.atEntry {
		out.Params, err = t.Params(a)
	}
	return out, err
}

// scope is the search for what is named at an instruction.
type scope struct {
	d       *dwarfData
	u       *unit
	at      callee
	atEntry bool   // of the function that is not inlined
	file    string // of the instruction, and its line
	line    int

	params, locals []Param
	err            error
}

// read reads the function at off, whose code img has from start on.
func (sc *scope) read(img *image, off dwarf.Offset, start uint64) error {
	d := sc.d
	e := d.entryAt(off)
	if e == nil {
		return fmt.Errorf("the debug information ends at %#x", off)
	}
	made := d.behindPrologue(sc.u, start)
	sc.at.inPrologue = sc.at.low >= start && sc.at.low < made
	base, _ := attr(d.origins(e), dwarf.AttrFrameBase).([]byte)
	sc.at.frame = frameAt(base, img.row(sc.at.low), img.row(made))
	sc.file, sc.line = d.lineAt(sc.u, sc.at.low)
	if start, ok := sc.u.entry.Val(dwarf.AttrAddrBase).(int64); ok {
		sc.at.address = (&locationList{d: d, addr: start}).address
	}
	d.typeMu.Lock()
	defer d.typeMu.Unlock()
	sc.block(off, 0)
	return sc.err
}

// block reads what a function, an inlined call or a block declares, and those around the instruction in it.
func (sc *scope) block(off dwarf.Offset, depth int) {
	const deepest = 64
	x := sc.d.entriesAt(off)
	e := x.next()
	if e == nil || depth > deepest {
		return
	}
	if e.Tag == dwarf.TagInlinedSubroutine {
		sc.params, sc.locals = nil, nil
	}
	r := &typeReader{d: sc.d, cache: sc.d.types, lang: sc.u.lang}
	var inner dwarf.Offset
	x.children(e, func(c *dwarf.Entry) {
		switch c.Tag {
		case dwarf.TagFormalParameter:
			if result, _ := c.Val(dwarf.AttrVarParam).(bool); !result {
				sc.params = sc.add(r, sc.params, c)
			} else if name, _ := c.Val(dwarf.AttrName).(string); !strings.HasPrefix(name, "~") { // a result of Go's, which has a name
				sc.locals = sc.add(r, sc.locals, c)
			}
		case dwarf.TagVariable:
			sc.locals = sc.add(r, sc.locals, c)
		case dwarf.TagLexDwarfBlock, dwarf.TagInlinedSubroutine:
			if inner == 0 && !(c.Tag == dwarf.TagInlinedSubroutine && sc.atEntry) && x.holds(c, sc.at.low) {
				inner = c.Offset
			}
		}
	})
	if sc.err = r.err; sc.err == nil {
		sc.err = x.err
	}
	if inner != 0 && sc.err == nil {
		sc.block(inner, depth+1)
	}
}

// holds tells whether the code of e contains v.
func (x *dies) holds(e *dwarf.Entry, v uint64) bool {
	ranges, err := x.ranges(e)
	return err == nil && slices.ContainsFunc(ranges, func(rg [2]uint64) bool { return rg[0] <= v && v < rg[1] })
}

// add appends what e declares, which has to have a name.
func (sc *scope) add(r *typeReader, list []Param, e *dwarf.Entry) []Param {
	p, origins := r.param(e)
	if declared, _ := attr(origins, dwarf.AttrDeclaration).(bool); declared || p.Name == "" || p.Name == "_" {
		return list
	}
	if artificial, _ := attr(origins, dwarf.AttrArtificial).(bool); artificial && e.Tag == dwarf.TagVariable {
		return list // such as __func__
	}
	// Go describes a variable that it has split twice, one after the other.
	if n := len(list); n > 0 && sc.u.lang == langGo && list[n-1].Name == p.Name {
		return list
	}
	l := sc.d.locate(sc.u, sc.at, e, p.typ)
	if p.place = l.place; l.knowledge != saidPlace || e.Tag == dwarf.TagVariable && sc.isBefore(e, l.place) {
		p.place = place{isUnknown: true}
	}
	return append(list, p)
}

// isBefore tells of a local variable of code that was not optimized that its declaration has not been executed yet, by the lines. One that is
// always at the same address is there all the time.
func (sc *scope) isBefore(e *dwarf.Entry, p place) bool {
	if _, whole := e.Val(dwarf.AttrLocation).([]byte); !whole || len(p.parts) == 1 && p.parts[0].reg == staticPart {
		return false
	}
	file, line := sc.d.declared(e.Offset)
	if origins := sc.d.origins(e); attr(origins, dwarf.AttrDeclFile) == nil { // Go's are in the function's file
		n, _ := attr(origins, dwarf.AttrDeclLine).(int64)
		file, line = sc.file, int(n)
	}
	return file == "" || file == sc.file && line >= sc.line
}

// withoutHidden leaves the innermost of variables of one name.
func withoutHidden(list []Param) (out []Param) {
	for i, p := range list {
		if !slices.ContainsFunc(list[i+1:], func(q Param) bool { return q.Name == p.Name }) {
			out = append(out, p)
		}
	}
	return out
}

// behindPrologue is where the code begins, by the line table, that a function's first statements have, behind what makes its frame. low is the
// function's first instruction. It is low if the line table does not tell.
func (d *dwarfData) behindPrologue(u *unit, low uint64) uint64 {
	rows, _ := d.lines(u)
	for k := sort.Search(len(rows), func(k int) bool { return rows[k].addr >= low }); k < len(rows); k++ {
		switch row := rows[k]; {
		case row.file < 0:
			return low
		case row.addr > low && row.isStmt:
			return row.addr
		}
	}
	return low
}

// lineAt is the file and line of the instruction at v.
func (d *dwarfData) lineAt(u *unit, v uint64) (file string, line int) {
	rows, files := d.lines(u)
	k := sort.Search(len(rows), func(k int) bool { return rows[k].addr > v }) - 1
	for ; k >= 0 && !rows[k].isStmt && rows[k].file >= 0; k-- {
	}
	if k < 0 || rows[k].file < 0 {
		return "", 0
	}
	return files[rows[k].file], int(rows[k].line)
}

// frameBase is where a function's frame is at one instruction: off behind what the register holds.
type frameBase struct {
	known bool
	isCFA bool   // what DW_OP_call_frame_cfa means
	reg   string // empty for the stack pointer
	off   int64
}

// frameAt is the place of a frame at an instruction: expr is the DWARF expression for it, row the unwinding rules there, and made those where the
// frame has just been made. An expression that names a register holds in the body, not where the function has begun to give the frame back: by the
// rules that can be told.
func frameAt(expr []byte, row, made *unwindRow) frameBase {
	if len(expr) != 1 || row == nil || row.cfa.Rule != frame.RuleCFA || row.cfa.Reg >= uint64(len(host.DwarfNames)) {
		return frameBase{}
	}
	cfa := row.cfa
	switch expr[0] {
	case opCFA:
		b := baseOn(cfa.Reg, cfa.Offset)
		b.isCFA = true
		return b
	case opReg0 + host.DwarfSP, opReg0 + host.DwarfFP:
		reg := uint64(expr[0] - opReg0)
		if made != nil && cfa.Reg == made.cfa.Reg && cfa.Offset == made.cfa.Offset && cfa.Reg == reg {
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
