package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/budget"
	"github.com/gokprobe/gokprobe/internal/targetfs"
)

// image is one ELF file, shared by all modules that map it. Its parts are read
// on first use, and never change after that.
type image struct {
	path    string // as the target sees it, for messages and debug files
	f       *object
	closer  io.Closer
	buildID string

	unopened error // why it is read from memory, where only names for other files are; nil if it is not

	isCommon bool // it stays when a Table is closed: all processes have it

	ready atomic.Bool // what Table.Ready reads was

	symOnce sync.Once
	syms    *symtab
	ofSyms  sharing
	shared  atomic.Pointer[symtab] // syms, once it was read, if others may have it too

	sonameOnce sync.Once
	readers    sync.Once // unwinders.go
	readersAt  []uint64
	hides      sync.Once
	hidesOne   bool
	sonameRead string

	debugOnce sync.Once
	debugFile *targetfs.File
	debugName string // as the target names it
	searched  []string
	debugRead sync.Once
	debugElf  *object

	pcOnce sync.Once
	pcAddr uint64
	pcData []byte

	moduleOnce sync.Once
	moduleAt   uint64 // see moduledata

	goOnce sync.Once
	goTab  *goTable

	stackOnce sync.Once
	stacks    *stackTable

	dwarfMu  sync.Mutex
	dwarf    atomic.Pointer[dwarfData]
	dwarfErr error
	sharing  sharing

	frames frameTable
	relocs relocTable
	locals threadLocals
}

// openImage reads the file f. as is its path in the target. The image closes f with itself.
func openImage(f *targetfs.File, as string) (*image, error) {
	img, err := newImage(f, uint64(f.Size), as)
	if err != nil {
		return nil, err
	}
	img.closer, img.f.file = f, f
	return img, nil
}

// newImage reads r, a file of so many bytes.
func newImage(r io.ReaderAt, size uint64, as string) (*image, error) {
	kept := budget.Process().Open()
	f, err := newObject(r, size, kept)
	if err != nil {
		kept.Close() // not when it is collected: the next file may be refused by then
		if errors.Is(err, budget.ErrOver) {
			return nil, fmt.Errorf("%s: %w", as, err)
		}
		return nil, fmt.Errorf("%w: %s: %w", ErrNotELF, as, err)
	}
	img := &image{path: as, f: f}
	img.buildID = img.readBuildID()
	return img, nil
}

// forget returns img's memory to the budget. Other goroutines may still be using img. Memory that these ask for afterwards is
// returned when img is garbage.
func (img *image) forget() {
	if img.isCommon {
		return // when it is garbage
	}
	img.f.kept.Close()
	img.ofSyms.end()
	img.sharing.end()
}

// close forgets img, and closes its files.
func (img *image) close() {
	if img.isCommon {
		return
	}
	img.forget()
	if img.closer != nil {
		img.closer.Close()
	}
	if img.debugFile != nil {
		_ = img.debugFile.Close()
	}
}

func (img *image) execSegments() []*elf.Prog {
	var out []*elf.Prog
	for _, p := range img.f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			out = append(out, p)
		}
	}
	return out
}

func (img *image) segment(t elf.ProgType) *elf.Prog {
	for _, p := range img.f.Progs {
		if p.Type == t {
			return p
		}
	}
	return nil
}

// isExec reports whether link-time address v lies in an executable segment.
func (img *image) isExec(v uint64) bool { return img.codeFrom(v) > 0 }

// codeFrom is how many bytes of code lie from link-time address v on, 0 if there is none.
func (img *image) codeFrom(v uint64) uint64 {
	for _, p := range img.f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && v-p.Vaddr < p.Memsz {
			return p.Memsz - (v - p.Vaddr)
		}
	}
	return 0
}

// readAt reads n bytes at link-time address v from the file's segments. It takes their memory from acct if they are many.
func (img *image) readAt(v, n uint64, acct *budget.Account) ([]byte, error) {
	seg := img.loaded(v, n)
	if seg == nil || n > img.f.size {
		return nil, img.errNoContent(v)
	}
	const small = 1 << 16
	if n > small {
		if err := acct.Take(n, "a table in "+img.path); err != nil {
			return nil, img.f.refuse(err)
		}
	}
	buf := make([]byte, n)
	return buf, img.readInto(v, buf)
}

