// Command gokprobe is the kernel's kprobes for live user processes: it attaches to
// a running program, or starts one, puts breakpoints into its functions, and prints
// every call, without a rebuild and without a restart. Run "gokprobe help".
//
// The package holds flags and printing. Everything that touches a process is in
// package kprobes.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/gokprobe/gokprobe/bench"
	"github.com/gokprobe/gokprobe/internal/budget"
	"github.com/gokprobe/gokprobe/internal/clean"
	"github.com/gokprobe/gokprobe/internal/lean"
	"github.com/gokprobe/gokprobe/kprobes"
)

func main() {
	lean.Done()
	kprobes.GuardianMain()
	if status, is := bench.Child(); is {
		os.Exit(status)
	}
	if mode := os.Getenv(sampleEnv); mode != "" {
		os.Exit(runSample(mode, os.Stdin, os.Stdout))
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(budget.Memory)
	}
	os.Exit(Main(os.Args, stdio{os.Stdin, stdout{os.Stdout}, os.Stderr}))
}

// stdio is the command's standard files.
type stdio struct {
	in  *os.File
	out stdout
	err io.Writer
}

// stdout is what printers write to: whatever a target's names hold, no terminal is driven by it. Only who gives the file away, or cleans by
// himself, as package event does, takes the file.
type stdout struct{ file *os.File }

// Write writes a piece of text that begins and ends with whole characters.
func (o stdout) Write(p []byte) (int, error) {
	w := clean.Writer{W: o.file}
	n, err := w.Write(p)
	if err == nil {
		err = w.Flush()
	}
	return n, err
}

// warn prints one sentence on stderr.
func (s stdio) warn(format string, args ...any) {
	fmt.Fprintf(s.err, "gokprobe: %s\n", oneLine(fmt.Sprintf(format, args...)))
}

// Main runs the command line args and returns the exit status (see package
// documentation of the exit… constants). It prints an error as one sentence, one in an expression with a caret below.
func Main(args []string, std stdio) int {
	c := newConsole(std.err)
	std.err = c
	defer c.flush()
	app := newApp(std)
	err := twice(app, args)
	if err == nil {
		err = app.Run(args)
	}
	if text := sentence(err); text != "" {
		std.warn("%s", text)
	}
	var p pictured
	if errors.As(err, &p) {
		fmt.Fprint(std.err, p.Picture())
	}
	return exitStatus(err)
}

// pictured is an error in a text that can be shown, with a caret: of a scenario, a flag, a Go expression.
type pictured interface {
	error
	Picture() string
}

// flush waits until what was said is written, in front of what a program is about to say.
func (s stdio) flush() {
	if c, ok := s.err.(*console); ok {
		c.flush()
	}
}

// patient is stderr for a text that must not be lost, when no target waits for us any more.
func (s stdio) patient() io.Writer {
	if c, ok := s.err.(*console); ok {
		return patient{c}
	}
	return s.err
}

// oneLine keeps a sentence on its line whatever a joined error or a file name of
// the target brings along.
func oneLine(s string) string {
	return clean.Line(strings.ReplaceAll(strings.TrimSpace(s), "\n", "; "))
}
