package symbols

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/budget"
)

// row is one row of a line table.
type row struct {
	addr   uint64
	line   int32
	file   int32 // index in the unit's files, -1 for the end of a sequence
	isStmt bool
}

// lineTable is the line table at one offset: units may share it.
type lineTable struct {
	headerOnce, rowsOnce sync.Once

	ok    bool     // the header was read
	names []string // of the header's files
	rows  []row    // by address
	files []string // to which rows refer
}

// lineTable is u's line table, nil if it has none.
func (d *dwarfData) lineTable(u *unit) *lineTable {
	off, ok := u.entry.Val(dwarf.AttrStmtList).(int64)
	if !ok {
		return nil
	}
	d.lineMu.Lock()
	t := d.lineTables[off]
	if t == nil {
		t = &lineTable{}
		if d.lineTables == nil {
			d.lineTables = map[int64]*lineTable{}
		}
		d.lineTables[off] = t
	}
	d.lineMu.Unlock()
	t.headerOnce.Do(func() {
		if !d.mayRead(uint64(off)) {
			return
		}
		if lr := d.lineReader(u); lr != nil {
			t.ok = true
			for _, f := range lr.Files() {
				if f != nil {
					t.names = append(t.names, f.Name)
				}
			}
		}
	})
	if !t.ok {
		return nil
	}
	return t
}

// mayRead reports whether the table at off may be read: its header is plausible, and it does not overlap another table.
func (d *dwarfData) mayRead(off uint64) bool {
	h, ok := d.lineHeader(off)
	if !ok {
		return false
	}
	d.lineMu.Lock()
	d.lineSeen += h.size
	ok = d.lineSeen <= uint64(len(d.lineSection))
	d.lineMu.Unlock()
	const nameCost = 64 // bytes
	return ok && d.keep(2*h.text+h.names*nameCost, "the names of source files") == nil
}

// lineReader reads u's line table, whose header was found plausible; nil if it is damaged.
func (d *dwarfData) lineReader(u *unit) (lr *dwarf.LineReader) {
	defer func() {
		if recover() != nil { // of debug/dwarf, on damaged input
			lr = nil
		}
	}()
	lr, err := d.data.LineReader(u.entry)
	if err != nil {
		return nil
	}
	return lr
}

// lines decodes u's line table on first use.
func (d *dwarfData) lines(u *unit) (rows []row, files []string) {
	t := d.lineTable(u)
	if t == nil {
		return nil, nil
	}
	t.rowsOnce.Do(func() {
		part := d.kept.Part("a line table")
		if err := d.readRows(u, t, part); err != nil { // half a table would tell wrong lines
			t.rows, t.files = nil, nil
			_ = d.refused.note(err)
		}
		t.rows = append(make([]row, 0, len(t.rows)), t.rows...)
		_ = part.Set(uint64(len(t.rows)) * rowSize)
	})
	return t.rows, t.files
}

const rowSize = 24 // bytes

// readRows decodes t, which is u's; part counts its rows.
func (d *dwarfData) readRows(u *unit, t *lineTable, part *budget.Part) (err error) {
	defer func() {
		if p := recover(); p != nil { // of debug/dwarf, on damaged input
			err = fmt.Errorf("a damaged line table: %v", p)
		}
	}()
	lr := d.lineReader(u)
	if lr == nil {
		return nil
	}
	index := map[*dwarf.LineFile]int32{}
	var le dwarf.LineEntry
	for lr.Next(&le) == nil {
		if n := len(t.rows); n == cap(t.rows) {
			more := max(n, 64)
			if err := part.Set(uint64(2*n+more) * rowSize); err != nil { // the old ones and the new
				return err
			}
			t.rows = append(make([]row, 0, n+more), t.rows...)
		}
		r := row{addr: le.Address, line: int32(le.Line), file: -1, isStmt: le.IsStmt}
		if !le.EndSequence && le.File != nil {
			n, ok := index[le.File]
			if !ok {
				n = int32(len(t.files))
				index[le.File] = n
				t.files = append(t.files, le.File.Name)
			}
			r.file = n
		}
		t.rows = append(t.rows, r)
	}
	sort.SliceStable(t.rows, func(i, j int) bool { return t.rows[i].addr < t.rows[j].addr })
	return nil
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
		if file, line, ok := g.pcToLine(v); ok {
			return file, line, true
		}
	}
	return "", 0, false
}

func lineAt(d *dwarfData, u *unit, v uint64) (string, int, bool) {
	rows, files := d.lines(u)
	i := sort.Search(len(rows), func(i int) bool { return rows[i].addr > v }) - 1
	if i < 0 || rows[i].file < 0 || rows[i].line == 0 {
		return "", 0, false
	}
	return files[rows[i].file], int(rows[i].line), true
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
	case len(reasons) == len(mods) || len(reasons) > 0 && isReasonOfMain(mods, reasons):
		return nil, fmt.Errorf("%s:%d: %w", q.file, q.line, reasons[0])
	}
	return nil, fmt.Errorf("%w: no module was built from a file %s", ErrNoLine, q.file)
}

// isReasonOfMain reports whether the first reason is that the executable itself has no lines.
// Then that is the error: users mean the executable more often than its libraries.
func isReasonOfMain(mods []*Module, reasons []error) bool {
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

// moduleLine finds q's line in m. hasFile reports whether m was built from such a
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
		rows, files := d.lines(u)
		for _, r := range rows {
			if r.file < 0 || r.addr == 0 || !matchesPath(files[r.file], q.file) {
				continue
			}
			hasFile = true
			if diff := int(r.line) - q.line; diff != 0 {
				if diff >= -3 && diff <= 3 && r.isStmt && r.line > 0 {
					near[int(r.line)] = true
				}
				continue
			}
			a := m.addr(r.addr)
			if !r.isStmt || !m.containsCode(a) {
				continue
			}
			fn, inline := d.block(r.addr)
			loc, _ := t.Lookup(a)
			if fn == r.addr && loc.Symbol.Name != "" { // a unit whose entries are missing: the symbol tells the function
				fn = m.link(loc.Symbol.Addr)
			}
			k := block{fn, inline}
			if old, dup := first[k]; dup && old.Addr <= a {
				continue
			}
			loc.File, loc.Line = files[r.file], int(r.line)
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
	t := d.lineTable(u)
	return t != nil && slices.ContainsFunc(t.names, func(name string) bool { return matchesPath(name, file) })
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
	hasFile = g.lines(q.line, func(file string) bool { return matchesPath(file, q.file) }, func(pc uint64, file string) {
		e := m.symbols().find(pc)
		if e == nil {
			return
		}
		sym := m.named(e)
		a := m.addr(pc)
		locs = append(locs, Location{Symbol: sym, Addr: a, Offset: uint64(a - sym.Addr), File: file, Line: q.line})
	})
	return locs, hasFile
}

// matchesPath reports whether want is path or its last components.
func matchesPath(path, want string) bool {
	want = strings.TrimPrefix(want, "./")
	rest, ok := strings.CutSuffix(path, want)
	return ok && (rest == "" || strings.HasSuffix(rest, "/") || strings.HasPrefix(want, "/"))
}
