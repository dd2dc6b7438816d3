package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/gokprobe/gokprobe/internal/host"
)

// Sizes of an ELF file's tables, and what the counts may be. Real programs have some dozens of segments and sections.
const (
	ehdrSize, phdrSize, shdrSize = 64, 56, 64

	mostSegments  = 4096
	mostSections  = 1 << 15
	mostNameTable = 1 << 20 // bytes of all sections' names
	longestName   = 4096
)

// headers is a file some parts of which were read, checked and corrected before. These are read from memory. So debug/elf sees
// the checked bytes, even if the file changes meanwhile.
type headers struct {
	io.ReaderAt
	parts []headerPart
}

type headerPart struct {
	at   uint64
	data []byte
}

// ReadAt implements io.ReaderAt.
func (h *headers) ReadAt(p []byte, off int64) (int, error) {
	for _, x := range h.parts {
		if uint64(off) >= x.at && uint64(off)-x.at+uint64(len(p)) <= uint64(len(x.data)) {
			return copy(p, x.data[uint64(off)-x.at:]), nil
		}
	}
	return h.ReaderAt.ReadAt(p, off)
}

// Offsets in Elf64_Ehdr, Elf64_Phdr and Elf64_Shdr.
const (
	ehPhoff, ehShoff                             = 0x20, 0x28
	ehPhentsize, ehPhnum                         = 0x36, 0x38
	ehShentsize, ehShnum, ehShstrndx             = 0x3a, 0x3c, 0x3e
	phOff, phFilesz                              = 8, 32
	shName, shType, shFlags, shOff, shSize       = 0, 4, 8, 24, 32
	ehVersion, ehMachine, identClass, identOrder = 0x14, 0x12, 4, 5
)

var le = binary.LittleEndian

// checkHeaders reads the headers of o. Segments and sections that extend beyond the end of the file are cut or emptied. A section table that
// can't be right is left out, as if the file had been stripped of it.
func (o *object) checkHeaders() (*headers, error) {
	head := make([]byte, ehdrSize)
	if o.size < ehdrSize {
		return nil, errors.New("it is too short")
	}
	if _, err := o.r.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !bytes.HasPrefix(head, []byte(elf.ELFMAG)) {
		return nil, errors.New("it has no ELF header")
	}
	if class, machine := elf.Class(head[identClass]), elf.Machine(le.Uint16(head[ehMachine:])); class != elf.ELFCLASS64 ||
		elf.Data(head[identOrder]) != elf.ELFDATA2LSB || machine != host.Machine {
		return nil, fmt.Errorf("it is %v for %v", class, machine)
	}
	h := &headers{ReaderAt: o.r, parts: []headerPart{{0, head}}}
	if err := o.checkSegments(h, head); err != nil {
		return nil, err
	}
	if err := o.checkSections(h, head); err != nil {
		_ = o.refuse(err)
		h.parts = h.parts[:min(len(h.parts), 2)] // the header, the segments
		le.PutUint64(head[ehShoff:], 0)
		copy(head[ehShentsize:ehdrSize], make([]byte, 6))
	}
	return h, nil
}

// How many bytes debug/elf needs for a header, beside its name.
const (
	segmentCost = 160
	sectionCost = 320
)

// table reads n entries of a table at off. cost is how many bytes debug/elf needs for each entry.
func (o *object) table(off, n, size, cost uint64) ([]byte, error) {
	if off > o.size || n*size > o.size-off {
		return nil, errTruncated
	}
	if err := o.kept.Take(n*(size+cost), "the headers of a file"); err != nil {
		return nil, err
	}
	b := make([]byte, n*size)
	if _, err := o.r.ReadAt(b, int64(off)); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}

