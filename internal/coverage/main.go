// Command coverage prints the share of sites that can be optimized, for files that need
// not run: of the functions' entries, and with -insns of all instructions.
//
//	go run ./internal/coverage [-insns] [FILE...]
//
// Without a file it takes some that most machines have, and itself.
//
// A site counts if its detour finds room beside those of all sites before it, in the
// address space of a process that has loaded the file and little else.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/gokprobe/gokprobe/trampoline"
)

func main() {
	insns := flag.Bool("insns", false, "all instructions, too")
	flag.Parse()
	if err := run(os.Stdout, flag.Args(), *insns); err != nil {
		fmt.Fprintln(os.Stderr, "coverage:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, paths []string, insns bool) error {
	if len(paths) == 0 {
		var err error
		if paths, err = usualFiles(); err != nil {
			return err
		}
	}
	for _, path := range paths {
		m, err := load(path)
		if err != nil {
			return err
		}
		if err := report(w, m, false); err != nil {
			return err
		}
		if !insns {
			continue
		}
		if err := report(w, m, true); err != nil {
			return err
		}
	}
	return nil
}

func report(w io.Writer, m *module, all bool) error {
	x, err := measure(m, all)
	if err != nil {
		return err
	}
	x.print(w, all)
	return nil
}

func (x *measurement) print(w io.Writer, all bool) {
	what := "function entries"
	if all {
		what = "instructions"
	}
	fmt.Fprintf(w, "%-20s %-16s %8d  %6.2f %%  (no inner head %d, trapped %d, kept %d)\n",
		x.name, what, x.sites, percent(x.yes, x.sites), x.kinds[free], x.kinds[trapped], x.kinds[kept])
	fmt.Fprintf(w, "%20s %16s %8d  mappings, %d KiB of code\n", "", "", 2*len(x.space.region.Arenas()), len(x.space.pages)*trampoline.PageSize/1024)
	byCount := func(a, b string) int { return cmp.Or(x.refused[b]-x.refused[a], cmp.Compare(a, b)) }
	for _, why := range slices.SortedFunc(maps.Keys(x.refused), byCount) {
		n := x.refused[why]
		fmt.Fprintf(w, "%20s %16s %8d  %6.2f %%  %s, as at %s\n", "", "", n, percent(n, x.sites), why, x.example[why])
	}
}

func percent(n, of int) float64 { return 100 * float64(n) / float64(max(of, 1)) }
