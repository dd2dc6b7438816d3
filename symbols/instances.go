package symbols

import (
	"cmp"
	"context"
	"debug/dwarf"
	"slices"
)

// InlinedCall is where a call begins that the compiler has replaced by the function's body.
type InlinedCall struct {
	Location
	// Ambiguous calls have code of the body's first statement in several pieces, and the compiler does not say in which they begin: it may have made
	// several copies of the body, as where it unrolls a loop. So there may be more calls than the place is executed.
	Ambiguous bool
}

// InlinedCalls lists where the calls of a function begin that the compiler has replaced by the function's body (DWARF 5 §3.3.8.2: concrete
// inlined instances), sorted by address. spec names the function as for Resolve, with or without a module; functions of one name in several
// files are taken together. If modules are given, others are not searched. The list is empty if spec is anything else, such as a pattern, a
// line or an offset. isAll is false if it may lack some: see Inlined, also for what the first question costs. Calls of which no code is left
// are not listed.
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
	s := t.snap.Load()
	for _, q := range queries {
		if q.name == "" || q.offset != 0 || q.isEvery || isGlob(q.name) {
			continue
		}
		mods, err := s.modulesFor(q.module)
		if err != nil {
			continue
		}
		isAll = true
		for _, m := range mods {
			if len(in) > 0 && !slices.Contains(in, m) {
				continue
			}
			found, all := t.inlinedIn(m, q.name)
			calls, isAll = append(calls, found...), isAll && all
		}
		if len(calls) > 0 {
			slices.SortFunc(calls, func(a, b InlinedCall) int { return cmp.Compare(a.Addr, b.Addr) })
			return slices.CompactFunc(calls, func(a, b InlinedCall) bool { return a.Addr == b.Addr }), isAll
		}
	}
	return nil, isAll
}

// inlinedIn is InlinedCalls for one module.
func (t *Table) inlinedIn(m *Module, name string) (calls []InlinedCall, isAll bool) {
	if m.img == nil {
		return nil, true
	}
	d, err := m.img.dwarfOf(t)
	if err != nil {
		return nil, false
	}
	if !d.mentions(name) {
		return nil, true
	}
	d.readInlined()
	for _, origin := range d.inline.of(name) {
		for _, call := range d.inline.calls[origin] {
			if v, ambiguous := d.callEntry(origin, call); m.containsCode(m.addr(v)) {
				loc, _ := t.Lookup(m.addr(v))
				calls = append(calls, InlinedCall{loc, ambiguous})
			}
		}
	}
	return calls, d.inline.isAll
}

// callEntry is the link-time address at which an inlined call is entered, 0 where no code of it is left.
func (d *dwarfData) callEntry(origin, call dwarf.Offset) (v uint64, ambiguous bool) {
	r := d.entriesAt(call)
	e := r.next()
	if e == nil {
		return 0, false
	}
	ranges, err := r.ranges(e)
	ranges = slices.DeleteFunc(ranges, func(rg [2]uint64) bool { return rg[0] >= rg[1] })
	if err != nil || len(ranges) == 0 || ranges[0][0] == 0 {
		return 0, false
	}
	v, known := entryPC(e, ranges[0][0])
	if known {
		// Instructions of the caller may stand in front of the first one that the compiler counts among the body.
		_, fn, _ := d.subprogram(ranges[0][0])
		if _, around, ok := d.subprogram(v); ok && around == fn {
			return v, false
		}
	}
	if first := d.firstLine(origin, call, e, ranges); first.at != 0 {
		return first.at, first.pieces > 1
	}
	return ranges[0][0], len(ranges) > 1
}

// entryPC is what a compiler says of the address at which the code of e is entered.
func entryPC(e *dwarf.Entry, lowest uint64) (v uint64, known bool) {
	switch entry := e.Val(dwarf.AttrEntrypc).(type) {
	case uint64:
		return entry, true
	case int64: // DWARF 5 §2.18: from the lowest address, or from the first range
		if low, ok := e.Val(dwarf.AttrLowpc).(uint64); ok {
			lowest = low
		}
		return lowest + uint64(entry), true
	}
	return 0, false
}
