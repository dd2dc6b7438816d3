package symbols

import (
	"fmt"
	"path"
	"sort"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
)

// Kind is the role of a module in the process.
type Kind string

// The kinds of modules.
const (
	KindExecutable  Kind = "executable"
	KindLibrary     Kind = "library"
	KindInterpreter Kind = "interpreter" // the dynamic linker, ld.so
	KindVDSO        Kind = "vdso"
	// KindCopy is a second mapping of parts of a file, as V8 makes of its
	// built-in functions. Addresses in it have names, names do not lead to it.
	KindCopy Kind = "copy"
)

// Module is one ELF file as it is mapped into the process. It does not change
// after it was made; a Refresh that finds it mapped elsewhere makes another.
type Module struct {
	Name    string // base name of Path
	Path    string // as the target sees it
	BuildID string // lower-case hexadecimal; empty if there is none
	// Bias plus a link-time address, as the file has it, is the address in the
	// process.
	Bias uint64
	Text []arch.Range // executable mappings, by address
	Kind Kind
	// Err says why the file could not be read. The module then has no symbols.
	Err error

	id      imageKey
	img     *image
	table   *Table
	aliases []string // other names of the executable, by which users know it
	names   sync.Map // *entry to Symbol
}

func newModule(id imageKey, img *image, t *Table) *Module {
	m := &Module{Name: path.Base(id.path), Path: id.path, Kind: KindLibrary, id: id, img: img, table: t}
	if img != nil {
		m.BuildID = img.buildID
	}
	return m
}

// Same reports whether m and o are the same file, mapped at the same place. They may come from
// different Tables, or from readings of the maps at different times.
func (m *Module) Same(o *Module) bool { return m.id == o.id && m.Bias == o.Bias }

// addr is the address in the process of link-time address v.
func (m *Module) addr(v uint64) arch.Addr { return arch.Addr(v + m.Bias) }

// link is the link-time address of a.
func (m *Module) link(a arch.Addr) uint64 { return uint64(a) - m.Bias }

// Refused lists why parts of m's files were not read: their sizes or counts are larger than in any real file, or exceed the memory budget. Files are
// read when a question needs them, so the list may grow.
func (m *Module) Refused() []error {
	if m.img == nil {
		return nil
	}
	refused := m.img.f.refused.all()
	if d := m.img.dwarf.Load(); d != nil {
		refused = append(refused, d.refused.all()...)
	}
	var out []error
	for _, err := range refused {
		out = append(out, fmt.Errorf("%s was not read whole: %w", m.Path, err))
	}
	return out
}

func (m *Module) containsCode(a arch.Addr) bool {
	for _, r := range m.Text {
		if r.Contains(a) {
			return true
		}
	}
	return false
}

// symbols returns the module's symbol table; an empty one if it has no file.
func (m *Module) symbols() *symtab {
	if m.img == nil {
		return &symtab{}
	}
	return m.img.symbols(m.table)
}

// symbol is entry e of m in public form.
func (m *Module) symbol(e *entry) Symbol {
	st := m.symbols()
	link := st.linkage(e)
	return Symbol{
		Name:    demangleShort(link),
		Linkage: link,
		Addr:    m.addr(e.value),
		Size:    e.size,
		Module:  m,
		Func:    e.isCode(),
		IFunc:   e.kind == kindIFunc,
		Source:  st.blobs[e.blob].source,
	}
}

func newSnapshot(mods []*Module) *snapshot {
	s := &snapshot{modules: mods}
	for _, m := range mods {
		if m.Kind != KindCopy {
			s.named = append(s.named, m)
		}
		for _, r := range m.Text {
			s.texts = append(s.texts, text{r, m})
		}
	}
	sort.Slice(s.texts, func(i, j int) bool { return s.texts[i].Start < s.texts[j].Start })
	return s
}

func (s *snapshot) module(a arch.Addr) *Module {
	i := sort.Search(len(s.texts), func(i int) bool { return s.texts[i].End > a })
	if i < len(s.texts) && s.texts[i].Contains(a) {
		return s.texts[i].module
	}
	return nil
}
