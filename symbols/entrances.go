package symbols

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"slices"
	"sort"

	"github.com/gokprobe/gokprobe/arch"
)

// Entrances lists the places in r, the bounds of a function, that are certainly code. These are the beginnings of functions and
// of entries of call-frame information, and the landing pads of exceptions. Labels without a type are left out: they may
// name data.
func (t *Table) Entrances(r arch.Range) []arch.Addr {
	m := t.module(r.Start)
	if m == nil || m.img == nil {
		return nil
	}
	var all []arch.Addr
	note := func(v uint64) {
		if a := m.addr(v); r.Contains(a) {
			all = append(all, a)
		}
	}
	st := m.symbols()
	st.sortOnce.Do(st.sortByAddr)
	from := sort.Search(len(st.byAddr), func(i int) bool { return st.entries[st.byAddr[i]].value >= m.link(r.Start) })
	for _, i := range st.byAddr[from:] {
		e := &st.entries[i]
		if e.value >= m.link(r.End) {
			break
		}
		if e.kind == kindFunc || e.kind == kindIFunc {
			note(e.value)
		}
	}
	for _, f := range m.img.framesIn(m.link(r.Start), m.link(r.End)) {
		note(f.start)
		for _, pad := range m.img.landingPads(f) {
			note(pad)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// framesIn lists the entries of the search table whose code lies in [from, to), or begins before it and may reach into it.
func (img *image) framesIn(from, to uint64) []frameIndex {
	t := &img.frames
	t.once.Do(func() { img.loadFrames(t) })
	i := max(0, sort.Search(len(t.index), func(i int) bool { return t.index[i].start > from })-1)
	k := i
	for k < len(t.index) && t.index[k].start < to {
		k++
	}
	return t.index[i:k]
}

// Pointers lists the addresses in r that tables in the data of its module hold. A table is a run of words that all lead into r, such
// as the labels of a computed goto. Relocations tell which words are addresses; in executables at fixed addresses, which
// have none, their values tell.
func (t *Table) Pointers(r arch.Range) []arch.Addr {
	m := t.module(r.Start)
	if m == nil || m.img == nil {
		return nil
	}
	var all []arch.Addr
	from, to := m.link(r.Start), m.link(r.End)
	words := m.img.textWords()
	for len(words) > 0 {
		n, inside := 0, true
		for n < len(words) && words[n].at == words[0].at+8*uint64(n) {
			inside = inside && words[n].to > from && words[n].to < to
			n++
		}
		for _, w := range words[:n] {
			if inside {
				all = append(all, m.addr(w.to))
			}
		}
		words = words[n:]
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// textWord is a word of data, at at, that holds the address of code; link-time addresses.
type textWord struct{ at, to uint64 }

// textWords lists them by address.
func (img *image) textWords() []textWord {
	r := &img.relocs
	r.wordsOnce.Do(func() {
		note := func(at, to uint64) {
			if img.isExec(to) {
				r.words = append(r.words, textWord{at, to})
			}
		}
		for at, to := range img.relative() {
			note(at, to)
		}
		const packed = elf.DynTag(36) // DT_RELR: the words are where they are, too
		if _, relr := img.dynamic()[packed]; relr || img.f.Type == elf.ET_EXEC {
			for _, p := range img.f.Progs {
				if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X == 0 {
					eachWord(p, note)
				}
			}
		}
		slices.SortFunc(r.words, func(a, b textWord) int { return cmp.Compare(a.at, b.at) })
		r.words = slices.Compact(r.words)
	})
	return r.words
}

// eachWord calls f for every aligned word of p, as far as the file has it.
func eachWord(p *elf.Prog, f func(at, word uint64)) {
	const chunk = 1 << 16
	buf := make([]byte, chunk)
	for off := uint64(0); ; {
		n, err := p.ReadAt(buf, int64(off))
		for i := 0; i+8 <= n; i += 8 {
			f(p.Vaddr+off+uint64(i), binary.LittleEndian.Uint64(buf[i:]))
		}
		if off += uint64(n); err != nil || n < chunk {
			return
		}
	}
}
