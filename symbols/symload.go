package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"unicode"
)

// symbols reads the symbol tables of img on first use: .symtab and .dynsym; for
// a stripped file also its debug file, the compressed table of the mini debug
// information, or Go's function table, whichever is found first.
func (img *image) symbols(t *Table) *symtab {
	img.symOnce.Do(func() { img.syms = img.loadSymbols(t) })
	return img.syms
}

func (img *image) readSymbols(t *Table) *symtab {
	s := newSymtab()
	for _, p := range img.execSegments() {
		s.code = append(s.code, p.ProgHeader)
	}
	full := img.addSections(s, img.f, ".symtab", SourceSymtab)
	s.isOwn = !full && img.f.hasSymtab() // the key does not tell of the debug file
	if !img.addSections(s, img.f, ".dynsym", SourceDynsym) {
		img.addDynamicSegment(s)
	}
	if !full {
		full = img.addDebugFile(s, t)
	}
	if !full {
		full = img.addMiniDebug(s)
	}
	if !full {
		img.addGoTable(s, t)
	}
	return s
}

// addSections adds a symbol table of f by its section name.
func (img *image) addSections(s *symtab, f *object, name string, src Source) bool {
	sec := f.Section(name)
	if sec == nil || sec.Type == elf.SHT_NOBITS || int(sec.Link) >= len(f.Sections) {
		return false
	}
	question := f.kept.Open()
	defer question.Close()
	raw, err := f.content(sec, question)
	if err != nil {
		return false
	}
	entries := s.kept.Part("the symbols in " + name)
	if err := entries.Set(uint64(len(raw) / symSize * entryCost)); err != nil {
		_ = f.refuse(err)
		return false
	}
	str, err := f.content(f.Sections[sec.Link], s.kept)
	if err != nil {
		_ = entries.Set(0)
		return false
	}
	before := len(s.entries)
	var versions []byte
	if src == SourceDynsym {
		versions = f.section(".gnu.version", question)
	}
	s.addTable(src, raw, str, versions, img.codeFrom)
	return len(s.entries) > before
}

func (img *image) addDebugFile(s *symtab, t *Table) bool {
	f := img.debug(t)
	return f != nil && img.addSections(s, f, ".symtab", SourceDebugFile)
}

// dynamic reads the dynamic segment's tags from the file, or from memory.
func (img *image) dynamic() map[elf.DynTag]uint64 {
	dyn := img.segment(elf.PT_DYNAMIC)
	if dyn == nil || dyn.Filesz > 1<<16 {
		return nil
	}
	raw, err := img.readAt(dyn.Vaddr, dyn.Filesz, img.f.kept) // it is small
	if err != nil {
		return nil
	}
	tags := map[elf.DynTag]uint64{}
	for ; len(raw) >= 16; raw = raw[16:] {
		tag := elf.DynTag(binary.LittleEndian.Uint64(raw))
		if tag == elf.DT_NULL {
			break
		}
		if _, seen := tags[tag]; !seen {
			tags[tag] = binary.LittleEndian.Uint64(raw[8:])
		}
	}
	return tags
}

// soname is DT_SONAME, empty if there is none.
func (img *image) soname() string {
	img.sonameOnce.Do(func() {
		const longest = 255 // NAME_MAX: it is looked for as a file
		tags := img.dynamic()
		off, has := tags[elf.DT_SONAME]
		if size := tags[elf.DT_STRSZ]; has && off < size {
			b, err := img.readAt(img.unbiased(tags[elf.DT_STRTAB])+off, min(size-off, longest+1), img.f.kept)
			if end := bytes.IndexByte(b, 0); err == nil && end > 0 && bytes.IndexFunc(b[:end], unicode.IsControl) < 0 { // it is printed
				img.sonameRead = string(b[:end])
			}
		}
	})
	return img.sonameRead
}

// addDynamicSegment adds the dynamic symbols of a file without section headers.
func (img *image) addDynamicSegment(s *symtab) {
	tags := img.dynamic()
	if tags == nil {
		return
	}
	s.isOwn = true // what could not be read is not noted
	at := func(tag elf.DynTag) uint64 { return img.unbiased(tags[tag]) }
	question := img.f.kept.Open()
	defer question.Close()
	n, err := img.dynamicCount(at(elf.DT_GNU_HASH), at(elf.DT_HASH))
	if err != nil {
		return
	}
	raw, err := img.readAt(at(elf.DT_SYMTAB), n*symSize, question)
	if err != nil {
		return
	}
	entries := s.kept.Part("the dynamic symbols")
	if err := entries.Set(uint64(len(raw) / symSize * entryCost)); err != nil {
		_ = img.f.refuse(err)
		return
	}
	str, err := img.readAt(at(elf.DT_STRTAB), tags[elf.DT_STRSZ], s.kept)
	if err != nil {
		_ = entries.Set(0)
		return
	}
	var versions []byte
	if v := tags[elf.DT_VERSYM]; v != 0 {
		versions, _ = img.readAt(img.unbiased(v), n*2, question)
	}
	s.addTable(SourceDynsym, raw, str, versions, img.codeFrom)
}

func (img *image) lowest() uint64 {
	if p := img.segment(elf.PT_LOAD); p != nil {
		return p.Vaddr
	}
	return 0
}

// dynamicCount is the number of dynamic symbols, which only the hash tables
// tell: DT_HASH by its chain count, DT_GNU_HASH by the end of its last chain.
func (img *image) dynamicCount(gnu, sysv uint64) (uint64, error) {
	question := img.f.kept.Open()
	defer question.Close()
	if sysv != 0 {
		if b, err := img.readAt(sysv, 8, question); err == nil {
			return uint64(binary.LittleEndian.Uint32(b[4:])), nil
		}
	}
	head, err := img.readAt(gnu, 16, question)
	if err != nil {
		return 0, err
	}
	nbuckets := uint64(binary.LittleEndian.Uint32(head))
	first := uint64(binary.LittleEndian.Uint32(head[4:]))
	bloom := uint64(binary.LittleEndian.Uint32(head[8:]))
	buckets := gnu + 16 + bloom*8
	raw, err := img.readAt(buckets, nbuckets*4, question)
	if err != nil {
		return 0, err
	}
	last := uint64(0)
	for ; len(raw) >= 4; raw = raw[4:] {
		last = max(last, uint64(binary.LittleEndian.Uint32(raw)))
	}
	if last < first {
		return first, nil
	}
	for chain := buckets + nbuckets*4 + (last-first)*4; ; chain += 4 {
		b, err := img.readAt(chain, 4, question)
		if err != nil {
			return 0, fmt.Errorf("hash chain of %s: %w", img.path, err)
		}
		last++
		if b[0]&1 != 0 {
			return last, nil
		}
	}
}
