package numbers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// counted lists n elements out of all, each as elem has it.
func counted(name string, n, all int, elem func(i int) string) string {
	var texts []string
	for i := range min(n, all) {
		texts = append(texts, elem(i))
	}
	if n < all {
		texts = append(texts, fmt.Sprintf("… %d in all", all))
	}
	return name + "{" + strings.Join(texts, ", ") + "}"
}

// TestAsMuchIsShownAsIsAskedFor of nested values, of lists and containers, and of texts; and all the rest as by default.
func TestAsMuchIsShownAsIsAskedFor(t *testing.T) {
	many := func(n int) string {
		return counted("", n, 300, func(i int) string { return fmt.Sprintf(`"key%d": %d`, 1000+i, i) })
	}
	deque := func(n int) string {
		return counted("", n, 305, func(i int) string { return fmt.Sprint([]int{-4, -3, -2, -1, 0}[min(i, 4)] + max(i-5, 0)) })
	}
	long := func(n int) string {
		return "map[[200]uint8]int{" + counted("", n, 200, func(i int) string { return fmt.Sprint(max(1-i, 0)) }) + ": 5}"
	}
	cxx := maker{name: "g++", levels: [][]string{{"-g", "-std=c++20"}}, suffix: ".cc"}
	golang := maker{name: "go", levels: [][]string{{}}, suffix: ".go"}
	for _, x := range []struct {
		maker
		source, entry string
		bounds        symbols.Bounds
		all           [][2]string
	}{
		{cxx, sequencesCXX, "handle", symbols.Bounds{Depth: 1, Items: 2, Bytes: 3}, [][2]string{
			{"o.numbers", "{1, -2, … 10 in all}"}, {"o.note", `"not"…`}, {"v", `"vie"…`}, {"o.own[1]", `{base: {kind: …}, name: "ref", price: 2.5, c: BLUE, bits: 5, more: -3}`}, {"o.grid", "{{…, …, … 3 in all}, {…, …, … 3 in all}}"},
			{"f.text", `"fle"…`}, {"o.items[1].name", `"a n"…`}, {"v[0:4]", `"vie"…`}, {"n", "42"}}},
		{cxx, sequencesCXX, "handle", symbols.Bounds{Items: 10}, [][2]string{{"o.numbers", "{1, -2, 3, 4, 5, 6, 7, 8, 9, 10}"}, {"o.note", `"note"`}}},
		{cxx, containersCXX, "handle", symbols.Bounds{Items: 300}, [][2]string{{"a.many", many(300)}, {"a.deque", deque(300)}, {"a.chain", "{1, 2, 3}"}}},
		{cxx, containersCXX, "handle", symbols.Bounds{Items: 2, Bytes: 4}, [][2]string{{"a.many", `{"key1"…: 0, "key1"…: 1, … 300 in all}`}, {"a.deque", deque(2)}, {"a.chain", "{1, 2, …}"}, {"a.bits", "0b1000…"}, {"a.bools", "{true, false, … 10 in all}"}}},
		{golang, containersGo, "main.handle", symbols.Bounds{Items: 199}, [][2]string{{"a.Long", long(199)}, {"a.Floats", `map[float64]string{-1: "y", 2.5: "x"}`}}},
	} {
		bin := x.compile(t, x.levels[0], x.source)
		for _, stops := range []bool{false, true} {
			walk(t, bin, x.entry, x.all, nil, nil, stops, trace.Within(x.bounds))
		}
	}
}
