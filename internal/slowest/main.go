// Slowest prints what go test -json tells on its standard input as go test itself
// would, and then the slowest tests. With -v it prints as go test -v does. The
// result of a subtest comes when that ends, not below the result of its test. Slowest
// ends with status 1 when a package failed or a test never ended.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	verbose := flag.Bool("v", false, "print the output of tests that passed, too")
	n := flag.Int("n", 20, "how many of the slowest tests are listed")
	flag.Parse()
	ok, err := run(os.Stdin, os.Stdout, *verbose, *n)
	if err != nil {
		fmt.Fprintln(os.Stderr, "slowest:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// event is what go test -json says on a line (go doc test2json).
type event struct {
	Action     string
	Package    string
	Test       string
	Elapsed    float64 // seconds
	Output     string
	ImportPath string // of what did not build
}

// room is one package whose tests run. Packages run at the same time, so their
// output is kept until they end.
type room struct {
	output []event
	ended  map[string]string // test to pass, fail or skip
}

// report is all that was read so far.
type report struct {
	out     *bufio.Writer
	verbose bool
	rooms   map[string]*room
	timed   []event // tests that ended, not their subtests
	failed  bool
}

// run reports whether everything passed.
func run(in io.Reader, out io.Writer, verbose bool, n int) (bool, error) {
	r := &report{out: bufio.NewWriter(out), verbose: verbose, rooms: map[string]*room{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			r.line(line)
		}
		if err == io.EOF {
			break
		} else if err != nil {
			return false, err
		}
	}
	for name := range r.rooms { // go test itself has ended
		r.failed = true
		r.end(name, false)
	}
	r.slowest(n)
	return !r.failed, r.out.Flush()
}

// line takes one line of input. One that is no event is passed on.
func (r *report) line(line string) {
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil || e.Action == "" {
		r.out.WriteString(line)
		return
	}
	switch e.Action {
	case "build-output":
		r.out.WriteString(e.Output)
		return
	case "build-fail":
		r.failed = true
		return
	}
	p := r.rooms[e.Package]
	if p == nil {
		p = &room{ended: map[string]string{}}
		r.rooms[e.Package] = p
	}
	switch e.Action {
	case "output":
		p.output = append(p.output, e)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.failed = r.failed || e.Action == "fail"
			r.end(e.Package, e.Action != "fail")
			return
		}
		p.ended[e.Test] = e.Action
		if !strings.Contains(e.Test, "/") {
			r.timed = append(r.timed, e)
		}
	}
}

// end prints what the package's tests have said.
func (r *report) end(name string, passed bool) {
	p := r.rooms[name]
	delete(r.rooms, name)
	for _, e := range p.output {
		if r.verbose || p.tells(e, passed) {
			r.out.WriteString(e.Output)
		}
	}
	r.out.Flush()
}

// tells reports whether go test prints the output e without -v, too.
func (p *room) tells(e event, passed bool) bool {
	switch {
	case passed:
		return e.Test == "" && (strings.HasPrefix(e.Output, "ok  \t") || strings.HasPrefix(e.Output, "?   \t"))
	case strings.HasPrefix(e.Output, "=== "):
		return false
	}
	return p.ended[e.Test] != "pass" && p.ended[e.Test] != "skip"
}

func (r *report) slowest(n int) {
	if len(r.timed) == 0 {
		return
	}
	slices.SortStableFunc(r.timed, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	r.timed = r.timed[:min(n, len(r.timed))]
	fmt.Fprintf(r.out, "the %d slowest tests:\n", len(r.timed))
	for _, e := range r.timed {
		fmt.Fprintf(r.out, "%8.2fs  %s  %s\n", e.Elapsed, e.Test, e.Package)
	}
}
