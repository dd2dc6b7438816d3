package symbols

import (
	"debug/dwarf"
	"strings"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
)

// Inlined counts the calls of the function that contains a which the compiler has replaced
// by the function's body: a probe at its entry does not see them. known is false if the
// debug information does not tell, or has more than a million entries, of which no more are read; then n is
// what was found. The first question about a function that was inlined anywhere costs that reading of its file,
// up to a second.
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
	return d.inline.calls[origin], d.inline.all
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
	d.readInlined()
	return d.inline.names[name]
}

// inlining is what debug information says of inlined functions; it is read once.
type inlining struct {
	once  sync.Once
	names map[string]bool // of functions that were inlined
	// calls counts the inlined calls by the entry that a function's copies refer to, but for those in copies of
	// the function itself, where GCC puts a part of a function that it has split.
	calls map[dwarf.Offset]int
	all   bool // nothing was left out
}

// readInlined reads what d says of them, once.
func (d *dwarfData) readInlined() {
	d.inline.once.Do(func() {
		d.inline.read(d.entriesAt(0))
		const cost = 64 // bytes, of one in a map
		size := uint64(len(d.inline.calls)+len(d.inline.names)) * cost
		for name := range d.inline.names {
			size += uint64(len(name))
		}
		if d.keep(size, "the inlined functions of the debug information") != nil {
			d.inline.names, d.inline.calls, d.inline.all = nil, nil, false
		}
	})
}

func (in *inlining) read(r *dies) {
	in.names, in.calls = map[string]bool{}, map[dwarf.Offset]int{}
	var within dwarf.Offset // what the function that is read is a copy of, if it is one
	for {
		e := r.next()
		if e == nil {
			in.all = r.err == nil
			return
		}
		origin, _ := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
		switch {
		case e.Tag == dwarf.TagSubprogram:
			within = origin
			if e.Val(dwarf.AttrInline) != nil {
				name, _ := e.Val(dwarf.AttrName).(string)
				in.names[name] = true
			}
		case e.Tag == dwarf.TagInlinedSubroutine && origin != 0 && origin != within:
			in.calls[origin]++
		}
	}
}
