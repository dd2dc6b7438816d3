package errlog

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/expr/caret"
)

func at(column int, command string) *caret.Error {
	return &caret.Error{System: "trace_kprobe", ID: "BAD_REG_NAME", Text: "Invalid register name", Command: command, Column: column, Errno: syscall.EINVAL}
}

// The kernel's selftests count on it: the caret's line is 13 bytes longer than what is in front of the error.
func TestTheCaretIsBelowWhatIsWrong(t *testing.T) {
	var l Log
	l.Add(at(5, "p fn %zz"), 12*time.Second+345678*time.Microsecond)
	l.Add(at(0, "p fn %zz"), 123456*time.Second)
	want := "[   12.345678] trace_kprobe: error: Invalid register name\n" +
		"  Command: p fn %zz\n" +
		"                ^\n" +
		"[123456.000000] trace_kprobe: error: Invalid register name\n" +
		"  Command: p fn %zz\n" +
		"           ^\n"
	if got := l.String(); got != want {
		t.Errorf("the log is\n%s\nwant\n%s", got, want)
	}
	lines := strings.SplitAfter(l.String(), "\n")
	if n := len(lines[2]); n != 13+5 {
		t.Errorf("the caret's line has %d bytes", n)
	}
	var b strings.Builder
	if n, err := l.WriteTo(&b); err != nil || b.String() != want || n != int64(len(want)) {
		t.Errorf("WriteTo wrote %d bytes: %v", n, err)
	}
}

func TestTheLastEightAreKept(t *testing.T) {
	var l Log
	if l.String() != "" {
		t.Error("a new log is not empty")
	}
	for i := range 20 {
		l.Add(at(0, fmt.Sprint("command ", i)), time.Duration(i))
	}
	got := l.String()
	if strings.Count(got, "Command:") != Kept || !strings.Contains(got, "command 12\n") || strings.Contains(got, "command 11\n") ||
		strings.Index(got, "command 12") > strings.Index(got, "command 19") {
		t.Errorf("after 20 errors:\n%s", got)
	}
	l.Clear()
	if l.String() != "" {
		t.Error("a cleared log is not empty")
	}
}

func TestManyWriters(t *testing.T) {
	var l Log
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				l.Add(at(1, "c"), 0)
				_ = l.String()
			}
			l.Clear()
		})
	}
	wg.Wait()
	if l.String() != "" {
		t.Error("the last writer's Clear left something")
	}
}
