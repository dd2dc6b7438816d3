package symbols

import (
	"bytes"
	"sort"
)

// goTable is Go's function table (pclntab): names, bounds and lines that a
// stripped Go program still has. It is read where it lies, in the form of Go 1.2, 1.16, 1.18 or 1.20 (src/cmd/link/internal/ld/pcln.go,
// src/runtime/symtab.go). A count in it is checked against the table's size before it is used.
type goTable struct {
	version int    // 2, 16, 18 or 20
	text    uint64 // runtime.text, to which entries of 1.18 and later are relative
	n       int    // functions
	field   int    // bytes of an entry or offset in the search table

	search []byte // n pairs of entry and offset in funcs, then the end
	funcs  []byte // what the offsets are relative to
	names  []byte // zero-terminated
	cus    []byte // indexes of files, for each compilation unit; from 1.16
	files  []byte // 1.16: zero-terminated names; 1.2: their count, then offsets in data
	pcs    []byte // tables of values by address
	data   []byte
}

var goVersions = map[uint32]int{0xfffffffb: 2, 0xfffffffa: 16, 0xfffffff0: 18, 0xfffffff1: 20}

// newGoTable checks the header of data, whose code is linked at text. It returns nil if data is no such table.
func newGoTable(data []byte, text uint64) *goTable {
	const words = 8 // behind magic number, quantum and sizes
	if len(data) < words+8*8 || data[4] != 0 || data[5] != 0 || data[6] != 1 || data[7] != 8 {
		return nil
	}
	t := &goTable{version: goVersions[le.Uint32(data)], text: text, data: data, field: 8, pcs: data, funcs: data, names: data}
	word := func(i int) uint64 { return le.Uint64(data[words+8*i:]) }
	ok := true
	part := func(off uint64) []byte {
		if off >= uint64(len(data)) {
			ok = false
			return nil
		}
		return data[off:]
	}
	first := 2 // the first of the offsets
	switch t.version {
	case 2:
		t.search = data[16:]
	case 18, 20:
		t.field, first = 4, 3
		fallthrough
	case 16:
		t.names, t.cus, t.files, t.pcs, t.funcs = part(word(first)), part(word(first+1)), part(word(first+2)), part(word(first+3)), part(word(first+4))
		t.search = t.funcs
	default:
		return nil
	}
	n := word(0)
	if !ok || n == 0 || n > uint64(len(t.search)/(2*t.field)) {
		return nil
	}
	size := (2*int(n) + 1) * t.field
	if size > len(t.search) {
		return nil
	}
	t.n = int(n)
	if t.version == 2 && !t.oldFiles(size) {
		return nil
	}
	t.search = t.search[:size]
	// Names end before the last zero, so that none is searched behind the table.
	t.names = t.names[:bytes.LastIndexByte(t.names, 0)+1]
	return t
}

// oldFiles finds the table of files of Go 1.2, behind the search table of so many bytes.
func (t *goTable) oldFiles(size int) bool {
	if size+4 > len(t.search) {
		return false
	}
	off := uint64(le.Uint32(t.search[size:]))
	if off+4 > uint64(len(t.data)) {
		return false
	}
	t.files = t.data[off:]
	n := uint64(le.Uint32(t.files))
	if n == 0 || n > uint64(len(t.files)/4) {
		return false
	}
	t.files = t.files[:4*n]
	return true
}

func (t *goTable) word(i int) uint64 {
	if t.field == 4 {
		return uint64(le.Uint32(t.search[4*i:]))
	}
	return le.Uint64(t.search[8*i:])
}

// entry is the address of function i; that of n is the end of the last.
func (t *goTable) entry(i int) uint64 {
	if t.version >= 18 {
		return t.text + t.word(2*i)
	}
	return t.word(2 * i)
}

// goFunc is one function.
type goFunc struct {
	t          *goTable
	entry, end uint64
	record     []byte // runtime._func behind its entry
}

const goRecordSize = 4 * 9 // up to cuOffset, behind the entry

// function is the i-th function; ok is false if the table is damaged there.
func (t *goTable) function(i int) (f goFunc, ok bool) {
	off := t.word(2*i + 1)
	at := off + uint64(t.field)
	if off >= uint64(len(t.funcs)) || at+goRecordSize > uint64(len(t.funcs)) {
		return f, false
	}
	f = goFunc{t, t.entry(i), t.entry(i + 1), t.funcs[at:]}
	return f, f.entry < f.end
}

// find is the function around pc.
func (t *goTable) find(pc uint64) (f goFunc, ok bool) {
	i := sort.Search(t.n+1, func(i int) bool { return t.entry(i) > pc }) - 1
	if i < 0 || i >= t.n {
		return f, false
	}
	if f, ok = t.function(i); !ok || pc < f.entry || pc >= f.end {
		return f, false
	}
	return f, true
}

// The fields of runtime._func, from nameOff on, in words of 4 bytes.
const goNameOff, goPcfile, goPcln, goCUOff = 0, 4, 5, 7

func (f goFunc) word(i int) uint32 { return le.Uint32(f.record[4*i:]) }

