package hostile

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/trampoline"
)

// section is one of a file that is made here.
type section struct {
	name  string
	typ   elf.SectionType
	flags elf.SectionFlag
	data  []byte
	size  uint64 // of the data, if it is to be another
	link  uint32
}

// build makes an ELF file of a page of code, with the sections.
func build(sections ...section) []byte {
	const text, page = 0x401000, 4096
	b := make([]byte, 2*page)
	for i := page; i < 2*page; i++ {
		b[i] = 0x90
	}
	names := []byte{0}
	all := append([]section{{}, {name: ".text", typ: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, data: nil}}, sections...)
	all = append(all, section{name: ".shstrtab", typ: elf.SHT_STRTAB})
	var headers []byte
	for i, s := range all {
		h := make([]byte, 64)
		le.PutUint32(h, uint32(len(names)))
		if i == 0 {
			le.PutUint32(h, 0)
		}
		names = append(append(names, s.name...), 0)
		if s.name == ".shstrtab" {
			s.data = names
		}
		le.PutUint32(h[4:], uint32(s.typ))
		le.PutUint64(h[8:], uint64(s.flags))
		le.PutUint64(h[24:], uint64(len(b)))
		le.PutUint64(h[32:], max(s.size, uint64(len(s.data))))
		le.PutUint32(h[40:], s.link)
		if s.name == ".text" {
			le.PutUint64(h[16:], text)
			le.PutUint64(h[24:], page)
			le.PutUint64(h[32:], page)
		}
		b = append(b, s.data...)
		headers = append(headers, h...)
	}
	copy(b, elf.ELFMAG+"\x02\x01\x01")
	le.PutUint16(b[0x10:], uint16(elf.ET_EXEC))
	le.PutUint16(b[0x12:], uint16(elf.EM_X86_64))
	le.PutUint32(b[0x14:], 1)
	le.PutUint64(b[0x18:], text)
	le.PutUint64(b[0x20:], 64)
	le.PutUint64(b[0x28:], uint64(len(b)))
	for at, v := range map[int]uint16{0x34: 64, 0x36: 56, 0x38: 1, 0x3a: 64, 0x3c: uint16(len(all)), 0x3e: uint16(len(all) - 1)} {
		le.PutUint16(b[at:], v)
	}
	p := b[64:]
	le.PutUint32(p, uint32(elf.PT_LOAD))
	le.PutUint32(p[4:], uint32(elf.PF_R|elf.PF_X))
	for at, v := range map[int]uint64{8: page, 16: text, 24: text, 32: page, 40: page, 48: page} {
		le.PutUint64(p[at:], v)
	}
	return append(b, headers...)
}

// symbols is a symbol table with functions of the given sizes, and its names.
func symbolTable(sizes ...uint64) []section {
	tab, str := make([]byte, 24), []byte("\x00main\x00visible\x00f\x00")
	for i, size := range sizes {
		s := make([]byte, 24)
		le.PutUint32(s, []uint32{1, 6, 14}[min(i, 2)])
		s[4] = 0x12 // a global function
		le.PutUint16(s[6:], 1)
		le.PutUint64(s[8:], 0x401000+uint64(i%4096))
		le.PutUint64(s[16:], size)
		tab = append(tab, s...)
	}
	return []section{
		{name: ".symtab", typ: elf.SHT_SYMTAB, data: tab, link: 3},
		{name: ".strtab", typ: elf.SHT_STRTAB, data: str},
	}
}

// dbg is a section of debug information.
func dbg(name string, data []byte) section {
	return section{name: ".debug_" + name, typ: elf.SHT_PROGBITS, data: data}
}

// unit is a compilation unit of DWARF 4 with the given entries.
func unit(abbrev uint32, entries []byte) []byte {
	b := le.AppendUint32(nil, uint32(len(entries)+7))
	b = le.AppendUint16(b, 4)
	b = le.AppendUint32(b, abbrev)
	return append(append(b, 8), entries...)
}

// Abbreviations: code, tag, children, pairs of attribute and form.
func abbrev(code, tag, children byte, pairs ...byte) []byte {
	return append(append([]byte{code, tag, children}, pairs...), 0, 0)
}

const (
	tagUnit, tagStruct, tagSub, tagBlock, tagMember, tagParam, tagPointer                = 0x11, 0x13, 0x2e, 0x0b, 0x0d, 0x05, 0x0f
	atSibling, atName, atStmt, atLow, atHigh, atRanges, atType, atOff, atSize            = 0x01, 0x03, 0x10, 0x11, 0x12, 0x55, 0x49, 0x38, 0x0b
	formAddr, formData4, formData1, formString, formStrp, formRef4, formSec, formRefAddr = 0x01, 0x06, 0x0b, 0x08, 0x0e, 0x13, 0x17, 0x10
)

