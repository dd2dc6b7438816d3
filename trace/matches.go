package trace

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// PatternStats is what a pattern was found to stand for, under Follow, in all programs that were executed.
type PatternStats struct {
	Spec  string
	Found []Matches // the most first
}

// Matches is how many places of a pattern a file has. Where files of one name differ it is the most of them.
type Matches struct {
	Module string
	Places int
}

// matches is how many places a pattern has by file.
type matches struct {
	mu sync.Mutex
	in map[string]int
}

// mostModules is how many files are told of.
const mostModules = 1000

// note counts the places that a pattern stands for in one program.
func (ms *matches) note(places []Place) {
	here := map[string]int{}
	for _, at := range places {
		here[at.module]++
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.in == nil {
		ms.in = map[string]int{}
	}
	for module, n := range here {
		if len(ms.in) < mostModules || ms.in[module] > 0 {
			ms.in[module] = max(ms.in[module], n)
		}
	}
}

// sorted lists them.
func (ms *matches) sorted() []Matches {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return sortedMatches(ms.in)
}

func sortedMatches(in map[string]int) (all []Matches) {
	for _, module := range slices.Sorted(maps.Keys(in)) {
		all = append(all, Matches{module, in[module]})
	}
	slices.SortStableFunc(all, func(a, b Matches) int { return cmp.Compare(b.Places, a.Places) })
	return all
}

// AddPatterns puts together what patterns were found to stand for in several processes.
func AddPatterns(sum, more []PatternStats) []PatternStats {
	for _, p := range more {
		i := slices.IndexFunc(sum, func(o PatternStats) bool { return o.Spec == p.Spec })
		if i < 0 {
			sum = append(sum, p)
			continue
		}
		in := map[string]int{}
		for _, m := range slices.Concat(sum[i].Found, p.Found) {
			in[m.Module] = max(in[m.Module], m.Places)
		}
		sum[i].Found = sortedMatches(in)
	}
	return sum
}
