package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trampoline"
)

// An example of an address where the kernel maps a file that may lie anywhere.
const (
	pieBase     = 0x55d3c1a25000
	libraryBase = 0x7f1234567000
)

// module is one file's code as it would be mapped.
type module struct {
	name    string
	bias    arch.Addr
	library bool
	mapped  arch.Range // all segments
	texts   []text     // the executable ones, by address
	funcs   []arch.Range
	table   *symbols.Table
}

type text struct {
	arch.Range
	code []byte
}

// load reads the functions that the file's symbols name, each once.
func load(path string) (*module, error) {
	m := &module{name: filepath.Base(path)}
	if err := m.readText(path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var err error
	if m.table, err = symbols.OpenFile(path); err != nil {
		return nil, err
	}
	for _, s := range m.table.Symbols("") {
		if !s.Func || m.code(arch.Range{Start: s.Addr + m.bias, End: s.Addr + m.bias + 1}) == nil {
			continue
		}
		r, known := m.table.Function(s.Addr)
		if !known {
			r = arch.Range{Start: s.Addr, End: s.Addr}
		}
		m.funcs = append(m.funcs, arch.Range{Start: r.Start + m.bias, End: r.End + m.bias})
	}
	slices.SortFunc(m.funcs, func(a, b arch.Range) int {
		if a.Start != b.Start {
			return int(int64(a.Start - b.Start))
		}
		return int(int64(b.End - a.End))
	})
	m.funcs = slices.CompactFunc(m.funcs, func(a, b arch.Range) bool { return a.Start == b.Start })
	return m, nil
}

// readText reads the executable segments.
func (m *module) readText(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if f.Type == elf.ET_DYN {
		m.bias = pieBase
		if m.library = isLibrary(f); m.library {
			m.bias = libraryBase
		}
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			start, end := arch.Addr(p.Vaddr)+m.bias, arch.Addr(p.Vaddr+p.Memsz)+m.bias
			if m.mapped.End == 0 {
				m.mapped.Start = start &^ (trampoline.PageSize - 1)
			}
			m.mapped.End = (end + trampoline.PageSize - 1) &^ (trampoline.PageSize - 1)
		}
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 {
			continue
		}
		t := text{Range: arch.Range{Start: arch.Addr(p.Vaddr) + m.bias, End: arch.Addr(p.Vaddr+p.Filesz) + m.bias}, code: make([]byte, p.Filesz)}
		if _, err := p.ReadAt(t.code, 0); err != nil {
			return err
		}
		m.texts = append(m.texts, t)
	}
	if m.texts == nil {
		return errors.New("no executable segment")
	}
	return nil
}

// isLibrary reports whether f has a library's name, though it may be run, too.
func isLibrary(f *elf.File) bool {
	names, err := f.DynString(elf.DT_SONAME)
	return err == nil && len(names) > 0
}

// code is the bytes from r.Start on, to r.End and as far behind it as a jump and an
// instruction reach. It is nil if r is no code.
func (m *module) code(r arch.Range) []byte {
	const tail = 32
	for _, t := range m.texts {
		if t.Contains(r.Start) && r.End <= t.End {
			return t.code[r.Start-t.Start : min(r.End+tail, t.End)-t.Start]
		}
	}
	return nil
}

// next is where the function or object behind end begins, if that is near.
func (m *module) next(end arch.Addr) arch.Addr {
	const far = 64
	n, _ := slices.BinarySearchFunc(m.funcs, end, func(r arch.Range, at arch.Addr) int { return int(int64(r.Start - at)) })
	limit := end + far
	if n < len(m.funcs) {
		limit = min(limit, m.funcs[n].Start)
	}
	for at := end; at < limit; at++ {
		if _, data := m.table.DataInText(at - m.bias); data {
			return at
		}
	}
	return limit
}
