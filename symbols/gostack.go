package symbols

import (
	"encoding/binary"
	"sort"

	"github.com/gokprobe/gokprobe/arch"
)

// stackTable is the part of Go's function table that tells how far the stack
// pointer is below the return address, at every instruction
// (src/runtime/symtab.go, pcvalue; src/runtime/runtime2.go, _func).
type stackTable struct {
	text  uint64 // runtime.text
	funcs []byte // pclntab from pclnOffset: the search table, then _func records
	n     int    // functions
	flags uint32 // offset of _func.flag
	pctab []byte
}

// stackTable returns img's table, nil if img is no Go program of Go 1.18 or
// later.
func (img *image) stackTable() *stackTable {
	img.stackOnce.Do(func() {
		_, data := img.pclntabOnce()
		if data != nil {
			img.stacks = newStackTable(data, img.goText())
		}
	})
	return img.stacks
}

func newStackTable(data []byte, text uint64) *stackTable {
	const headerSize = 72
	if len(data) < headerSize || !isPclntabHeader(data) || binary.LittleEndian.Uint32(data) == 0xfffffffa {
		return nil
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(data[8+8*i:]) }
	n, pctab, pcln := word(0), word(6), word(7)
	size := uint64(len(data))
	if pctab >= size || pcln >= size || n == 0 || n > (size-pcln)/8 {
		return nil
	}
	g := &stackTable{text: text, funcs: data[pcln:], n: int(n), pctab: data[pctab:], flags: 41}
	if binary.LittleEndian.Uint32(data) == 0xfffffff0 { // Go 1.18 and 1.19 have no startLine
		g.flags = 37
	}
	return g
}

// goFrame is the table's facts about one instruction.
type goFrame struct {
	delta    uint64 // bytes from the stack pointer to the return address
	isSaved  bool   // the frame holds the caller's frame pointer
	isTop    bool   // the outermost function of a stack (runtime.goexit, mstart)
	switches bool   // the function moves to another stack (runtime.mcall, morestack)
}

// GoFunction reports whether a lies in a function of Go's function table: it runs on a
// goroutine's stack, which Go moves when it has to grow.
func (t *Table) GoFunction(a arch.Addr) bool {
	m := t.module(a)
	return m != nil && m.hasGo(m.link(a))
}

// RustFunction reports whether debug information says that the function at a was written in Rust.
func (t *Table) RustFunction(a arch.Addr) bool {
	m := t.module(a)
	if m == nil || m.img == nil {
		return false
	}
	d, err := m.img.dwarfOf(t)
	if err != nil {
		return false
	}
	u, _, ok := d.subprogram(m.link(a))
	return ok && u.lang == langRust
}

// hasGo reports whether a Go function of m contains the link-time address v.
func (m *Module) hasGo(v uint64) bool {
	if m.img == nil {
		return false
	}
	g := m.img.stackTable()
	if g == nil {
		return false
	}
	_, ok := g.frame(v)
	return ok
}

// GoroutineEnd reports whether a goroutine that has stopped at a has ended: Goexit leaves it
// there, with its stack as it was (src/runtime/proc.go).
func (t *Table) GoroutineEnd(a arch.Addr) bool {
	loc, ok := t.Lookup(a)
	return ok && loc.Symbol.Linkage == "runtime.goexit1"
}

// frame returns the frame layout at link-time address v.
func (g *stackTable) frame(v uint64) (f goFrame, ok bool) {
	if v < g.text || v-g.text > 1<<32-1 {
		return f, false
	}
	off := uint32(v - g.text)
	entry := func(i int) uint32 { return binary.LittleEndian.Uint32(g.funcs[8*i:]) }
	if len(g.funcs) < 8*g.n+4 || off < entry(0) || off >= entry(g.n) {
		return f, false
	}
	i := sort.Search(g.n, func(i int) bool { return entry(i) > off }) - 1
	rec := binary.LittleEndian.Uint32(g.funcs[8*i+4:])
	const pcspAt, recordSize = 16, 44
	if uint64(rec)+recordSize > uint64(len(g.funcs)) {
		return f, false
	}
	pcsp := binary.LittleEndian.Uint32(g.funcs[rec+pcspAt:])
	if pcsp == 0 || uint64(pcsp) >= uint64(len(g.pctab)) {
		return f, false
	}
	d, ok := pcValue(g.pctab[pcsp:], entry(i), off)
	if !ok || d < 0 {
		return f, false
	}
	const topFrame, spWrite = 1, 2 // src/internal/abi/symtab.go, FuncFlag
	flag := g.funcs[rec+g.flags]
	// The compiler saves the frame pointer right below the return address in
	// every frame that is not empty.
	return goFrame{uint64(d), d >= 8, flag&topFrame != 0, flag&spWrite != 0}, true
}

// pcValue looks up a table of (value delta, pc delta) pairs, both varints, the
// first zigzag-encoded.
func pcValue(p []byte, pc, target uint32) (int32, bool) {
	c := pcCursor{p: p, value: -1, pc: uint64(pc), end: uint64(target) + 1, isFirst: true}
	for c.next() {
		if uint64(target) < c.pc {
			return c.value, true
		}
	}
	return 0, false
}