// nameOff is where the function's name begins in the table's names; ok is false if it has none.
func (f goFunc) nameOff() (off uint32, ok bool) {
	off = f.word(goNameOff)
	return off, uint64(off) < uint64(len(f.t.names)) && f.t.names[off] != 0
}

// line is the source line at pc, 0 if it is not known.
func (f goFunc) line(pc uint64) int {
	c := f.values(goPcln)
	for c.next() {
		if pc < c.pc {
			return int(c.value)
		}
	}
	return 0
}

// file is the name of the source file at pc, empty if it is not known.
func (f goFunc) file(pc uint64) string {
	c := f.values(goPcfile)
	for c.next() {
		if pc < c.pc {
			at, ok := f.fileAt(c.value)
			if !ok {
				return ""
			}
			return f.t.fileName(at)
		}
	}
	return ""
}

// fileAt is where the name of a file lies that has number i in f's compilation unit.
func (f goFunc) fileAt(i int32) (at uint32, ok bool) {
	t, k := f.t, uint64(i)
	switch {
	case i < 0:
		return 0, false
	case t.version == 2:
		if i == 0 || k >= uint64(len(t.files)/4) {
			return 0, false
		}
		return le.Uint32(t.files[4*k:]), true
	}
	k += uint64(f.word(goCUOff))
	if k >= uint64(len(t.cus)/4) {
		return 0, false
	}
	at = le.Uint32(t.cus[4*k:])
	return at, at != 1<<32-1
}

func (t *goTable) fileName(at uint32) string {
	from := t.files
	if t.version == 2 {
		from = t.data
	}
	if uint64(at) >= uint64(len(from)) {
		return ""
	}
	const longest = 4096 // PATH_MAX
	from = from[at:min(uint64(at)+longest, uint64(len(from)))]
	return string(from[:max(bytes.IndexByte(from, 0), 0)])
}

// pcToLine is the place in the source of the instruction at pc.
func (t *goTable) pcToLine(pc uint64) (file string, line int, ok bool) {
	f, ok := t.find(pc)
	if !ok {
		return "", 0, false
	}
	file, line = f.file(pc), f.line(pc)
	return file, line, line > 0
}

// values goes through one of f's tables.
func (f goFunc) values(field int) pcCursor {
	c := pcCursor{value: -1, pc: f.entry, end: f.end, isFirst: true}
	if off := uint64(f.word(field)); off > 0 && off < uint64(len(f.t.pcs)) {
		c.p = f.t.pcs[off:]
	}
	return c
}

// pcCursor reads a table of (value delta, pc delta) pairs, both varints, the first zigzag-encoded: value holds up to pc. It refuses a pair that does
// not go forward, or goes beyond end. So there are never more pairs than bytes of code.
type pcCursor struct {
	p       []byte
	value   int32
	pc, end uint64
	isFirst bool
}

func (c *pcCursor) next() bool {
	d, rest, ok := uvarint32(c.p)
	if !ok || d == 0 && !c.isFirst || c.pc >= c.end {
		return false
	}
	step, rest, ok := uvarint32(rest)
	if !ok || step == 0 {
		return false
	}
	c.p, c.isFirst = rest, false
	c.value += int32(d>>1) ^ -int32(d&1)
	c.pc += uint64(step)
	return true
}

// uvarint32 reads a varint of at most 32 bits.
func uvarint32(p []byte) (v uint32, rest []byte, ok bool) {
	for i, b := range p {
		if i == 5 {
			break
		}
		v |= uint32(b&0x7f) << (7 * i)
		if b < 0x80 {
			return v, p[i+1:], true
		}
	}
	return 0, nil, false
}

// mostGoSteps bounds how much of the tables one question goes through.
const mostGoSteps = 1 << 25

// lines calls found with the first address that has the given line, for each function that has one, and the file's name. want
// chooses files. known reports whether any function has code of a chosen file.
func (t *goTable) lines(line int, want func(file string) bool, found func(pc uint64, file string)) (known bool) {
	matched := map[uint32]bool{} // places of files' names
	matches := func(at uint32) bool {
		yes, seen := matched[at]
		if !seen {
			yes = want(t.fileName(at))
			matched[at] = yes
		}
		return yes
	}
	steps := 0
	for i := 0; i < t.n && steps < mostGoSteps; i++ {
		f, ok := t.function(i)
		if !ok {
			continue
		}
		lines := f.values(goPcln)
		files, from, hit := f.values(goPcfile), f.entry, false
		for more := lines.next(); files.next() && !hit; from = files.pc {
			steps++
			at, ok := f.fileAt(files.value)
			mine := ok && matches(at)
			known = known || mine
			for more && !hit {
				steps++
				begin := max(from, f.entry)
				if mine && int(lines.value) == line && begin < min(lines.pc, files.pc, f.end) {
					hit = true
					found(begin, t.fileName(at))
				}
				if lines.pc > files.pc {
					break
				}
				from = lines.pc
				more = lines.next()
			}
		}
	}
	return known
}
