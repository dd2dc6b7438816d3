package numbers

import (
	_ "embed"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/trace"
)

//go:embed testdata/cycles.go.txt
var cyclesGo string

// warnings keeps what is logged.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, string(line))
	return len(line), nil
}

// with counts those that hold a text.
func (w *warnings) with(text string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.all {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// delves are the processes of ours that Delve runs in.
func delves(t *testing.T) (all []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		name, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		st, err := procfs.ReadStat(pid, 0)
		if err == nil && st.PPid == os.Getpid() && string(name) == "gokprobe-delve\x00" {
			all = append(all, pid)
		}
	}
	return all
}

// cycles is a traced program whose values hold themselves.
type cycles struct {
	*testing.T
	p    *testprog.Prog
	s    *trace.Session
	said warnings
}

func startCycles(t *testing.T) *cycles {
	x := maker{name: "go", suffix: ".go"}
	c := &cycles{T: t, p: testprog.Start(t, x.compile(t, nil, cyclesGo))}
	s, err := trace.Attach(t.Context(), c.p.PID(), trace.Log(slog.New(slog.NewTextHandler(&c.said, nil))))
	if err != nil {
		t.Fatal(err)
	}
	c.s = s
	return c
}

// value is an expression's at one hit.
func (c *cycles) value(expr string) string {
	c.Helper()
	probe := place(c.T, c.s, "main.handle", trace.Fetch("x="+expr))
	c.p.Do("go", "done")
	if err := probe.Close(); err != nil {
		c.Error(err)
	}
	for h := range probe.Hits() {
		for _, a := range h.Args {
			if a.Name == "x" {
				return a.String()
			}
		}
	}
	c.Errorf("%s: no hit", expr)
	return ""
}

func (c *cycles) end() {
	if err := c.s.Close(); err != nil {
		c.Error(err)
	}
	if left := delves(c.T); len(left) > 0 {
		c.Errorf("processes of Delve's are left: %v", left)
	}
	c.p.CheckClean()
	c.p.Quit()
}

// TestDelvesEndIsAMissedValue: it is killed between two hits, as if it had crashed, until it is not started any more.
func TestDelvesEndIsAMissedValue(t *testing.T) {
	c := startCycles(t)
	for death := 1; death <= 3; death++ {
		for c.value("go:n + 1") != "2" { // until it has been loaded again
			if c.said.with("could not") > 0 || c.said.with("has no value") != death-1 {
				t.Fatal(c.said.all)
			}
		}
		old := delves(t)
		if len(old) != 1 {
			t.Fatalf("processes of Delve's: %v", old)
		}
		probe := place(t, c.s, "main.handle", trace.Fetch("x=go:n + 1"), trace.Fetch("y=n"))
		if err := syscall.Kill(old[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		c.p.Do("go", "done")
		if err := probe.Close(); err != nil {
			t.Error(err)
		}
		for h := range probe.Hits() {
			if x, y := h.Args[len(h.Args)-2].String(), h.Args[len(h.Args)-1].String(); x != "?" || y != "1" {
				t.Errorf("without Delve x is %s and y is %s", x, y)
			}
		}
		if n := c.said.with("has no value"); n != death {
			t.Errorf("%d warnings after %d deaths: %q", n, death, c.said.all)
		}
	}
	if _, err := c.s.Probe("main.handle", trace.Fetch("go:n")); err == nil || !strings.Contains(err.Error(), "3 times") {
		t.Errorf("after three deaths: %v", err)
	}
	c.end()
}

// TestWhatHoldsItself: such a value is unknown or cut, whatever it does to Delve, and the session goes on.
func TestWhatHoldsItself(t *testing.T) {
	c := startCycles(t)
	for _, x := range [][2]string{
		{"go:n + 1", "2"}, {"go:v.NaN", "NaN"}, {"go:v.Inf", "-Inf"}, {"go:v.At", "0x1230"}, {"go:v.Half", "0.5"}, {"go:v.Long", `"` + strings.Repeat("x", 64) + `"…`},
		{"go:v.Long + v.Long", `"` + strings.Repeat("x", 64) + `"…`}, {"go:len(t[0][0][0])", "1"},
	} {
		if got := c.value(x[0]); got != x[1] {
			t.Errorf("%s is %s, not %s", x[0], got, x[1])
		}
	}
	for _, expr := range []string{"go:t", "n", "go:m", "n"} {
		got := c.value(expr)
		t.Logf("%s is %s; warnings: %d", expr, got, c.said.with("has no value"))
		if expr == "n" && got != "1" || expr == "go:t" && got != "?" {
			t.Errorf("%s is %s", expr, got)
		}
	}
	c.end()
}