func (o *object) checkSegments(h *headers, head []byte) error {
	n := uint64(le.Uint16(head[ehPhnum:]))
	if n == 0 {
		h.parts = append(h.parts, headerPart{0, nil})
		return nil
	}
	off := le.Uint64(head[ehPhoff:])
	if n > mostSegments || le.Uint16(head[ehPhentsize:]) != phdrSize {
		return fmt.Errorf("program headers: %w", errTooMuch)
	}
	b, err := o.table(off, n, phdrSize, segmentCost)
	if err != nil {
		return fmt.Errorf("program headers: %w", err)
	}
	for p := b; len(p) > 0; p = p[phdrSize:] {
		o.cut(p[phOff:], p[phFilesz:])
	}
	h.parts = append(h.parts, headerPart{off, b})
	return nil
}

// cut shortens an extent so that it ends within the file.
func (o *object) cut(off, size []byte) (cut bool) {
	at, n := le.Uint64(off), le.Uint64(size)
	switch {
	case at > o.size:
		le.PutUint64(off, 0)
		le.PutUint64(size, 0)
		return true
	case n > o.size-at:
		le.PutUint64(size, o.size-at)
		return true
	}
	return false
}

func (o *object) checkSections(h *headers, head []byte) error {
	off, n := le.Uint64(head[ehShoff:]), uint64(le.Uint16(head[ehShnum:]))
	if off == 0 {
		return nil
	}
	names := uint64(le.Uint16(head[ehShstrndx:]))
	if n == 0 || n > mostSections || le.Uint16(head[ehShentsize:]) != shdrSize {
		return fmt.Errorf("section headers: %w", errTooMuch)
	}
	b, err := o.table(off, n, shdrSize, sectionCost)
	if err != nil {
		return fmt.Errorf("section headers: %w", err)
	}
	for s := b; len(s) > 0; s = s[shdrSize:] {
		empty := elf.SectionType(le.Uint32(s[shType:])) == elf.SHT_NOBITS
		packed := elf.SectionFlag(le.Uint64(s[shFlags:]))&elf.SHF_COMPRESSED != 0
		const chdrSize = 24
		if !empty && (o.cut(s[shOff:], s[shSize:]) || packed && le.Uint64(s[shSize:]) < chdrSize) || empty && packed {
			le.PutUint32(s[shType:], uint32(elf.SHT_NOBITS))
			le.PutUint64(s[shFlags:], le.Uint64(s[shFlags:])&^uint64(elf.SHF_COMPRESSED))
		}
		if empty { // where it would begin means nothing, and debug/elf looks at it
			le.PutUint64(s[shOff:], 0)
			le.PutUint64(s[shSize:], le.Uint64(s[shSize:])&(1<<62-1))
		}
	}
	h.parts = append(h.parts, headerPart{off, b})
	return o.checkNames(h, b, names)
}

// checkNames reads the table of the sections' names.
func (o *object) checkNames(h *headers, sections []byte, index uint64) error {
	if index == 0 {
		return nil
	}
	if index >= uint64(len(sections)/shdrSize) {
		return fmt.Errorf("section names: %w", errTruncated)
	}
	s := sections[index*shdrSize:]
	off, size := le.Uint64(s[shOff:]), le.Uint64(s[shSize:])
	packed := elf.SectionFlag(le.Uint64(s[shFlags:]))&elf.SHF_COMPRESSED != 0
	if packed || size > mostNameTable {
		return fmt.Errorf("section names: %w", errTooMuch)
	}
	b, err := o.table(off, size, 1, 0)
	if err != nil {
		return fmt.Errorf("section names: %w", err)
	}
	total := 0
	for ; len(sections) > 0; sections = sections[shdrSize:] {
		at := uint64(le.Uint32(sections[shName:]))
		if at >= size {
			le.PutUint32(sections[shName:], uint32(size-1))
			continue
		}
		n := bytes.IndexByte(b[at:min(at+longestName, size)], 0)
		if total += n; n < 0 || total > mostNameTable {
			return fmt.Errorf("section names: %w", errTooMuch)
		}
	}
	if err := o.kept.Take(uint64(total), "the names of a file's sections"); err != nil {
		return err
	}
	if size > 0 && b[size-1] != 0 {
		return fmt.Errorf("section names: %w", errTruncated)
	}
	h.parts = append(h.parts, headerPart{off, b})
	return nil
}
