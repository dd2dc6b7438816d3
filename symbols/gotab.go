package symbols

import (
	"debug/elf"
	"debug/gosym"
	"encoding/binary"
	"strings"
)

// goTable is Go's function table (pclntab): names, bounds and lines that a
// stripped Go program still has.
type goTable struct {
	tab *gosym.Table
}

// golang returns img's Go function table, nil if img is no Go program.
func (img *image) golang() *goTable {
	img.goOnce.Do(func() { img.goTab = img.readGoTable() })
	return img.goTab
}

// isGo reports whether img was linked by the Go linker.
func (img *image) isGo() bool {
	for _, name := range []string{".go.buildinfo", ".gopclntab", ".note.go.buildid"} {
		if img.f.Section(name) != nil {
			return true
		}
	}
	return false
}

func (img *image) readGoTable() (g *goTable) {
	addr, data := img.pclntabOnce()
	if data == nil {
		return nil
	}
	// gosym panics on a damaged table.
	defer func() {
		if recover() != nil {
			g = nil
		}
	}()
	tab, err := gosym.NewTable(nil, gosym.NewLineTable(data, img.goText(addr)))
	if err != nil || len(tab.Funcs) == 0 {
		return nil
	}
	return &goTable{tab}
}

// pclntab finds the table: in a section of its own, or, where an external
// linker merged the section into .data.rel.ro, by its magic number.
func (img *image) pclntab() (addr uint64, data []byte) {
	for _, s := range img.f.Sections {
		if strings.HasSuffix(s.Name, ".gopclntab") {
			if d, err := s.Data(); err == nil {
				return s.Addr, d
			}
		}
	}
	s := img.f.Section(".data.rel.ro")
	if s == nil || !img.isGo() {
		return 0, nil
	}
	d := section(img.f, ".data.rel.ro")
	for off := 0; off+8 <= len(d); off += 8 {
		if isPclntabHeader(d[off:]) {
			return s.Addr + uint64(off), d[off:]
		}
	}
	return 0, nil
}

// pclntabOnce is pclntab, read once.
func (img *image) pclntabOnce() (addr uint64, data []byte) {
	img.pcOnce.Do(func() { img.pcAddr, img.pcData = img.pclntab() })
	return img.pcAddr, img.pcData
}

// isPclntabHeader checks magic (Go 1.16, 1.18, 1.20 and later), the two zero
// bytes, the instruction quantum and the pointer size of amd64
// (src/internal/abi/symtab.go, runtime.pcHeader).
func isPclntabHeader(b []byte) bool {
	switch binary.LittleEndian.Uint32(b) {
	case 0xfffffffa, 0xfffffff0, 0xfffffff1:
		return b[4] == 0 && b[5] == 0 && b[6] == 1 && b[7] == 8
	}
	return false
}

// goText is the link-time address of runtime.text, to which the table's
// entries are relative. It is not the start of .text where a C linker put its
// start-up code first, and the table's own copy of it is missing since Go 1.26
// and unrelocated in a PIE before, so it comes from runtime.moduledata.
func (img *image) goText(pclntab uint64) uint64 {
	start := uint64(0)
	if s := img.f.Section(".text"); s != nil {
		start = s.Addr
	}
	const textAt = 176 // offset of moduledata.text, Go 1.16 and later
	md := img.moduledata(pclntab)
	if md == 0 {
		return start
	}
	if v := img.relocated(md + textAt); img.isExec(v) {
		return v
	}
	return start
}

// moduledata finds runtime.firstmoduledata by its first word, the address of
// the pclntab; 0 if it is not found.
func (img *image) moduledata(pclntab uint64) uint64 {
	if s := img.f.Section(".go.module"); s != nil {
		return s.Addr
	}
	for _, name := range []string{".noptrdata", ".data", ".data.rel.ro"} {
		s := img.f.Section(name)
		if s == nil || s.Type == elf.SHT_NOBITS {
			continue
		}
		d := section(img.f, name)
		for off := 0; off+192 <= len(d); off += 8 {
			if binary.LittleEndian.Uint64(d[off:]) == pclntab {
				return s.Addr + uint64(off)
			}
		}
	}
	for at, target := range img.relative() {
		if target == pclntab && img.isExec(img.relocated(at+176)) {
			return at
		}
	}
	return 0
}

// relocated is the word at v as the dynamic linker would leave it for bias 0.
func (img *image) relocated(v uint64) uint64 {
	if w, ok := img.relative()[v]; ok {
		return w
	}
	b, err := img.readAt(v, 8)
	if err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// addGoTable adds the functions of Go's table.
func (img *image) addGoTable(s *symtab, _ *Table) {
	g := img.golang()
	if g == nil {
		return
	}
	b := uint8(len(s.blobs))
	str := []byte{0}
	for i := range g.tab.Funcs {
		f := &g.tab.Funcs[i]
		if f.Sym == nil || f.Name == "" {
			continue
		}
		s.entries = append(s.entries, entry{
			value: f.Entry, size: f.End - f.Entry, name: uint32(len(str)),
			blob: b, kind: kindFunc, bind: uint8(elf.STB_GLOBAL),
		})
		str = append(append(str, f.Name...), 0)
	}
	s.blobs = append(s.blobs, blob{SourcePclntab, str})
}