var (
	unitAbbrev = abbrev(1, tagUnit, 1, atLow, formAddr, atHigh, formData4, atStmt, formSec)
	unitEntry  = append(le.AppendUint32(binary.LittleEndian.AppendUint64([]byte{1}, 0x401000), 0x1000), 0, 0, 0, 0)
	subAbbrev  = abbrev(2, tagSub, 1, atLow, formAddr, atHigh, formData4)
	subEntry   = le.AppendUint32(le.AppendUint64([]byte{2}, 0x401000), 0x1000)
)

func repeat(b []byte, n int) []byte { return bytes.Repeat(b, n) }

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// withDebug is a file with two functions and the debug information.
func withDebug(sections ...section) []byte {
	return build(append(symbolTable(0x100, 0x100), sections...)...)
}

// bombs are files of which a small part stands for very much.
func bombs(t testing.TB) map[string][]byte {
	zeros := func(n int) []byte {
		var out bytes.Buffer
		w := zlib.NewWriter(&out)
		block := make([]byte, 1<<20)
		for range n >> 20 {
			if _, err := w.Write(block); err != nil {
				t.Fatal(err)
			}
		}
		must(t, w.Close())
		return out.Bytes()
	}
	packed := zeros(512 << 20)
	chdr := func(size uint64) []byte {
		b := make([]byte, 24)
		le.PutUint32(b, 1)
		le.PutUint64(b[8:], size)
		le.PutUint64(b[16:], 1)
		return b
	}
	names := join(unitAbbrev, abbrev(2, tagStruct, 1, atSize, formData1), abbrev(3, tagSub, 0, atName, formStrp), abbrev(4, tagSub, 1, atLow, formAddr, atHigh, formData4, atSibling, formRef4), []byte{0})
	many := make([]uint64, 60000)
	for i := range many {
		many[i] = 1 << 62
	}
	zdebug := append([]byte("ZLIB"), binary.BigEndian.AppendUint64(nil, 6<<30)...)
	wide := abbrev(2, tagStruct, 1)
	for range 100000 {
		wide = append(wide[:len(wide)-2], 0x3f, 0x19, 0, 0) // external, by a flag that takes no byte
	}
	line4 := func(files int) []byte {
		head := join([]byte{1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1}, []byte("d\x00\x00"), repeat([]byte("f\x00\x01\x00\x00"), files), []byte{0})
		body := append(le.AppendUint32(le.AppendUint16(nil, 4), uint32(len(head))), head...)
		return append(le.AppendUint32(nil, uint32(len(body))), body...)
	}
	rows := func(n int) []byte {
		head := []byte{1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 'f', 0, 0, 0, 0, 0}
		body := append(le.AppendUint32(le.AppendUint16(nil, 4), uint32(len(head))), head...)
		body = append(body, repeat([]byte{0x20}, n)...)
		return append(le.AppendUint32(nil, uint32(len(body))), body...)
	}
	types := abbrev(3, tagStruct, 1, atSize, formData1)
	member := abbrev(4, tagMember, 0, atType, formRefAddr, atOff, formData1)
	param := abbrev(5, tagParam, 0, atType, formRefAddr)
	nestedTypes := func(levels int, cyclic bool) []byte {
		info := join(unitEntry, subEntry)
		first := 11 + len(info) + 5 + 1
		info = append(info, 5)
		info = le.AppendUint32(info, uint32(first))
		info = append(info, 0)
		const level = 2 + 2*6 + 1
		for i := range levels {
			next := first + (i+1)*level
			if i == levels-1 {
				next = first + i*level
				if cyclic {
					next = first
				}
			}
			info = append(info, 3, 8)
			for range 2 {
				info = append(le.AppendUint32(append(info, 4), uint32(next)), 0)
			}
			info = append(info, 0)
		}
		return unit(0, append(info, 0))
	}
	pointers := func(n int) []byte {
		info := join(unitEntry, subEntry)
		first := 11 + len(info) + 5 + 1
		info = append(le.AppendUint32(append(info, 5), uint32(first)), 0)
		for i := range n {
			info = le.AppendUint32(append(info, 6), uint32(first+5*(i+1)))
		}
		return unit(0, append(info, 0))
	}
	remember := func() []byte { // a common entry, and one that saves many registers many times
		cie := []byte{0xff, 0xff, 0xff, 0xff, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0}
		var ops []byte
		for i := range uint64(16000) {
			ops = append(binary.AppendUvarint(append(ops, 5), 200+i), 1)
		}
		ops = append(ops, repeat([]byte{0x0a}, 500_000)...)
		fde := le.AppendUint64(le.AppendUint64(le.AppendUint32(nil, 0), 0x401000), 0x1000)
		fde = append(fde, ops...)
		out := append(le.AppendUint32(nil, uint32(len(cie))), cie...)
		return append(append(out, le.AppendUint32(nil, uint32(len(fde)))...), fde...)
	}
	gopcln := func(n uint64) []byte {
		b := make([]byte, 4096)
		le.PutUint32(b, 0xfffffff1)
		b[6], b[7] = 1, 8
		for i, v := range []uint64{n, n, 0, 512, 600, 700, 800, 900} {
			le.PutUint64(b[8+8*i:], v)
		}
		return b
	}
	return map[string][]byte{
		"compressed debug section":               withDebug(section{name: ".debug_info", typ: elf.SHT_PROGBITS, flags: elf.SHF_COMPRESSED, data: append(chdr(512<<20), packed...)}),
		"compressed section that claims":         withDebug(section{name: ".debug_info", typ: elf.SHT_PROGBITS, flags: elf.SHF_COMPRESSED, data: append(chdr(6<<30), packed...)}),
		"compressed symbol names":                build(symbolTable(1)[0], section{name: ".strtab", typ: elf.SHT_STRTAB, flags: elf.SHF_COMPRESSED, data: append(chdr(512<<20), packed...)}),
		"zdebug that claims":                     withDebug(section{name: ".zdebug_info", typ: elf.SHT_PROGBITS, data: append(zdebug, packed...)}),
		"huge functions":                         build(symbolTable(many...)...),
		"deeply nested entries":                  withDebug(dbg("abbrev", names), dbg("info", unit(0, join(unitEntry, repeat([]byte{2, 0}, 30<<20))))),
		"names in one another":                   withDebug(dbg("abbrev", names), dbg("info", unit(0, join(unitEntry, repeat([]byte{3, 0, 0, 0, 0}, 1<<20)))), dbg("str", append(repeat([]byte{'x'}, 200<<10), 0))),
		"a name of 64 MiB":                       withDebug(dbg("abbrev", names), dbg("info", unit(0, join(unitEntry, repeat([]byte{3, 0, 0, 0, 0}, 1<<16)))), dbg("str", append(repeat([]byte{'x'}, 64<<20), 0))),
		"siblings that lead back":                withDebug(dbg("abbrev", names), dbg("info", unit(0, join(unitEntry, repeat(join([]byte{4}, le.AppendUint32(le.AppendUint64(nil, 0x401000), 16), []byte{11, 0, 0, 0, 0}), 100))))),
		"many units":                             withDebug(dbg("abbrev", names), dbg("info", repeat(unit(0, []byte{0}), 4<<20))),
		"units with tables in one another":       withDebug(dbg("abbrev", repeat(abbrev(2, tagStruct, 1), 1<<18)), dbg("info", overlapping(1<<17))),
		"an abbreviation with 100000 attributes": withDebug(dbg("abbrev", join(unitAbbrev, wide, []byte{0})), dbg("info", unit(0, join(unitEntry, repeat([]byte{2}, 1<<20))))),
		"ranges in one another":                  withDebug(dbg("abbrev", join(unitAbbrev, abbrev(2, tagSub, 0, atRanges, formSec), []byte{0})), dbg("info", unit(0, join(unitEntry, repeat([]byte{2, 0, 0, 0, 0}, 1<<20)))), dbg("ranges", repeat([]byte{1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}, 1<<17))),
		"a line table with many files":           withDebug(dbg("abbrev", join(unitAbbrev, []byte{0})), dbg("info", unit(0, unitEntry)), dbg("line", line4(8<<20))),
		"units with one line table":              withDebug(dbg("abbrev", join(unitAbbrev, []byte{0})), dbg("info", repeat(unit(0, unitEntry), 1<<16)), dbg("line", line4(100000))),
		"a line table with many rows":            withDebug(dbg("abbrev", join(unitAbbrev, []byte{0})), dbg("info", unit(0, unitEntry)), dbg("line", rows(100<<20))),
		"types that double":                      withDebug(dbg("abbrev", join(unitAbbrev, subAbbrev, types, member, param, []byte{0})), dbg("info", nestedTypes(60, false))),
		"types that hold themselves":             withDebug(dbg("abbrev", join(unitAbbrev, subAbbrev, types, member, param, []byte{0})), dbg("info", nestedTypes(20, true))),
		"a million pointers":                     withDebug(dbg("abbrev", join(unitAbbrev, subAbbrev, param, abbrev(6, tagPointer, 0, atType, formRefAddr), []byte{0})), dbg("info", pointers(1<<20))),
		"states remembered without end":          withDebug(dbg("frame", remember())),
		"go functions without end":               build(section{name: ".gopclntab", typ: elf.SHT_PROGBITS, data: gopcln(1 << 31)}),
		"a mangled name that doubles":            build(mangled()...),
		"a journal of 1024 TiB":                  forged(),
		"minidebug of a huge dictionary":         build(section{name: ".gnu_debugdata", typ: elf.SHT_PROGBITS, data: dictionary(t)}),
	}
}

