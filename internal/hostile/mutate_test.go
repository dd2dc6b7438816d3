package hostile

import (
	"bytes"
	"debug/elf"
	"math/rand/v2"
	"strings"
)

// field is a number in a file that says how much, how many, where or what.
type field struct {
	at    int
	bytes int
	big   bool
}

// fields finds the numbers of a seed's structure, by what they belong to. Every group is as likely to be changed.
func fields(data []byte) [][]field {
	if !bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
		return [][]field{words(data, 0, 64, 8), words(data, 4096, 192, 8), words(data, 512<<10, 640, 4), words(data, 512<<10, 640, 2)}
	}
	groups := [][]field{
		{{at: 0x18, bytes: 8}, {at: 0x20, bytes: 8}, {at: 0x28, bytes: 8}, {at: 0x36, bytes: 2}, {at: 0x38, bytes: 2}, {at: 0x3a, bytes: 2}, {at: 0x3c, bytes: 2}, {at: 0x3e, bytes: 2}},
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return groups
	}
	phoff := int(le.Uint64(data[0x20:]))
	var segments, sections []field
	for i := range f.Progs {
		at := phoff + 56*i
		segments = append(segments, field{at: at, bytes: 4}, field{at: at + 4, bytes: 4})
		segments = append(segments, words(data, at+8, 48, 8)...)
	}
	groups = append(groups, segments)
	shoff := int(le.Uint64(data[0x28:]))
	for i := range f.Sections {
		at := shoff + 64*i
		for _, o := range []int{0, 4, 40, 44} {
			sections = append(sections, field{at: at + o, bytes: 4})
		}
		for _, o := range []int{8, 16, 24, 32, 48, 56} {
			sections = append(sections, field{at: at + o, bytes: 8})
		}
	}
	if len(sections) > 0 {
		groups = append(groups, sections, sections)
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS && s.FileSize > 0 {
			groups = append(groups, inSection(data, s)...)
		}
	}
	return groups
}

// inSection are the numbers at the places where a section of that name has them.
func inSection(data []byte, s *elf.Section) (groups [][]field) {
	at, size := int(s.Offset), int(s.FileSize)
	add := func(f []field) {
		if len(f) > 0 {
			groups = append(groups, f)
		}
	}
	switch {
	case s.Flags&elf.SHF_COMPRESSED != 0:
		add(words(data, at, 24, 8))
	case strings.HasPrefix(s.Name, ".zdebug"):
		add([]field{{at: at + 4, bytes: 8, big: true}})
	case s.Type == elf.SHT_SYMTAB || s.Type == elf.SHT_DYNSYM:
		for o := 0; o+24 <= size; o += 24 {
			groups = append(groups, []field{{at: at + o, bytes: 4}, {at: at + o + 4, bytes: 1}, {at: at + o + 6, bytes: 2}, {at: at + o + 8, bytes: 8}, {at: at + o + 16, bytes: 8}})
			if len(groups) == 6 {
				break
			}
		}
	case s.Type == elf.SHT_NOTE || s.Name == ".gnu_debuglink":
		add(words(data, at, min(size, 32), 4))
	case s.Type == elf.SHT_DYNAMIC || s.Type == elf.SHT_RELA:
		add(words(data, at, size, 8))
	case s.Name == ".gopclntab":
		add(words(data, at+8, 64, 8))
		n := int(le.Uint64(data[at+8:]))
		if funcs := at + int(le.Uint64(data[at+8+7*8:])); funcs+8*n+4096 < at+size {
			add(words(data, funcs, 8*n, 4))
			add(words(data, funcs+8*n, 4096, 4))
		}
	case strings.HasPrefix(s.Name, ".debug_abbrev"):
		add(words(data, at, size, 1))
		add(words(data, at, size, 1))
	case strings.HasPrefix(s.Name, ".debug_"), s.Name == ".eh_frame", s.Name == ".eh_frame_hdr", s.Name == ".gnu_debugdata", s.Name == ".gnu.hash", s.Name == ".hash":
		add(words(data, at, min(size, 64), 4))
		add(words(data, at, min(size, 64), 1))
		add(words(data, at, size, 1))
	}
	return groups
}

// words are the numbers of so many bytes each in data[at:at+size].
func words(data []byte, at, size, each int) (out []field) {
	for o := at; o+each <= min(at+size, len(data)); o += each {
		out = append(out, field{at: o, bytes: each})
	}
	return out
}

// mutate changes a copy of data in one to eight places.
func mutate(r *rand.Rand, data []byte, groups [][]field) []byte {
	b := bytes.Clone(data)
	for range 1 + r.IntN(8) {
		switch r.IntN(12) {
		case 0: // noise
			for range 1 + r.IntN(64) {
				b[r.IntN(len(b))] = byte(r.Uint32())
			}
		case 1: // a stretch of one byte
			at := r.IntN(len(b))
			fill := []byte{0, 0xff, 1, 0x80, byte(r.Uint32())}[r.IntN(5)]
			for i := at; i < min(len(b), at+r.IntN(1<<(4+r.IntN(12)))); i++ {
				b[i] = fill
			}
		case 2: // a part of it somewhere else
			from, to, n := r.IntN(len(b)), r.IntN(len(b)), 1+r.IntN(4096)
			copy(b[to:], bytes.Clone(b[from:min(len(b), from+n)]))
		case 3:
			if r.IntN(8) == 0 {
				b = b[:max(4096, r.IntN(len(b)))]
			}
		default:
			g := groups[r.IntN(len(groups))]
			f := g[r.IntN(len(g))]
			if f.at+f.bytes <= len(b) {
				put(b, f, value(r, b, g, f))
			}
		}
	}
	return b
}

func get(b []byte, f field) (v uint64) {
	for i := range f.bytes {
		k := i
		if f.big {
			k = f.bytes - 1 - i
		}
		v |= uint64(b[f.at+k]) << (8 * i)
	}
	return v
}

func put(b []byte, f field, v uint64) {
	for i := range f.bytes {
		k := i
		if f.big {
			k = f.bytes - 1 - i
		}
		b[f.at+k] = byte(v >> (8 * i))
	}
}

// value is what a number may be changed to: limits, sizes, others of its kind, and what is near.
func value(r *rand.Rand, b []byte, g []field, f field) uint64 {
	old, size := get(b, f), uint64(len(b))
	switch r.IntN(9) {
	case 0:
		return []uint64{0, 1, 2, 0x7f, 0x80, 0xff, 0xfff1, 0xffff, 1 << 16, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<62 + 1, 1<<63 - 1, 1 << 63, 1<<64 - 1}[r.IntN(17)]
	case 1:
		return size - r.Uint64N(64)
	case 2:
		return size + r.Uint64N(64)
	case 3:
		if other := g[r.IntN(len(g))]; other.at+other.bytes <= len(b) {
			return get(b, other)
		}
		return old
	case 4:
		return old + r.Uint64N(17) - 8
	case 5:
		return old << r.IntN(40)
	case 6:
		return old * (1 << 20)
	case 7:
		return 1 << r.IntN(64)
	}
	return r.Uint64()
}
