package symbols

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// row is one row of a line table.
type row struct {
	addr uint64
	line int32
	file int32 // index in the unit's files, -1 for the end of a sequence
	stmt bool
}

// lines decodes u's line table on first use.
func (d *dwarfData) lines(u *unit) []row {
	u.lineOnce.Do(func() {
		lr := d.lineReader(u)
		if lr == nil {
			return
		}
		index := map[*dwarf.LineFile]int32{}
		var le dwarf.LineEntry
		for lr.Next(&le) == nil {
			r := row{addr: le.Address, line: int32(le.Line), file: -1, stmt: le.IsStmt}
			if !le.EndSequence && le.File != nil {
				n, ok := index[le.File]
				if !ok {
					n = int32(len(u.files))
					index[le.File] = n
					u.files = append(u.files, le.File.Name)
				}
				r.file = n
			}
			u.rows = append(u.rows, r)
		}
		sort.SliceStable(u.rows, func(i, j int) bool { return u.rows[i].addr < u.rows[j].addr })
	})
	return u.rows
}

// Line returns the source line of the instruction at a. ok is false if the
// module has no line table there; a stripped Go program answers from Go's own
// function table.
func (t *Table) Line(a arch.Addr) (file string, line int, ok bool) {
	m := t.module(a)
	if m == nil || m.img == nil {
		return "", 0, false
	}
	v := m.link(a)
	if d, err := m.img.dwarfOf(t); err == nil {
		if u := d.unitAt(v); u != nil {
			return lineAt(d, u, v)
		}
	}
	if g := m.img.golang(); g != nil {
		if file, line, fn := g.tab.PCToLine(v); fn != nil && line > 0 {
			return file, line, true
		}
	}
	return "", 0, false
}

func lineAt(d *dwarfData, u *unit, v uint64) (string, int, bool) {
	rows := d.lines(u)
	i := sort.Search(len(rows), func(i int) bool { return rows[i].addr > v }) - 1
	if i < 0 || rows[i].file < 0 || rows[i].line == 0 {
		return "", 0, false
	}
	return u.files[rows[i].file], int(rows[i].line), true
}

// resolveLine answers a file:line query: the first statement of the line in
// each function, and in each inlined copy, that has code for it.
func (t *Table) resolveLine(s *snapshot, q query) ([]Location, error) {
	mods, err := s.modulesFor(q.module)
	if err != nil {
		return nil, err
	}
	var out []Location
	var reasons []error
	near := map[int]bool{}
	known := false
	for _, m := range mods {
		if m.img == nil {
			continue
		}
		locs, hasFile, err := t.moduleLine(m, q, near)
		if err != nil {
			reasons = append(reasons, err)
		}
		known = known || hasFile
		out = append(out, locs...)
	}
	switch {
	case len(out) > 0:
		return dedupe(out), nil
	case known:
		return nil, fmt.Errorf("%w: %s:%d%s", ErrNoLine, q.file, q.line, nearLines(near))
	case len(reasons) == len(mods) || len(reasons) > 0 && reasonOfMain(mods, reasons):
		return nil, fmt.Errorf("%s:%d: %w", q.file, q.line, reasons[0])
	}
	return nil, fmt.Errorf("%w: no module was built from a file %s", ErrNoLine, q.file)
}

// reasonOfMain tells that the executable itself has no lines, so that this is
// the thing to say.
func reasonOfMain(mods []*Module, reasons []error) bool {
	return errors.Is(reasons[0], ErrNoLines) && mods[0].Kind == KindExecutable && strings.Contains(reasons[0].Error(), mods[0].Path)
}

func nearLines(near map[int]bool) string {
	var list []int
	for n := range near {
		list = append(list, n)
	}
	if len(list) == 0 {
		return ""
	}
	sort.Ints(list)
	parts := make([]string, len(list))
	for i, n := range list {
		parts[i] = fmt.Sprint(n)
	}
	return ", lines with code nearby: " + strings.Join(parts, ", ")
}

// moduleLine finds q's line in m. hasFile tells that m was built from such a
// file; near collects its lines close to the one asked for.
func (t *Table) moduleLine(m *Module, q query, near map[int]bool) (locs []Location, hasFile bool, err error) {
	d, err := m.img.dwarfOf(t)
	if err != nil {
		if g := m.img.golang(); g != nil {
			locs, hasFile = goLine(m, g, q)
			return locs, hasFile, nil
		}
		return nil, false, err
	}
	type block struct {
		fn     uint64
		inline dwarf.Offset
	}
	first := map[block]Location{}
	for _, u := range d.units {
		if !d.mayHold(u, q.file) {
			continue
		}
		for _, r := range d.lines(u) {
			if r.file < 0 || r.addr == 0 || !matchPath(u.files[r.file], q.file) {
				continue
			}
			hasFile = true
			if diff := int(r.line) - q.line; diff != 0 {
				if diff >= -3 && diff <= 3 && r.stmt && r.line > 0 {
					near[int(r.line)] = true
				}
				continue
			}
			a := m.addr(r.addr)
			if !r.stmt || !m.containsCode(a) {
				continue
			}
			fn, inline := d.block(r.addr)
			k := block{fn, inline}
			if old, dup := first[k]; dup && old.Addr <= a {
				continue
			}
			loc, _ := t.Lookup(a)
			loc.File, loc.Line = u.files[r.file], int(r.line)
			first[k] = loc
		}
	}
	for _, l := range first {
		locs = append(locs, l)
	}
	return locs, hasFile, nil
}

// mayHold reports whether u's line table may name the file. The table's header
// is enough to tell.
func (d *dwarfData) mayHold(u *unit, file string) bool {
	lr := d.lineReader(u)
	if lr == nil {
		return false
	}
	for _, f := range lr.Files() {
		if f != nil && matchPath(f.Name, file) {
			return true
		}
	}
	return false
}

// block identifies the function around v and the inlined call, if any, that v
// belongs to.
func (d *dwarfData) block(v uint64) (fn uint64, inline dwarf.Offset) {
	_, off, ok := d.subprogram(v)
	if !ok {
		return v, 0
	}
	return uint64(off), d.inlined(off, v)
}

// goLine answers from Go's function table.
func goLine(m *Module, g *goTable, q query) (locs []Location, hasFile bool) {
	for name := range g.tab.Files {
		if !matchPath(name, q.file) {
			continue
		}
		hasFile = true
		pc, fn, err := g.tab.LineToPC(name, q.line)
		if err != nil || fn == nil {
			continue
		}
		a := m.addr(pc)
		e := m.symbols().find(pc)
		if e == nil {
			continue
		}
		sym := m.named(e)
		locs = append(locs, Location{Symbol: sym, Addr: a, Offset: uint64(a - sym.Addr), File: name, Line: q.line})
	}
	return locs, hasFile
}

// matchPath reports whether want is path or its last components.
func matchPath(path, want string) bool {
	want = strings.TrimPrefix(want, "./")
	rest, ok := strings.CutSuffix(path, want)
	return ok && (rest == "" || strings.HasSuffix(rest, "/") || strings.HasPrefix(want, "/"))
}
