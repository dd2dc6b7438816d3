package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// module writes a module with the packages a, whose tests pass, b, one of whose
// tests fails, and c, which does not compile.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.24\n",
		"a/a_test.go": `package a
import ("fmt"; "testing"; "time")
func TestSleeps(t *testing.T) { fmt.Println("a says so"); time.Sleep(300 * time.Millisecond) }
func TestSkips(t *testing.T) { t.Skip("no reason") }
func TestHasParts(t *testing.T) { for _, n := range []string{"x", "y"} { t.Run(n, func(t *testing.T) { t.Parallel(); t.Log("part", n) }) } }
`,
		"b/b_test.go": `package b
import "testing"
func TestPasses(t *testing.T) { t.Log("not wanted") }
func TestFails(t *testing.T) { t.Run("good", func(t *testing.T) { t.Log("not wanted") }); t.Run("bad", func(t *testing.T) { t.Error("wanted") }) }
`,
		"c/c_test.go": "package c\nvar _ int = \"\"\n",
		"d/d.go":      "package d\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// goTest is what go test prints, its standard error included, without times.
func goTest(t *testing.T, dir string, args ...string) string {
	t.Helper()
	// Of two tests that run in parallel, which prints first would be a matter of chance, and with it the lines that say whose output follows.
	cmd := exec.Command("go", append([]string{"test", "-count=1", "-p=1", "-parallel=1"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return string(out)
}

var times = regexp.MustCompile(`\d+\.\d+s`)

// lines are those of s, sorted and with no times and indentation, since go test
// prints the results of subtests below that of their test, and -json when they end.
// What does not build is told at other places too, so all that speaks of it is left out.
func lines(s string) string {
	var all []string
	for line := range strings.Lines(times.ReplaceAllString(s, "_")) {
		if !strings.Contains(line, "example.com/m/c") && !strings.Contains(line, "c_test.go") && line != "FAIL\n" {
			all = append(all, strings.TrimSpace(line))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// TestTheOutputIsThatOfGoTest: the oracle is go test.
func TestTheOutputIsThatOfGoTest(t *testing.T) {
	dir := module(t)
	json := goTest(t, dir, "-json", "./...")
	for _, flag := range []string{"-v=false", "-v"} {
		var out strings.Builder
		if ok, err := run(strings.NewReader(json), &out, flag == "-v", 2); ok || err != nil {
			t.Errorf("%s: %v, %v", flag, ok, err)
		}
		got, list, _ := strings.Cut(out.String(), "the 2 slowest tests:\n")
		if want := goTest(t, dir, flag, "./..."); lines(got) != lines(want) {
			t.Errorf("%s: printed\n%s\ngo test\n%s", flag, got, want)
		}
		if strings.Count(list, "\n") != 2 || !strings.Contains(strings.SplitN(list, "\n", 2)[0], "TestSleeps  example.com/m/a") {
			t.Errorf("%s: the slowest are\n%s", flag, list)
		}
		if !strings.Contains(got, "c/c_test.go:2") {
			t.Errorf("what does not compile is not told:\n%s", got)
		}
	}
}

// TestARunThatBreaksOffHasFailed: its last line is missing.
func TestARunThatBreaksOffHasFailed(t *testing.T) {
	const begin = `{"Action":"run","Package":"m/a","Test":"TestA"}
{"Action":"output","Package":"m/a","Test":"TestA","Output":"said\n"}
no event
`
	for _, tt := range []struct {
		rest, want string
		ok         bool
	}{
		{"", "no event\nsaid\n", false},
		{`{"Action":"pass","Package":"m/a","Test":"TestA","Elapsed":1.5}
{"Action":"pass","Package":"m/a"}`, "no event\nthe 1 slowest tests:\n    1.50s  TestA  m/a\n", true},
	} {
		var out strings.Builder
		if ok, err := run(strings.NewReader(begin+tt.rest), &out, false, 20); ok != tt.ok || err != nil || out.String() != tt.want {
			t.Errorf("%v, %v, %q", ok, err, out.String())
		}
	}
}
