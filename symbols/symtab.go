package symbols

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gokprobe/gokprobe/internal/budget"
)

// entryKind is what a symbol stands for.
type entryKind uint8

const (
	kindObject entryKind = iota
	kindFunc
	kindIFunc
	kindLabel // STT_NOTYPE in code: hand-written assembly
)

// entry is one symbol, without its text: a large program has a million.
type entry struct {
	value, size uint64 // link-time address, bytes
	name        uint32 // offset in the blob's strings
	blob        uint8
	kind        entryKind
	bind        uint8 // elf.SymBind
	isExported  bool  // default visibility in the dynamic symbol table
	isOld       bool  // a version that new programs do not link with
}

func (e *entry) isCode() bool { return e.kind != kindObject }

const (
	symSize = 24 // sizeof(Elf64_Sym)
	// entryCost is what a symbol takes here, in bytes: the entry, and its places in indexes.
	entryCost = 64
)

// blob is one symbol table's strings.
type blob struct {
	source Source
	str    []byte
}

// symtab is all symbols of one file. It may be shared by images (symbolShelf), so it holds no file, and all of it is made of what was read when it was made.
type symtab struct {
	id      uint64 // no other has it
	blobs   []blob
	entries []entry
	kept    *budget.Account
	code    []elf.ProgHeader // executable segments
	isOwn   bool             // it needs more of its image

	sortOnce sync.Once
	byAddr   []int32  // code entries by address, one for each address
	reach    []uint64 // highest end among byAddr[:i+1], for nested symbols

	index   atomic.Pointer[nameIndex] // nil until IndexNames
	answers answers

	spellOnce sync.Once
	spelled   [spellings][]int32 // entries by what their names look like

	colonOnce sync.Once
	colons    bool // see hasColons

	indirectOnce sync.Once
	indirect     []indirect
	indirectAt   map[uint64]int32 // by address
	binds        atomic.Pointer[bindings]

	textOnce    sync.Once
	textObjects []int32 // variables in executable segments, by address
}

func newSymtab() *symtab { return &symtab{id: symtabs.Add(1), kept: budget.Process().Open()} }

var symtabs atomic.Uint64

// linkage is e's name as in the object file, without a version and with
// Go's escapes in import paths undone.
func (s *symtab) linkage(e *entry) string {
	str := s.blobs[e.blob].str[e.name:]
	if i := bytes.IndexByte(str, 0); i >= 0 {
		str = str[:i]
	}
	name := string(str)
	if i := strings.IndexByte(name, '@'); i > 0 {
		name = name[:i]
	}
	if strings.IndexByte(name, '%') >= 0 {
		name = unescapeGo(name)
	}
	return name
}

// rawName is e's name with everything that follows it in the table.
func (s *symtab) rawName(e *entry) []byte { return s.blobs[e.blob].str[e.name:] }

// isNamed reports whether e's name, without its version, is name.
func (s *symtab) isNamed(e *entry, name string) bool {
	str := s.rawName(e)
	if len(str) <= len(name) || string(str[:len(name)]) != name {
		return false
	}
	return str[len(name)] == 0 || str[len(name)] == '@'
}

// addTable appends the ELF symbols in raw. versions is .gnu.version or nil, code
// tells how many bytes of code lie from an address on.
func (s *symtab) addTable(src Source, raw, str, versions []byte, code func(uint64) uint64) {
	if len(str) == 0 || len(raw) < symSize {
		return
	}
	if str[len(str)-1] != 0 { // damaged: readers count on an end
		str = append(str[:len(str):len(str)], 0)
	}
	b := uint8(len(s.blobs))
	s.blobs = append(s.blobs, blob{src, str})
	if s.entries == nil {
		s.entries = make([]entry, 0, len(raw)/symSize)
	}
	text, most := 0, 4*len(str)+1<<24
	for i := 0; len(raw) >= symSize; i, raw = i+1, raw[symSize:] {
		e, ok := decodeSym(raw[:symSize], code)
		if !ok || uint64(e.name) >= uint64(len(str)) {
			continue
		}
		name := str[e.name:]
		name = name[:bytes.IndexByte(name, 0)]
		if text += len(name); text > most {
			return // names lie one in the other to be read again and again
		}
		e.blob = b
		e.isExported = e.isExported && src == SourceDynsym
		e.isOld = isOldVersion(versions, i) || hasOldName(name)
		s.entries = append(s.entries, e)
	}
}

// isOldVersion reports whether symbol i has a version that is not the default:
// the hidden bit of .gnu.version (Linux Standard Base §10.7.2).
func isOldVersion(versions []byte, i int) bool {
	return 2*i+1 < len(versions) && versions[2*i+1]&0x80 != 0
}