// overlapping are units whose tables of abbreviations begin one behind the other.
func overlapping(n int) (info []byte) {
	for i := range n {
		info = append(info, unit(uint32(5*i), []byte{0})...)
	}
	return info
}

// mangled is a symbol whose name means itself twice over, many times.
func mangled() []section {
	name := "_Z1fI1aE"
	name = "_Z1f" + "St4pairI" + "iiE"
	for i := range 30 {
		sub := "S" + strings.ToUpper(string("0123456789abcdefghijklmnopqrstuvwxyz"[i])) + "_"
		name += "St4pairI" + sub + sub + "E"
	}
	s := symbolTable(16)
	s[1].data = append([]byte{0}, name...)
	s[1].data = append(s[1].data, 0)
	return s
}

// forged is what looks like a killed tracer's region, with as many arenas as may be, each of which has a journal of a TiB.
func forged() []byte {
	b := journal()
	le.PutUint32(b[12:], trampoline.MaxArenas)
	for i := range trampoline.MaxArenas {
		a := b[4096+96*i:]
		copy(a[:96], b[4096:])
		const start, size = 8<<20 + 512<<10, 1 << 40
		for off, v := range map[int]uint64{8: start, 16: start + size, 24: start + size, 32: start + size + 4096, 64: size, 72: uint64(i % 2), 88: size} {
			le.PutUint64(a[off:], v)
		}
	}
	return b
}

