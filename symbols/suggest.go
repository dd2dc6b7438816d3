package symbols

import (
	"iter"
	"sort"
	"strings"

	"github.com/xrash/smetrics"
)

// nearSymbols suggests up to three function names for a mistyped one.
func nearSymbols(mods []*Module, name string) []string {
	return nearest(name, func(yield func(string) bool) {
		for _, m := range mods {
			st := m.symbols()
			for i := range st.entries {
				e := &st.entries[i]
				if e.isCode() && !yield(demangleShort(st.linkage(e))) {
					return
				}
			}
		}
	})
}

// nearest chooses up to three of names. Qualified names whose last part is name come first, then
// names within a small edit distance. A name that is much farther away than the best is left out.
func nearest(name string, names iter.Seq[string]) []string {
	const most = 3
	type scored struct {
		name string
		cost int
	}
	limit := max(1, min(len(name)/3, 4))
	var list []scored
	seen := map[string]bool{}
	for n := range names {
		if seen[n] {
			continue
		}
		cost := distance(name, n, limit)
		if cost > limit {
			continue
		}
		seen[n] = true
		list = append(list, scored{n, cost})
	}
	sort.SliceStable(list, func(i, j int) bool {
		if list[i].cost != list[j].cost {
			return list[i].cost < list[j].cost
		}
		return len(list[i].name) < len(list[j].name)
	})
	var out []string
	for i := 0; i < len(list) && i < most && list[i].cost <= list[0].cost+1; i++ {
		out = append(out, list[i].name)
	}
	return out
}

// distance is the edit distance of two names, 0 for a missing qualifier or a
// different case, limit+1 if it is more than limit.
func distance(want, have string, limit int) int {
	if rest, ok := strings.CutSuffix(have, want); ok && (strings.HasSuffix(rest, ".") || strings.HasSuffix(rest, "/") || strings.HasSuffix(rest, "::")) {
		return 0
	}
	if d := len(want) - len(have); d > limit || -d > limit {
		return limit + 1
	}
	if strings.EqualFold(want, have) {
		return 0
	}
	if isSwapped(want, have) {
		return 1
	}
	if lacking(want, have) > limit { // which most names are answered with, in less than a table's time
		return limit + 1
	}
	return smetrics.WagnerFischer(want, have, 1, 1, 1)
}

// lacking is how many bytes of want have no partner in have, wherever it stands. Each costs an
// edit at least.
func lacking(want, have string) (n int) {
	var left [256]int
	for i := range len(have) {
		left[have[i]]++
	}
	for i := range len(want) {
		if left[want[i]] == 0 {
			n++
		} else {
			left[want[i]]--
		}
	}
	return n
}

// isSwapped reports whether have is want with two neighbouring bytes swapped, the commonest slip of fast typists.
func isSwapped(want, have string) bool {
	if len(want) != len(have) {
		return false
	}
	for i := 0; i+1 < len(want); i++ {
		if want[i] != have[i] {
			return want[i] == have[i+1] && want[i+1] == have[i] && want[i+2:] == have[i+2:]
		}
	}
	return false
}