// hasOldName reports the same of a name@version in .symtab; the default one has
// two signs.
func hasOldName(str []byte) bool {
	at := bytes.IndexByte(str[:min(len(str), 256)], '@')
	return at > 0 && at+1 < len(str) && str[at] == '@' && str[at+1] != '@'
}

// decodeSym reads one Elf64_Sym. ok is false if it defines no name.
func decodeSym(b []byte, code func(uint64) uint64) (e entry, ok bool) {
	e.name = binary.LittleEndian.Uint32(b)
	info, other := b[4], b[5]
	shndx := elf.SectionIndex(binary.LittleEndian.Uint16(b[6:]))
	e.value = binary.LittleEndian.Uint64(b[8:])
	e.size = binary.LittleEndian.Uint64(b[16:])
	room := code(e.value)
	if e.name == 0 || shndx == elf.SHN_UNDEF || shndx == elf.SHN_ABS && e.value == 0 {
		return e, false
	}
	e.bind = info >> 4
	vis := elf.SymVis(other & 3)
	e.isExported = elf.SymBind(e.bind) != elf.STB_LOCAL && (vis == elf.STV_DEFAULT || vis == elf.STV_PROTECTED)
	switch elf.SymType(info & 15) {
	case elf.STT_FUNC:
		e.kind = kindFunc
	case elf.STT_GNU_IFUNC:
		e.kind = kindIFunc
	case elf.STT_OBJECT, elf.STT_COMMON:
		e.kind = kindObject
	case elf.STT_NOTYPE:
		e.kind = kindObject
		if room > 0 {
			e.kind = kindLabel
		}
	default: // sections, files, thread-local data
		return e, false
	}
	if e.isCode() {
		e.size = min(e.size, max(room, pageSize), mostFunction)
	}
	return e, true
}

// mostFunction is the largest size, in bytes, that a function is believed to have; more is cut. The largest ones that programs
// generate have some MiB.
const mostFunction = 16 << 20

// sortByAddr builds the index that find uses.
func (s *symtab) sortByAddr() {
	type code struct {
		value uint64
		index int32
	}
	all := make([]code, 0, len(s.entries))
	for i := range s.entries {
		if s.entries[i].isCode() {
			all = append(all, code{s.entries[i].value, int32(i)})
		}
	}
	slices.SortFunc(all, func(a, b code) int {
		return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.index, b.index))
	})
	s.byAddr = make([]int32, 0, len(all))
	for i, c := range all {
		switch last := len(s.byAddr) - 1; {
		case i == 0 || c.value != all[i-1].value:
			s.byAddr = append(s.byAddr, c.index)
		case s.isBetter(&s.entries[c.index], &s.entries[s.byAddr[last]]):
			s.byAddr[last] = c.index
		}
	}
	s.reach = make([]uint64, len(s.byAddr))
	top := uint64(0)
	for i, x := range s.byAddr {
		top = max(top, s.entries[x].value+s.entries[x].size)
		s.reach[i] = top
	}
}

// isBetter reports whether a is the name to show where a and b share an address:
// a sized function before a label, then the name with fewer leading underscores
// (malloc, not __libc_malloc), then global before weak before local.
func (s *symtab) isBetter(a, b *entry) bool {
	if x, y := a.kind == kindLabel, b.kind == kindLabel; x != y {
		return y
	}
	if x, y := a.size == 0, b.size == 0; x != y {
		return y
	}
	if x, y := a.bind == uint8(elf.STB_LOCAL), b.bind == uint8(elf.STB_LOCAL); x != y {
		return y
	}
	an, bn := s.linkage(a), s.linkage(b)
	if x, y := underscores(an), underscores(bn); x != y {
		return x < y
	}
	if a.bind != b.bind {
		return a.bind < b.bind
	}
	if len(an) != len(bn) {
		return len(an) < len(bn)
	}
	return an < bn
}

func underscores(s string) int { return len(s) - len(strings.TrimLeft(s, "_")) }

// find returns the entry that covers link-time address v: the innermost sized
// symbol around it, else an unsized one just before it.
func (s *symtab) find(v uint64) *entry {
	s.sortOnce.Do(s.sortByAddr)
	i := sort.Search(len(s.byAddr), func(i int) bool { return s.entries[s.byAddr[i]].value > v }) - 1
	if i < 0 {
		return nil
	}
	nearest := &s.entries[s.byAddr[i]]
	for j := i; j >= 0 && s.reach[j] > v; j-- {
		if e := &s.entries[s.byAddr[j]]; v-e.value < e.size {
			return e
		}
	}
	if nearest.size == 0 {
		return nearest
	}
	return nil
}