// dictionary is an xz file whose header asks for a dictionary of 4 GiB.
func dictionary(t testing.TB) []byte {
	file := filepath.Join(t.TempDir(), "content")
	must(t, os.WriteFile(file, make([]byte, 100<<20), 0o600))
	out, err := exec.Command("xz", "-c", file).Output()
	must(t, err)
	out[12+4] = 40 // the size of the dictionary, in the first block's header
	return out
}

func TestBombsHarmNobody(t *testing.T) {
	dir := t.TempDir()
	child := start(t)
	for name, data := range bombs(t) {
		file := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		must(t, os.WriteFile(file, data, 0o600))
		c, err := child.read(file)
		if err != nil {
			t.Errorf("%s (%d KiB): %v", name, len(data)>>10, err)
			child = start(t)
			continue
		}
		t.Logf("%s (%d KiB): %v, %d MB: %s", name, len(data)>>10, c.time, c.memory/1_000_000, c.said)
		must(t, os.Remove(file))
	}
}

// Sections of sparse files take no room on disk, and all in memory.
func TestSparseFilesHarmNobody(t *testing.T) {
	dir := t.TempDir()
	child := start(t)
	for name, size := range map[string]uint64{".symtab": 1 << 32, ".debug_info": 1 << 36, ".gopclntab": 1 << 40, ".eh_frame": 1 << 34, ".gnu_debugdata": 1 << 33, ".debug_frame": 200 << 20, ".debug_line": 240 << 20, ".gnu.version": 1 << 50} {
		s := append(symbolTable(16, 16), section{name: name, typ: elf.SHT_PROGBITS, size: size})
		if name == ".symtab" {
			s[0].size = size
		}
		data := build(s...)
		file := filepath.Join(dir, "sparse")
		must(t, os.WriteFile(file, data, 0o600))
		if err := os.Truncate(file, int64(size)+int64(len(data))); err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		c, err := child.read(file)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			child = start(t)
			continue
		}
		t.Logf("%s: %v, %d MB: %s", name, c.time, c.memory/1_000_000, c.said)
	}
}
