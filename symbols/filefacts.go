package symbols

import (
	"debug/elf"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/targetfs"
)

// FileFacts are properties of an executable file, as its headers tell them.
type FileFacts struct {
	Go                  bool // linked by Go's linker
	PositionIndependent bool
	Static              bool // names no dynamic linker
	Symbols             bool // .symtab
	GoFunctions         bool // Go's function table, which names functions without .symtab
	DebugInfo           bool // DWARF of its own
}

// ExecutableFacts looks at the file that process pid executes. The error matches ErrNotELF if it is no x86-64 ELF file.
func ExecutableFacts(pid int) (FileFacts, error) {
	files := targetfs.Of(pid)
	defer func() { _ = files.Close() }()
	img, err := opened(files.Executable())
	if err != nil {
		return FileFacts{}, err
	}
	defer img.close()
	has := func(name string) bool { return img.f.Section(name) != nil }
	return FileFacts{
		Go:                  has(".gopclntab") || has(".go.buildinfo"),
		PositionIndependent: img.f.Type == elf.ET_DYN,
		Static:              img.segment(elf.PT_INTERP) == nil,
		Symbols:             has(".symtab"),
		GoFunctions:         has(".gopclntab"),
		DebugInfo:           has(".debug_info") || has(".zdebug_info"),
	}, nil
}

// opened makes an image of a file that has just been opened.
func opened(f *targetfs.File, err error) (*image, error) {
	if err != nil {
		return nil, err
	}
	img, err := openImage(f, "the file")
	if err != nil {
		_ = f.Close()
	}
	return img, err
}

// LinkAddress is the address for which the byte at offset of a file of process pid is linked, as that process names it.
func LinkAddress(pid int, path string, offset uint64) (uint64, error) {
	files := targetfs.Of(pid)
	defer func() { _ = files.Close() }()
	img, err := opened(files.Open(path))
	if err != nil {
		return 0, err
	}
	defer img.close()
	for _, p := range img.execSegments() {
		if p.Off <= offset && offset-p.Off < p.Filesz {
			return p.Vaddr + offset - p.Off, nil
		}
	}
	return 0, fmt.Errorf("offset %#x is no code", offset)
}

// FileMemory is the content of the file that OpenFile has opened, at its link-time addresses, as long as t is open. It can't be written.
func (t *Table) FileMemory() arch.Memory {
	for _, m := range t.snap.Load().modules {
		if m.img != nil {
			return fileMemory{m.img}
		}
	}
	return fileMemory{}
}

type fileMemory struct{ img *image }

// ReadMemory reads the file's bytes for link-time address at.
func (m fileMemory) ReadMemory(at arch.Addr, p []byte) error {
	if m.img != nil {
		if err := m.img.readInto(uint64(at), p); err == nil {
			return nil
		}
	}
	return &arch.FaultError{Addr: at}
}

// WriteMemory fails: files are only read.
func (m fileMemory) WriteMemory(at arch.Addr, _ []byte) error {
	return &arch.FaultError{Addr: at, Write: true}
}
