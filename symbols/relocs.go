package symbols

import (
	"debug/elf"
	"encoding/binary"
	"sync"

	"github.com/gokprobe/gokprobe/internal/budget"
	"github.com/gokprobe/gokprobe/internal/host"
)

// relocTable is the part of a file's dynamic relocations that tells how
// indirect functions were bound (System V ABI, x86-64 supplement §4.4.1).
type relocTable struct {
	once  sync.Once
	binds *bindings

	relOnce  sync.Once
	relative map[uint64]uint64 // slot: addend

	wordsOnce sync.Once
	words     []textWord
}

// bindings are the words by which functions are bound. They never change.
type bindings struct {
	irelative map[uint64][]uint64 // resolver's address: slots
	byName    map[string][]uint64 // symbol name: slots
}

const (
	relaSize  = 24 // sizeof(Elf64_Rela)
	relocCost = 64 // bytes, of one in a map
)

// eachRela calls f for every dynamic relocation of img.
func (img *image) eachRela(f func(off uint64, typ uint32, sym uint32, addend uint64)) {
	question := img.f.kept.Open()
	defer question.Close()
	for _, raw := range img.relaTables(question) {
		for ; len(raw) >= relaSize; raw = raw[relaSize:] {
			info := binary.LittleEndian.Uint64(raw[8:])
			f(binary.LittleEndian.Uint64(raw), uint32(info), uint32(info>>32), binary.LittleEndian.Uint64(raw[16:]))
		}
	}
}

// relaTables are the raw relocation tables: by section, since a static program
// has no dynamic segment, else by the dynamic segment.
func (img *image) relaTables(acct *budget.Account) [][]byte {
	var out [][]byte
	for _, s := range img.f.Sections {
		if s.Type == elf.SHT_RELA && s.Flags&elf.SHF_ALLOC != 0 {
			if d, err := img.f.content(s, acct); err == nil {
				out = append(out, d)
			}
		}
	}
	if len(img.f.Sections) > 0 {
		return out
	}
	tags := img.dynamic()
	for _, t := range [][2]elf.DynTag{{elf.DT_RELA, elf.DT_RELASZ}, {elf.DT_JMPREL, elf.DT_PLTRELSZ}} {
		if d, err := img.readAt(img.unbiased(tags[t[0]]), tags[t[1]], acct); err == nil {
			out = append(out, d)
		}
	}
	return out
}

// bindings reads the relocations that bind functions, on first use. Images that share their symbols share these as well, if what was read is all there is
// in the file, which is still as it was.
func (img *image) bindings() *bindings {
	r := &img.relocs
	r.once.Do(func() {
		shared := img.shared.Load()
		if shared != nil {
			if r.binds = shared.binds.Load(); r.binds != nil {
				return
			}
		}
		var size uint64
		r.binds, size = img.readBindings()
		if shared == nil || img.f.refused.hasSome() || !img.f.file.Settled(coarsestTime) || shared.binds.Load() != nil {
			return
		}
		if part := shared.kept.Part("relocations of " + img.path); part.Set(size) == nil && !shared.binds.CompareAndSwap(nil, r.binds) {
			_ = part.Set(0) // another has stored its own
		}
	})
	return r.binds
}

// readBindings also tells how many bytes they take.
func (img *image) readBindings() (r *bindings, size uint64) {
	r = &bindings{map[uint64][]uint64{}, map[string][]uint64{}}
	question := img.f.kept.Open()
	defer question.Close()
	names := img.dynamicNames(question)
	fits := img.relocRoom(img.f.kept)
	room := func(name string) bool {
		size += relocCost + uint64(len(name))
		return fits(name)
	}
	img.eachRela(func(off uint64, typ uint32, sym uint32, addend uint64) {
		switch typ {
		case host.RelocIndirect:
			if room("") {
				r.irelative[addend] = append(r.irelative[addend], off)
			}
		case host.RelocSlot, host.RelocGlobal, host.RelocWord:
			if name := names(sym); name != "" && addend == 0 && room(name) {
				r.byName[name] = append(r.byName[name], off)
			}
		}
	})
	return r, size
}

// relocRoom returns a function that asks acct for one relocation after the other, each with its name.
func (img *image) relocRoom(acct *budget.Account) func(name string) bool {
	part, size, full := acct.Part("the relocations of "+img.path), uint64(0), false
	return func(name string) bool {
		size += relocCost + uint64(len(name))
		if full {
			return false
		}
		if err := part.Set(size); err != nil {
			full = true
			_ = img.f.refuse(err)
		}
		return !full
	}
}

// dynamicNames returns the names of dynamic symbols by index.
func (img *image) dynamicNames(acct *budget.Account) func(uint32) string {
	var raw, str []byte
	if s := img.f.Section(".dynsym"); s != nil && int(s.Link) < len(img.f.Sections) {
		raw, _ = img.f.content(s, acct)
		str, _ = img.f.content(img.f.Sections[s.Link], acct)
	}
	return func(i uint32) string {
		at := uint64(i) * 24
		if i == 0 || at+24 > uint64(len(raw)) {
			return ""
		}
		name := binary.LittleEndian.Uint32(raw[at:])
		if uint64(name) >= uint64(len(str)) {
			return ""
		}
		b := str[name:]
		for n, c := range b {
			if c == 0 {
				return string(b[:n])
			}
		}
		return ""
	}
}

// relative are the words that the dynamic linker sets to bias plus an addend.
func (img *image) relative() map[uint64]uint64 {
	r := &img.relocs
	r.relOnce.Do(func() {
		r.relative = map[uint64]uint64{}
		room := img.relocRoom(img.f.kept)
		img.eachRela(func(off uint64, typ uint32, _ uint32, addend uint64) {
			if typ == host.RelocRelative && room("") {
				r.relative[off] = addend
			}
		})
	})
	return r.relative
}

// unbiased is a dynamic segment's pointer as a link-time address. The dynamic
// linker makes some of them absolute in memory, so an image read from there
// may hold either.
func (img *image) unbiased(v uint64) uint64 {
	m, ok := img.f.r.(*memoryFile)
	if !ok {
		return v
	}
	if base := uint64(m.base) - img.lowest(); v >= base {
		v -= base
	}
	return v
}
