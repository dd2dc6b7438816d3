package symbols

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// spelling is a kind of names, which overlap. A program of C has few of the rarer kinds, and thousands of names that it lacks may be looked for in it, in all
// spellings, each time it is executed: so the entries with such names are listed once.
type spelling int

const (
	anySpelling spelling = iota
	mangled              // C++'s and Rust's
	marked               // with a mark that only compilers put into names, and Go into all of its own
	spellings
)

const marks = "./["

// among is the entries that a search can be confined to: those with names of a kind, and of marked ones those that begin with prefix.
type among struct {
	kind   spelling
	prefix string
}

// hasSpelling tells whether raw, which begins with a name and its NUL, is of a kind.
func hasSpelling(raw []byte, kind spelling) bool {
	if kind == mangled {
		return raw[0] == '_' && (raw[1] == 'Z' || raw[1] == 'R')
	}
	return bytes.ContainsAny(untilNUL(raw), marks)
}

func untilNUL(raw []byte) []byte { return raw[:max(bytes.IndexByte(raw, 0), 0)] }

// spelt lists the entries with names of a kind, marked ones by name. If ok is false they may be anywhere: there are too many for a list.
func (s *symtab) spelt(kind spelling) (some []int32, ok bool) {
	if kind == anySpelling {
		return nil, false
	}
	s.spellOnce.Do(func() {
		for kind := mangled; kind < spellings; kind++ {
			s.spelled[kind] = s.listSpelt(kind)
		}
		slices.SortStableFunc(s.spelled[marked], func(a, b int32) int {
			return bytes.Compare(untilNUL(s.rawName(&s.entries[a])), untilNUL(s.rawName(&s.entries[b])))
		})
	})
	some = s.spelled[kind]
	return some, some != nil
}

// listSpelt is nil if more than a quarter are of that kind.
func (s *symtab) listSpelt(kind spelling) []int32 {
	some := []int32{}
	for i := range s.entries {
		if !hasSpelling(s.rawName(&s.entries[i]), kind) {
			continue
		}
		if some = append(some, int32(i)); len(some) > len(s.entries)/4 {
			return nil
		}
	}
	return slices.Clip(some)
}

// candidates lists the entries of w, all that match are among them. If ok is false that may be all entries.
func (s *symtab) candidates(w among) (some []int32, ok bool) {
	if some, ok = s.spelt(w.kind); !ok || w.kind != marked || w.prefix == "" {
		return some, ok
	}
	first, _ := slices.BinarySearchFunc(some, w.prefix, func(i int32, prefix string) int {
		return cmp.Compare(string(untilNUL(s.rawName(&s.entries[i]))), prefix)
	})
	n := 0
	for some = some[first:]; n < len(some) && strings.HasPrefix(string(untilNUL(s.rawName(&s.entries[some[n]]))), w.prefix); n++ {
	}
	return some[:n], true
}

// fewCandidates are looked at sooner than an answer is kept.
const fewCandidates = 64

// searched answers question, which matches answers for one entry.
func (s *symtab) searched(question string, w among, matches func(*symtab, *entry) bool) []int32 {
	some, ok := s.candidates(w)
	if ok && len(some) <= fewCandidates {
		return s.matching(some, matches)
	}
	return s.answers.to(question, func() []int32 {
		if ok {
			return s.matching(some, matches)
		}
		return s.matchingAll(matches)
	})
}

// matching lists those of the entries some that match, in their order.
func (s *symtab) matching(some []int32, matches func(*symtab, *entry) bool) (found []int32) {
	for _, i := range some {
		if matches(s, &s.entries[i]) {
			found = append(found, i)
		}
	}
	slices.Sort(found)
	return found
}

// matchingAll lists all entries that match.
func (s *symtab) matchingAll(matches func(*symtab, *entry) bool) (found []int32) {
	for i := range s.entries {
		if matches(s, &s.entries[i]) {
			found = append(found, int32(i))
		}
	}
	return found
}
