// Package errlog is tracing/error_log: the last commands that were refused, each with a caret below what was wrong
// (kernel/trace/trace.c, tracing_log_err).
//
// The package is pure: no system call, no build tag.
//
// Not part of the public promise: any version may change it.
package errlog

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/gokprobe/gokprobe/expr/caret"
)

// Kept is how many errors a Log holds; older ones are forgotten (TRACING_LOG_ERRS_MAX).
const Kept = 8

// prefix stands in front of a command; the caret's line has as many blanks.
const prefix = "  Command: "

// Log is the last errors. The zero Log is empty. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	entries []entry // the oldest first
}

type entry struct {
	err  *caret.Error
	when time.Duration
}

// Add appends e; when is the time since the system's boot. e must not be changed any more.
func (l *Log) Add(e *caret.Error, when time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) == Kept {
		l.entries = append(l.entries[:0], l.entries[1:]...)
	}
	l.entries = append(l.entries, entry{e, when})
}

// Clear forgets all errors, as an open of the file for writing does that truncates it.
func (l *Log) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}

// String is the file's text, the oldest error first: time and sentence, the command, and a caret below
// what is wrong.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, e := range l.entries {
		micros := e.when.Microseconds()
		fmt.Fprintf(&b, "[%5d.%06d] %s: error: %s\n%s%s\n%*s^\n", micros/1e6, micros%1e6, e.err.System, e.err.Text,
			prefix, e.err.Command, len(prefix)+e.err.Column, "")
	}
	return b.String()
}

// WriteTo writes String to w.
func (l *Log) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, l.String())
	return int64(n), err
}