// readInto fills p from link-time address v.
func (img *image) readInto(v uint64, p []byte) error {
	seg := img.loaded(v, uint64(len(p)))
	if seg == nil {
		return img.errNoContent(v)
	}
	_, err := seg.ReadAt(p, int64(v-seg.Vaddr))
	return err
}

func (img *image) errNoContent(v uint64) error {
	return fmt.Errorf("%s: no file content at %#x", img.path, v)
}

// loaded is the segment that holds n bytes at link-time address v, nil if none does.
func (img *image) loaded(v, n uint64) *elf.Prog {
	for _, p := range img.f.Progs {
		if p.Type == elf.PT_LOAD && v >= p.Vaddr && v-p.Vaddr < p.Filesz && n <= p.Filesz-(v-p.Vaddr) {
			return p
		}
	}
	return nil
}

// readBuildID finds the NT_GNU_BUILD_ID note (type 3, owner "GNU") in the note
// segments, which survive where sections do not.
func (img *image) readBuildID() string {
	const mostNotes = 16
	notes := 0
	for _, p := range img.f.Progs {
		if p.Type != elf.PT_NOTE || p.Filesz > 1<<16 || notes == mostNotes {
			continue
		}
		notes++
		data, err := io.ReadAll(p.Open())
		if err != nil {
			continue
		}
		if id := buildIDNote(data, noteAlign(p.Align)); id != "" {
			return id
		}
	}
	return ""
}

func buildIDNote(b []byte, align int) string {
	const ntGNUBuildID, longestBuildID = 3, 64
	for len(b) >= 12 {
		nameLen := int(binary.LittleEndian.Uint32(b))
		descLen := int(binary.LittleEndian.Uint32(b[4:]))
		kind := binary.LittleEndian.Uint32(b[8:])
		nameEnd := roundUp(12+nameLen, align)
		descEnd := nameEnd + descLen
		if nameLen < 0 || descLen < 0 || nameEnd < 12 || descEnd < nameEnd || descEnd > len(b) {
			return ""
		}
		if kind == ntGNUBuildID && descLen <= longestBuildID && bytes.Equal(b[12:12+nameLen], []byte("GNU\x00")) {
			return hex.EncodeToString(b[nameEnd:descEnd])
		}
		b = b[min(roundUp(descEnd, align), len(b)):]
	}
	return ""
}

// noteAlign is the alignment of a note segment: 4 or 8 (System V ABI, and the GNU tools).
func noteAlign(align uint64) int {
	if align == 8 {
		return 8
	}
	return 4
}

func roundUp[T int | int64](n, align T) T { return (n + align - 1) / align * align }

// memoryFile is an ELF image read back from where it is mapped: the vdso, or a
// file that is gone. Its section table is not mapped, so it is hidden.
type memoryFile struct {
	mem     arch.Memory
	base    arch.Addr
	isWhole bool // the mapping is the file (vdso): keep the section table
	progs   []elf.ProgHeader
}

const (
	shoffAt = 0x28 // Elf64_Ehdr.e_shoff
	shnumAt = 0x3c // Elf64_Ehdr.e_shnum, followed by e_shstrndx
)

func (m *memoryFile) ReadAt(p []byte, off int64) (int, error) {
	if err := m.mem.ReadMemory(m.address(off), p); err != nil {
		return 0, err
	}
	if !m.isWhole {
		clearAt(p, off, shoffAt, 8)
		clearAt(p, off, shnumAt, 4)
	}
	return len(p), nil
}

// address translates a file offset through the segments.
func (m *memoryFile) address(off int64) arch.Addr {
	for _, p := range m.progs {
		if p.Type == elf.PT_LOAD && uint64(off) >= p.Off && uint64(off) < p.Off+p.Filesz {
			return m.base + arch.Addr(p.Vaddr-m.progs[0].Vaddr+uint64(off)-p.Off)
		}
	}
	return m.base + arch.Addr(off)
}

// clearAt zeroes the part of file range [at, at+n) that p, read from off, holds.
func clearAt(p []byte, off, at, n int64) {
	for i := at; i < at+n; i++ {
		if i >= off && i < off+int64(len(p)) {
			p[i-off] = 0
		}
	}
}
