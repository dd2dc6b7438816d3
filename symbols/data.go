package symbols

import (
	"debug/elf"
	"slices"
	"sort"

	"github.com/gokprobe/gokprobe/arch"
)

// DataInText returns the name of the variable (STT_OBJECT) whose bytes contain a, if the
// variable lies in an executable segment and no function contains a.
func (t *Table) DataInText(a arch.Addr) (name string, ok bool) {
	m := t.module(a)
	if m == nil || m.img == nil {
		return "", false
	}
	v, syms := m.link(a), m.symbols()
	if e := syms.find(v); e != nil && v-e.value < e.size {
		return "", false
	}
	objects := syms.objectsInText()
	i := sort.Search(len(objects), func(i int) bool { return syms.entries[objects[i]].value > v }) - 1
	if i < 0 {
		return "", false
	}
	if e := &syms.entries[objects[i]]; v-e.value < e.size {
		return m.symbol(e).Name, true
	}
	return "", false
}

// objectsInText lists the variables in executable segments, by address.
func (s *symtab) objectsInText() []int32 {
	s.textOnce.Do(func() {
		for i := range s.entries {
			if e := &s.entries[i]; !e.isCode() && s.isInText(e.value) {
				s.textObjects = append(s.textObjects, int32(i))
			}
		}
		slices.SortFunc(s.textObjects, func(a, b int32) int {
			return int(int64(s.entries[a].value) - int64(s.entries[b].value))
		})
	})
	return s.textObjects
}

func (s *symtab) isInText(v uint64) bool {
	return slices.ContainsFunc(s.code, func(p elf.ProgHeader) bool { return v-p.Vaddr < p.Memsz })
}

// Sections returns where the sections of the given name lie, in all modules whose files
// have section headers and are mapped.
func (t *Table) Sections(name string) []arch.Range {
	var found []arch.Range
	for _, m := range t.Modules() {
		if m.img == nil {
			continue
		}
		if s := m.img.f.Section(name); s != nil && s.Addr != 0 && s.Size <= m.img.f.size {
			found = append(found, arch.Range{Start: m.addr(s.Addr), End: m.addr(s.Addr + s.Size)})
		}
	}
	return found
}
