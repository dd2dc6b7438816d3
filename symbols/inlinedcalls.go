package symbols

import (
	"cmp"
	"context"
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"
	"sort"
)

// InlinedCall is where a call begins that the compiler has replaced by the function's body.
type InlinedCall struct {
	Location
	// Ambiguous says that the debug information does not tell where the call begins, or that the compiler has made several copies of the body, as where
	// it unrolls a loop. So the place may be executed fewer times than there are calls.
	Ambiguous bool

	table *Table
	mod   *Module
	data  *dwarfData
	call  dwarf.Offset
	begin uint64 // link-time address
}

// InlinedCalls lists where the calls of a function begin that the compiler has replaced by the function's body (DWARF 5 §3.3.8.2: concrete
// inlined instances), sorted by address. spec names the function as for Resolve, with or without a module; functions of one name in several
// files are taken together. If modules are given, others are not searched. The list is empty if spec is anything else, such as a pattern, a
// line or an offset. isAll is false if it may lack some: see Inlined, also for what the first question costs; 20000 are listed at most. Calls of which no code is left
// are not listed.
//
// A place is executed once for each call, but for Ambiguous ones, and for bodies that begin with a loop: there it is once for each round.
//
// A call begins at DW_AT_entry_pc, which GCC gives. Without it, it begins at the first statement of the body that has code. (The lowest address
// may be of an instruction that the compiler has moved into the code before, such as out of a loop.)
//
// If ctx is done before the answer is known, the error is ctx.Err(), at once.
func (t *Table) InlinedCalls(ctx context.Context, spec string, in ...*Module) (calls []InlinedCall, isAll bool, err error) {
	type answer struct {
		calls []InlinedCall
		isAll bool
	}
	got := make(chan answer, 1)
	if err := t.Aside(ctx, func() {
		calls, isAll := t.inlinedCalls(spec, in)
		got <- answer{calls, isAll}
	}); err != nil {
		return nil, false, err
	}
	a := <-got
	return a.calls, a.isAll, nil
}

func (t *Table) inlinedCalls(spec string, in []*Module) (calls []InlinedCall, isAll bool) {
	queries, err := parseSpec(spec)
	if err != nil {
		return nil, true
	}
	isAll = true
	s := t.snap.Load()
	for _, q := range queries {
		if q.name == "" || q.offset != 0 || q.isEvery || isGlob(q.name) {
			continue
		}
		mods, err := s.modulesFor(q.module)
		if err != nil {
			continue
		}
		for _, m := range mods {
			if len(in) > 0 && !slices.Contains(in, m) {
				continue
			}
			found, all := t.inlinedIn(m, q.name)
			calls, isAll = append(calls, found...), isAll && all
		}
		if len(calls) > 0 {
			return unitedCalls(calls), isAll
		}
	}
	return nil, isAll
}

// unitedCalls sorts calls by their addresses. Of several at one address one is left, which is more than one call.
func unitedCalls(calls []InlinedCall) []InlinedCall {
	slices.SortStableFunc(calls, func(a, b InlinedCall) int { return cmp.Compare(a.Addr, b.Addr) })
	out := calls[:0]
	for _, c := range calls {
		if n := len(out); n > 0 && out[n-1].Addr == c.Addr {
			out[n-1].Ambiguous = true
		} else {
			out = append(out, c)
		}
	}
	return out
}

// inlinedIn is InlinedCalls for one module.
func (t *Table) inlinedIn(m *Module, name string) (calls []InlinedCall, isAll bool) {
	if m.img == nil {
		return nil, true
	}
	d, err := m.img.dwarfOf(t)
	if err != nil {
		return nil, errors.Is(err, ErrNoDebugInfo) // of which the caller knows, or has not asked
	}
	if !d.mentions(name) {
		return nil, true
	}
	d.readInlined()
	isAll = d.inline.isAll
	for _, origin := range d.inline.of(name) {
		in := newInlinedFunction(d, origin)
		for _, call := range d.inline.calls[origin] {
			if len(calls) == mostInlined {
				return calls, false
			}
			if v, ambiguous := in.entry(call); v != 0 && m.containsCode(m.addr(v)) {
				loc, _ := t.Lookup(m.addr(v))
				calls = append(calls, InlinedCall{loc, ambiguous, t, m, d, call, v})
			}
		}
	}
	return calls, isAll
}

// mostInlined bounds the calls that are listed of a name, as the places of a pattern are bounded.
const mostInlined = 20000

// Params lists the parameters of the function, with their places where the call begins, as far as debug information tells them: in a register, at
// a distance from the stack pointer, or the same at each hit. Other values are unknown, as most in the frame are: its own place is not looked for. The
// error is as for Table.Params.
func (c InlinedCall) Params() ([]Param, error) {
	d := c.data
	u, _, ok := d.subprogram(c.begin)
	if !ok {
		return nil, fmt.Errorf("%w: the debug information has no function at %#x", ErrNoParams, c.begin)
	}
	d.typeMu.Lock()
	defer d.typeMu.Unlock()
	rd := d.entriesAt(c.call)
	e := rd.next()
	if e == nil {
		return nil, fmt.Errorf("%w: the debug information ends at %#x: %w", ErrNoParams, c.call, rd.err)
	}
	at := callee{low: c.begin, isInside: true, isSettled: true, numbers: d.numbers(u)} // a place for the whole call holds there
	r := &typeReader{d: d, cache: d.types, lang: u.lang}
	var params []Param
	declared := map[string]dwarf.Offset{} // GCC lists them in another order at times
	rd.children(e, func(child *dwarf.Entry) {
		if child.Tag != dwarf.TagFormalParameter {
			return
		}
		p, origins := r.param(child)
		if isResult(origins) {
			return
		}
		p.table, p.mod, p.lang = c.table, c.mod, u.lang
		// Go describes a variable that it has split twice, one after the other.
		if n := len(params); n > 0 && u.lang == langGo && params[n-1].Name == p.Name {
			return
		}
		if l := d.locate(u, at, child, p.typ); l.knowledge == saidPlace {
			p.place = l.place
			p.settle(c.table, c.mod)
		} else {
			p.place.isUnknown = true
		}
		declared[p.Name], _ = child.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
		params = append(params, p)
	})
	if r.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoParams, r.err)
	}
	slices.SortStableFunc(params, func(a, b Param) int { return cmp.Compare(declared[a.Name], declared[b.Name]) })
	return params, nil
}

