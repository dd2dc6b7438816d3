// Figures counts what shows whether a module stays easy to read, as Markdown tables:
// how long its files and functions are, how much is tested and documented, who
// imports whom, and how large the structs are that hold most of the state.
//
//	go run ./internal/figures [-structs LIST] [DIR]
//
// DIR is the root of any module, such as an older checkout of this one. Generated
// files and testdata are left out; tests count for their length only.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// structs lists the structs that hold most of the state, and most of the difficulty.
const structs = "ptrace.Thread,ptrace.Tracer,ptrace.Process,kprobes.Kprobe,kprobes.Session,kprobes.domain,kprobes.threadState,kprobes.site"

func main() {
	names := flag.String("structs", structs, "the structs to look at, each as PACKAGE.NAME, with commas between them")
	flag.Parse()
	dir := "."
	if flag.NArg() > 0 {
		dir = flag.Arg(0)
	}
	rooms, err := count(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
	printRooms(os.Stdout, rooms)
	fmt.Println()
	printStructs(os.Stdout, rooms, strings.Split(*names, ","))
}

func printRooms(w io.Writer, rooms []*room) {
	fmt.Fprintln(w, "| package | files | lines | of a file: p50/p90/max | functions | lines of one: p50/p90/max | > 60 lines | cyclomatic > 15 | exports documented | test÷code | imported by/imports |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|")
	all := &room{path: "all"}
	for _, r := range rooms {
		printRoom(w, r, fmt.Sprintf("%d/%d", r.fanIn, len(r.imports)))
		all.add(r)
	}
	printRoom(w, all, "")
}

func printRoom(w io.Writer, r *room, fan string) {
	code, functions := sum(r.files), lengths(r.funcs)
	long := len(functions) - index(functions, 61)
	tangled := 0
	for _, f := range r.funcs {
		if f.cyclomatic > 15 {
			tangled++
		}
	}
	documented, tested := "–", "–"
	if r.exported > 0 {
		documented = fmt.Sprintf("%d %%", 100*r.documented/r.exported)
	}
	if code > 0 {
		tested = fmt.Sprintf("%.2f", float64(r.testLines)/float64(code))
	}
	fmt.Fprintf(w, "| %s | %d | %d | %s | %d | %s | %d | %d | %s | %s | %s |\n", r.path, len(r.files), code, spread(r.files),
		len(r.funcs), spread(functions), long, tangled, documented, tested, fan)
}

func printStructs(w io.Writer, rooms []*room, names []string) {
	fmt.Fprintln(w, "| struct | fields | bools | maps | pointers | embedded | methods |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|")
	for _, name := range names {
		at := strings.LastIndex(name, ".")
		i := slices.IndexFunc(rooms, func(r *room) bool { return at >= 0 && r.path == name[:at] })
		if i < 0 || rooms[i].structs[name[at+1:]] == nil {
			fmt.Fprintf(w, "| %s | – | – | – | – | – | – |\n", name)
			continue
		}
		s := rooms[i].structs[name[at+1:]]
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d | %d |\n", name, s.fields, s.bools, s.maps, s.pointers, s.embedded, rooms[i].methods[name[at+1:]])
	}
}

func lengths(funcs []function) []int {
	var n []int
	for _, f := range funcs {
		n = append(n, f.lines)
	}
	slices.Sort(n)
	return n
}

func sum(n []int) int {
	total := 0
	for _, v := range n {
		total += v
	}
	return total
}

// index is where n would be in sorted.
func index(sorted []int, n int) int { i, _ := slices.BinarySearch(sorted, n); return i }

// spread is the median, the 90th percentile and the largest of n.
func spread(n []int) string {
	if len(n) == 0 {
		return "–"
	}
	n = slices.Sorted(slices.Values(n))
	return fmt.Sprintf("%d/%d/%d", n[len(n)/2], n[len(n)*9/10], n[len(n)-1])
}
