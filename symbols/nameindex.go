package symbols

import (
	"bytes"
	"hash/maphash"
	"strings"
)

// nameIndex finds symbols by linkage name. To make it costs more than one search through all
// symbols; it pays for thousands of names.
type nameIndex struct {
	seed  maphash.Seed
	first map[uint64]int32 // by hash: the first entry
	next  []int32          // by entry: the next of the same hash, -1 for none
}

func (t *Table) indexNames() {
	for _, m := range t.snap.Load().named {
		m.symbols().indexNames()
	}
}

func (s *symtab) indexNames() {
	if s.index.Load() != nil {
		return
	}
	x := &nameIndex{maphash.MakeSeed(), make(map[uint64]int32, len(s.entries)), make([]int32, len(s.entries))}
	for i := len(s.entries) - 1; i >= 0; i-- {
		raw := s.rawName(&s.entries[i])
		raw = raw[:max(bytes.IndexByte(raw, 0), 0)]
		if at := bytes.IndexByte(raw, '@'); at >= 0 {
			raw = raw[:at]
		}
		h := maphash.Bytes(x.seed, raw)
		x.next[i] = -1
		if first, ok := x.first[h]; ok {
			x.next[i] = first
		}
		x.first[h] = int32(i)
	}
	s.index.Store(x)
}

// eachNamed calls f for the entries whose name, without its version, is name, in their
// order.
func (s *symtab) eachNamed(name string, f func(*entry)) {
	x := s.index.Load()
	if x == nil {
		named := func(s *symtab, e *entry) bool { return s.isNamed(e, name) }
		for _, i := range s.answers.to("linkage "+name, func() []int32 { return s.matchingAll(named) }) {
			f(&s.entries[i])
		}
		return
	}
	plain, _, _ := strings.Cut(name, "@") // the index has names without versions
	i, ok := x.first[maphash.String(x.seed, plain)]
	for ; ok && i >= 0; i = x.next[i] {
		if e := &s.entries[i]; s.isNamed(e, name) {
			f(e)
		}
	}
}
