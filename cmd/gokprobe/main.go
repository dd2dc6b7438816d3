// Command gokprobe is the kernel's kprobes for live user processes: it attaches to
// a running process, or starts one, puts probes into its functions, and prints
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
	"github.com/gokprobe/gokprobe/internal/escape"
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

// stdout is standard output for all texts that may hold a target's names. Its Write escapes
// characters that control a terminal. Code that uses file directly must clean its text
// itself, as package event does, or only hand the file on.
type stdout struct{ file *os.File }

// Write writes a piece of text, cleaned. The text must not begin or end within a character.
func (o stdout) Write(p []byte) (int, error) {
	w := escape.Writer{W: o.file}
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

// Main runs the command line args and returns the exit status, one of the exit… constants or
// run's. It prints an error as one sentence. Below the sentence of an error in an
// expression it shows the expression, with a caret.
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

// pictured is an error in a text of the user's: a scenario, a flag, a Go expression. Picture
// shows the text, with a caret at the place.
type pictured interface {
	error
	Picture() string
}

// flush waits until all warnings are written. run calls it before the target starts, so that
// the target's own output comes after them.
func (s stdio) flush() {
	if c, ok := s.err.(*console); ok {
		c.flush()
	}
}

// patient returns stderr for a text that must not be lost. It blocks on a slow reader, so
// no target may be waiting for us.
func (s stdio) patient() io.Writer {
	if c, ok := s.err.(*console); ok {
		return patient{c}
	}
	return s.err
}

// above is out, for whole lines that appear above a line of progress.
func (s stdio) above(out io.Writer) io.Writer {
	if c, ok := s.err.(*console); ok {
		return c.above(out)
	}
	return out
}

// oneLine returns s as one line: joined errors, and names that the target has chosen, may
// have line ends.
func oneLine(s string) string {
	return escape.Line(strings.ReplaceAll(strings.TrimSpace(s), "\n", "; "))
}
