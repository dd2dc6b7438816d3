package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

func TestMain(m *testing.M) {
	if status, is := Child(); is {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

// TestEveryRowIsMeasuredOrSaysWhyNot also checks that all hits were counted and the code was
// put back: the measurers fail else.
func TestEveryRowIsMeasuredOrSaysWhyNot(t *testing.T) {
	report, err := Run(context.Background(), Config{Rounds: 1, Quick: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(report.Rows), len(table()); got != want {
		t.Fatalf("%d rows, want %d", got, want)
	}
	for i, r := range report.Rows {
		if want := table()[i].name; r.Row != want {
			t.Errorf("row %d is %s, want %s", i, r.Row, want)
		}
		checkResult(t, r)
	}
	checkText(t, report)
	checkJSON(t, report)
}

func checkResult(t *testing.T, r Result) {
	t.Helper()
	if (r.Each == nil) == (r.Note == "") {
		t.Errorf("%s: figures %v, note %q", r.Row, r.Each, r.Note)
	}
	if (r.FloorEach == nil) == (r.FloorNote == "") {
		t.Errorf("%s: what it is compared with: %v, note %q", r.Row, r.FloorEach, r.FloorNote)
	}
	for _, f := range []*Figures{r.Each, r.FloorEach} {
		if f != nil && !(f.Min > 0 && f.Min <= f.Median && f.Median <= f.Max && len(f.Rounds) == 1) {
			t.Errorf("%s: %+v", r.Row, *f)
		}
	}
	switch comparable := r.Each != nil && r.FloorEach != nil; {
	case comparable != (r.Ratio > 0):
		t.Errorf("%s: ratio %g", r.Row, r.Ratio)
	case (r.OK != nil) != (comparable && r.Goal > 0):
		t.Errorf("%s: ok %v, goal %g", r.Row, r.OK, r.Goal)
	}
	// What needs nothing but ptrace is measured everywhere.
	if strings.HasPrefix(r.Floor, "1 ptrace stop") && r.Note != "" {
		t.Errorf("%s: %s", r.Row, r.Note)
	}
}

func checkText(t *testing.T, report *Report) {
	t.Helper()
	var text strings.Builder
	if err := report.Text(&text); err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Rows {
		if !strings.Contains(text.String(), "\n"+r.Row+" ") {
			t.Errorf("there is no line of %s in\n%s", r.Row, text.String())
		}
		if !strings.Contains(text.String(), r.Note) || !strings.Contains(text.String(), r.FloorNote) {
			t.Errorf("%s: the notes are not in\n%s", r.Row, text.String())
		}
	}
	if !strings.Contains(text.String(), report.Machine.String()) {
		t.Errorf("the machine is not in\n%s", text.String())
	}
}

func checkJSON(t *testing.T, report *Report) {
	t.Helper()
	var out bytes.Buffer
	if err := report.JSON(&out); err != nil {
		t.Fatal(err)
	}
	for i := -1; ; i++ {
		line, err := out.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if i != len(report.Rows) {
				t.Errorf("%d lines of rows, want %d", i, len(report.Rows))
			}
			return
		}
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		var m struct {
			Type string
			Machine
		}
		var r struct {
			Type string
			Result
		}
		if i < 0 {
			if err := d.Decode(&m); err != nil || m.Type != "machine" || m.Machine != report.Machine {
				t.Errorf("%s: %v", line, err)
			}
		} else if err := d.Decode(&r); err != nil || r.Type != "row" || r.Row != report.Rows[i].Row || r.Ratio != report.Rows[i].Ratio {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestAnEndedRunLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithCancel(context.Background())
	cfg := Config{Rounds: 1_000_000, Rows: []string{"b"}, Quick: 100, Progress: func(round int) {
		if round == 2 {
			go func() {
				for !mentioned(t, dir) {
					runtime.Gosched()
				}
				cancel()
			}()
		}
	}}
	report, err := Run(ctx, cfg)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want %v", err, context.Canceled)
	}
	if report == nil || len(report.Rows) != 1 || report.Rows[0].Each == nil || report.Rows[0].FloorEach == nil {
		t.Fatalf("the report has not what the first round measured: %+v", report)
	}
	if r := report.Rows[0]; r.Each.Min <= 0 || r.FloorEach.Min <= 0 {
		t.Errorf("what was not measured is in the report: %+v, %+v", r.Each, r.FloorEach)
	}
	testprog.Await(t, "an end of all processes", func() bool { return !mentioned(t, dir) })
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left in the temporary directory: %v", left, err)
	}
}

// mentioned tells whether some process has the directory in its arguments.
func mentioned(t *testing.T, dir string) bool {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Error(err)
	}
	for _, f := range files {
		if args, err := os.ReadFile(f); err == nil && bytes.Contains(args, []byte(dir)) {
			return true
		}
	}
	return false
}

func TestRowsAreChosenByNameOrLetter(t *testing.T) {
	for _, c := range []struct{ names, want string }{
		{"b", "b"},
		{"b,k", "k b"},
		{"o", "o-upcall o-busy o-one o-count o-count8 o-record o-values o-decide"},
		{"o-count,r", "r o-count"},
		{"u", "u u-push u-nop"},
		{"u-nop,u", "u u-push u-nop"},
	} {
		rows, err := choose(strings.Split(c.names, ","))
		var got []string
		for _, r := range rows {
			got = append(got, r.name)
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, %v, want %s", c.names, got, err, c.want)
		}
	}
	if rows, err := choose(nil); err != nil || len(rows) != len(Rows()) {
		t.Errorf("no names: %d rows, %v", len(rows), err)
	}
	for _, bad := range []string{"", "x", "o-", "b "} {
		if _, err := choose([]string{bad}); !errors.Is(err, ErrUnknownRow) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestRefusalsOfTheKernelAreNoFailures(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string // begins the note; empty for a failure
	}{
		{unix.EPERM, "not permitted"},
		{fmt.Errorf("map create: %w", unix.EACCES), "not permitted"},
		{&fs.PathError{Op: "open", Path: "/sys", Err: unix.EPERM}, "not permitted"},
		{fmt.Errorf("program: %w", ebpf.ErrNotSupported), "not supported"},
		{unix.ENOSYS, "not supported"},
		{fmt.Errorf("tracefs: %w", fs.ErrNotExist), "not supported"},
		{unix.EINVAL, ""},
		{io.EOF, ""},
	} {
		var none *unavailable
		err := refused("a thing", c.err)
		switch note := errors.As(err, &none); {
		case note != (c.want != ""):
			t.Errorf("%v: %v", c.err, err)
		case note && !strings.HasPrefix(none.reason, c.want):
			t.Errorf("%v: %q, want %q…", c.err, none.reason, c.want)
		case !note && !errors.Is(err, c.err):
			t.Errorf("%v is not wrapped in %v", c.err, err)
		}
	}
}

func TestSeries(t *testing.T) {
	for _, c := range []struct {
		s, to  series
		median float64
		ratio  float64
	}{
		{series{3}, series{2}, 3, 1.5},
		{series{9, 1, 5}, series{3, 1, 1}, 5, 3},
		{series{4, 1, 3, 2}, series{1, 1, 1, 1}, 3, 3},
		{series{8, 2}, series{2}, 8, 4},
	} {
		if got := c.s.median(); got != c.median {
			t.Errorf("%v: median %g, want %g", c.s, got, c.median)
		}
		if got := c.s.ratio(c.to); got != c.ratio {
			t.Errorf("%v to %v: %g, want %g", c.s, c.to, got, c.ratio)
		}
	}
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		each, floor float64
		goal        float64
		atLeast     bool
		want        string
	}{
		{12, 10, 1.25, false, "1.20×\t≤ 1.25×\tok"},
		{13, 10, 1.25, false, "1.30×\t≤ 1.25×\tOVER"},
		{5, 4, 1.25, false, "1.25×\t≤ 1.25×\tok"},
		{150, 10, 15, true, "15×\t≥ 15×\tok"},
		{149, 10, 15, true, "15×\t≥ 15×\tUNDER"},
		{200, 4000, 0.1, false, "0.050×\t≤ 0.1×\tok"},
		{20, 10, 0, false, "2.00×\t\t"},
		{0, 10, 2, false, "\t≤ 2×\t"},
	} {
		s := &state{row: row{goal: c.goal, atLeast: c.atLeast}, floors: series{c.floor}}
		if c.each > 0 {
			s.each = series{c.each}
		}
		if got := newReport(Machine{}, []*state{s}).Rows[0].verdict(); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