// inlinedFunction is a function whose inlined calls are asked for.
type inlinedFunction struct {
	d      *dwarfData
	origin dwarf.Offset
	file   string // of its declaration, empty if it is unknown
	line   int
	asked  int                  // questions for a line, each of which reads all of a function that calls it
	passed int                  // functions of units that were passed over
	copies map[dwarf.Offset]int // by the function around calls: how often a body is begun there, less how many calls of it there are
}

// mostAskedLines bounds inlinedFunction.asked: beyond, a call is said to begin at its lowest address, perhaps. mostPassed bounds passed: beyond, each body is
// said to have copies, perhaps.
const (
	mostAskedLines = 1 << 12
	mostPassed     = 1 << 26
)

func newInlinedFunction(d *dwarfData, origin dwarf.Offset) *inlinedFunction {
	in := &inlinedFunction{d: d, origin: origin, copies: map[dwarf.Offset]int{}}
	in.file, in.line = d.declared(origin)
	all := d.inline.calls[origin]
	for _, call := range all[:min(len(all), mostInlined)] {
		if u, fn, ok := in.around(call); ok {
			if _, met := in.copies[fn]; !met {
				in.copies[fn] = in.begun(u, fn)
			}
			in.copies[fn]--
		}
	}
	return in
}

// around is the function that a call was inlined into.
func (in *inlinedFunction) around(call dwarf.Offset) (u *unit, fn dwarf.Offset, ok bool) {
	ranges := in.ranges(call)
	if len(ranges) == 0 {
		return nil, 0, false
	}
	return in.d.subprogram(ranges[0][0])
}

// ranges are those of a call that are not empty. There are none where no code of it is left.
func (in *inlinedFunction) ranges(call dwarf.Offset) [][2]uint64 {
	r := in.d.entriesAt(call)
	e := r.next()
	if e == nil {
		return nil
	}
	ranges, err := r.ranges(e)
	if ranges = slices.DeleteFunc(ranges, func(rg [2]uint64) bool { return rg[0] >= rg[1] }); err != nil || len(ranges) == 0 || ranges[0][0] == 0 {
		return nil
	}
	return ranges
}

// begun counts the places in a function's code where, by GCC's line table, bodies begin: a row with the line of the declaration is followed by one with the
// first statement, at the same address. There is one for each copy.
func (in *inlinedFunction) begun(u *unit, fn dwarf.Offset) (n int) {
	if in.file == "" {
		return 0
	}
	if in.passed += len(u.funcs); in.passed > mostPassed {
		return mostInlined + 1
	}
	rows, files := in.d.lines(u)
	last := uint64(0)
	for _, f := range u.funcs {
		if f.off != fn { // else a part of the function
			continue
		}
		for k := sort.Search(len(rows), func(k int) bool { return rows[k].addr >= f.lo }); k+1 < len(rows) && rows[k].addr < f.hi; k++ {
			row, next := rows[k], rows[k+1]
			switch {
			case row.addr == last || next.addr != row.addr || !row.isStmt || !next.isStmt || row.file < 0 || next.file != row.file:
			case int(row.line) == in.line && int(next.line) >= in.line && files[row.file] == in.file:
				last = row.addr
				n++
			}
		}
	}
	if own, ok := in.d.abstract(fn); ok && own == in.origin && n > 0 {
		n-- // its own beginning
	}
	return n
}

// entry is the link-time address at which an inlined call is entered, 0 where no code of it is left.
func (in *inlinedFunction) entry(call dwarf.Offset) (v uint64, ambiguous bool) {
	e := in.d.entryAt(call)
	ranges := in.ranges(call)
	if e == nil || len(ranges) == 0 {
		return 0, false
	}
	u, fn, _ := in.d.subprogram(ranges[0][0])
	if v, known := entryPC(e, ranges[0][0]); known {
		// Instructions of the caller may stand in front of the first one that the compiler counts among the body.
		if _, around, ok := in.d.subprogram(v); ok && around == fn {
			return v, in.copies[fn] > 0
		}
	}
	if in.asked >= mostAskedLines || u == nil || in.file == "" {
		return ranges[0][0], true
	}
	first := in.d.firstLine(in.file, in.line, call, e, ranges)
	if in.asked += first.asked; first.at == 0 {
		return ranges[0][0], true
	}
	return first.at, first.pieces > 1 || first.isCut
}

// entryPC is what a compiler says of the address at which the code of e is entered.
func entryPC(e *dwarf.Entry, first uint64) (v uint64, known bool) {
	switch entry := e.Val(dwarf.AttrEntrypc).(type) {
	case uint64:
		return entry, true
	case int64: // DWARF 5 §2.18: from the lowest address, or from the first range
		if low, ok := e.Val(dwarf.AttrLowpc).(uint64); ok {
			first = low
		}
		return first + uint64(entry), true
	}
	return 0, false
}
