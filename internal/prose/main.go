// Prose lists sentences that a reader may trip over, in Go comments, messages, help
// texts and Markdown. It is for whoever reads the list: many suspects are fine as they
// are, and prose ends with status 0 whatever it finds.
//
//	go run ./internal/prose [-rules LIST] [-sum] [FILE|DIR...]
//
// A directory stands for all files below it, except in testdata.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	names := flag.String("rules", "", "list only these kinds of suspects, with commas between them: "+strings.Join(kinds(), ", "))
	sum := flag.Bool("sum", false, "print only how many suspects each directory has")
	flag.Parse()
	args := flag.Args()
	if len(args) == 0 {
		args = []string{"."}
	}
	found, err := search(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
	if *names != "" {
		wanted := strings.Split(*names, ",")
		found = slices.DeleteFunc(found, func(s suspect) bool { return !slices.Contains(wanted, s.kind) })
	}
	if *sum {
		printSums(os.Stdout, found)
		return
	}
	for _, s := range found {
		fmt.Printf("%s:%d: %s: %s\n", s.file, s.line, s.kind, s.text)
	}
}

// suspect is one place that a reader should look at.
type suspect struct {
	file string
	line int    // counted from 1
	kind string // one of kinds
	text string // the sentence, or the declaration
}

// search returns the suspects in files and below directories, in the order of
// their paths and lines.
func search(paths []string) ([]suspect, error) {
	var found []suspect
	for _, p := range paths {
		err := filepath.WalkDir(p, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != p && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")):
				return filepath.SkipDir
			case d.IsDir():
				return nil
			}
			of, err := inFile(path)
			found = append(found, of...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(found, func(a, b suspect) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	})
	return found, nil
}

// inFile returns the suspects of one file: none if it is neither Go nor Markdown.
func inFile(path string) ([]suspect, error) {
	var found []suspect
	var passages []passage
	ext := filepath.Ext(path)
	if ext != ".go" && ext != ".md" {
		return nil, nil
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if ext == ".md" {
		passages = ofMarkdown(src)
	} else if passages, found, err = ofGo(path, src); err != nil {
		return nil, err
	}
	for _, p := range passages {
		found = append(found, p.suspects()...)
	}
	for i := range found {
		found[i].file = path
	}
	return found, nil
}

// printSums prints a Markdown table of how many suspects there are, by directory
// and kind.
func printSums(w io.Writer, found []suspect) {
	counts := map[string]map[string]int{}
	for _, s := range found {
		for _, dir := range []string{filepath.Dir(s.file), "all"} {
			if counts[dir] == nil {
				counts[dir] = map[string]int{}
			}
			counts[dir][s.kind]++
		}
	}
	fmt.Fprintf(w, "| directory | %s |\n|---|%s\n", strings.Join(kinds(), " | "), strings.Repeat("---|", len(kinds())))
	dirs := slices.DeleteFunc(slices.Sorted(maps.Keys(counts)), func(d string) bool { return d == "all" })
	for _, dir := range append(dirs, "all") {
		fmt.Fprintf(w, "| %s |", dir)
		for _, k := range kinds() {
			fmt.Fprintf(w, " %d |", counts[dir][k])
		}
		fmt.Fprintln(w)
	}
}
