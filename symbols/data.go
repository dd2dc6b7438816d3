package symbols

import "github.com/gokprobe/gokprobe/arch"

// Variable returns the name of the variable (STT_OBJECT) whose bytes contain a.
func (t *Table) Variable(a arch.Addr) (name string, ok bool) {
	m := t.module(a)
	if m == nil || m.img == nil {
		return "", false
	}
	e := m.symbols().find(m.link(a))
	if e == nil || e.isCode() || m.link(a)-e.value >= e.size {
		return "", false
	}
	return m.symbol(e).Name, true
}

// Sections returns where the sections of the given name lie, in all modules whose files
// have section headers and are mapped.
func (t *Table) Sections(name string) []arch.Range {
	var found []arch.Range
	for _, m := range t.Modules() {
		if m.img == nil {
			continue
		}
		if s := m.img.f.Section(name); s != nil && s.Addr != 0 {
			found = append(found, arch.Range{Start: m.addr(s.Addr), End: m.addr(s.Addr + s.Size)})
		}
	}
	return found
}
