package symbols

import (
	"debug/dwarf"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// Inlined counts the calls of the function that contains a which the compiler has replaced
// by the function's body: a probe at its entry does not see them. known is false if the
// debug information does not tell. A function that was inlined anywhere costs a reading of
// its file's whole debug information, up to limit entries of it: then n is what was found,
// and known is false.
func (t *Table) Inlined(a arch.Addr, limit int) (n int, known bool) {
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
	return d.inlinedCopies(origin, limit)
}

// abstract is the entry that a function's copies, inlined ones among them, refer to. ok is
// false if there is none.
func (d *dwarfData) abstract(off dwarf.Offset) (origin dwarf.Offset, ok bool) {
	r := d.data.Reader()
	r.Seek(off)
	e, err := r.Next()
	if err != nil || e == nil {
		return 0, false
	}
	origin, ok = e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
	return origin, ok
}

// inlinedCopies counts the inlined calls that refer to origin, but for those in copies of the
// function itself, where GCC puts a part of a function that it has split.
func (d *dwarfData) inlinedCopies(origin dwarf.Offset, limit int) (n int, all bool) {
	r := d.data.Reader()
	itself := false
	for range limit {
		e, err := r.Next()
		if err != nil {
			return n, false
		}
		if e == nil {
			return n, true
		}
		off, ok := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
		switch {
		case e.Tag == dwarf.TagSubprogram:
			itself = ok && off == origin
		case e.Tag == dwarf.TagInlinedSubroutine && ok && off == origin && !itself:
			n++
		}
	}
	return n, false
}

// inlinedAway tells of a name without a symbol that it is a Go function of which every call
// was inlined. The first question reads the program's debug information: the compiler
// describes such a function where it was inlined.
func (m *Module) inlinedAway(t *Table, name string) bool {
	if m.img == nil || !m.img.isGo() || !strings.Contains(name, ".") {
		return false
	}
	d, err := m.img.dwarfOf(t)
	if err != nil {
		return false
	}
	d.inlineOnce.Do(d.readInline)
	return d.inline[name]
}

// readInline collects the names of functions that were inlined. A million entries of debug
// information are enough for the sake of a message.
func (d *dwarfData) readInline() {
	const most = 1 << 20
	d.inline = map[string]bool{}
	r := d.data.Reader()
	for range most {
		e, err := r.Next()
		if err != nil || e == nil {
			return
		}
		if e.Tag == dwarf.TagSubprogram && e.Val(dwarf.AttrInline) != nil {
			name, _ := e.Val(dwarf.AttrName).(string)
			d.inline[name] = true
		}
	}
}
