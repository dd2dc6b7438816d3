package kprobes_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rule is a row of a CONFORMANCE.md: by what something is checked. Tests that name no room are in
// the file's.
type rule struct{ room, how string }

// rules are the rows of both files.
func rules(t *testing.T) map[string]rule {
	t.Helper()
	found := map[string]rule{}
	for _, room := range []string{"kprobes", "debugfs"} {
		text, err := os.ReadFile(filepath.Join("..", room, "CONFORMANCE.md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z]\d+) \|[^|]+\| ([^|]+) \|$`).FindAllStringSubmatch(string(text), -1) {
			if _, twice := found[m[1]]; twice {
				t.Errorf("%s is listed twice", m[1])
			}
			found[m[1]] = rule{room, m[2]}
		}
	}
	return found
}

// TestConformanceListsEveryRule, each with a test or a reason.
func TestConformanceListsEveryRule(t *testing.T) {
	found := rules(t)
	for _, r := range []struct {
		letter      string
		first, last int
	}{{"A", 1, 64}, {"B", 1, 46}, {"C", 1, 44}, {"F", 1, 20}, {"G", 1, 63}, {"H", 1, 20}, {"I", 1, 30}} {
		for i := r.first; i <= r.last; i++ {
			name := fmt.Sprintf("%s%d", r.letter, i)
			how := found[name].how
			reason := slices.ContainsFunc([]string{"kernel only", "not yet"}, func(r string) bool { return strings.Contains(how, r) })
			if !reason && !strings.Contains(how, "`Test") && !strings.Contains(how, ":Test") {
				t.Errorf("%s: %q names no test and no reason", name, how)
			}
		}
	}
}

// named is a test that CONFORMANCE.md names.
type named struct {
	room, test string // "kprobes", "TestX"
	rule       string
}

func namedTests(t *testing.T) (tests []named) {
	t.Helper()
	for name, r := range rules(t) {
		for _, m := range regexp.MustCompile("`(?:([a-z0-9/]+):)?(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(r.how, -1) {
			tests = append(tests, named{cmp.Or(m[1], r.room), m[2], name})
		}
	}
	if len(tests) < 150 {
		t.Errorf("only %d tests are named", len(tests))
	}
	return tests
}

// TestConformanceNamesTestsThatExist, in the package that they are said to be in.
func TestConformanceNamesTestsThatExist(t *testing.T) {
	for _, n := range namedTests(t) {
		if !hasTest(t, filepath.Join("..", n.room), n.test) {
			t.Errorf("%s: there is no %s in %s", n.rule, n.test, n.room)
		}
	}
}

// TestConformanceMissesWhatHasNotRun: scripts/check-conformance accepts the log of a run of all
// that is named, and fails with the name of what was skipped, failed, or ran elsewhere only.
func TestConformanceMissesWhatHasNotRun(t *testing.T) {
	logs := map[string]map[string]bool{}
	tests := namedTests(t)
	for _, n := range tests {
		if logs[n.room] == nil {
			logs[n.room] = map[string]bool{}
		}
		logs[n.room][n.test] = true
	}
	check := func(log string) (string, error) {
		cmd := exec.Command("../scripts/check-conformance")
		cmd.Stdin = strings.NewReader(log)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	whole := logOf(logs, "", "")
	if out, err := check(whole); err != nil {
		t.Errorf("a whole run: %v\n%s", err, out)
	}
	one := tests[0].test
	passed := "--- PASS: " + one + " (0.01s)\n"
	for _, log := range []string{
		strings.Replace(whole, passed, "", 1),
		strings.Replace(whole, passed, "--- SKIP: "+one+" (0.01s)\n", 1),
		strings.Replace(whole, passed, "    --- PASS: TestOther/"+one+" (0.01s)\n", 1),
		strings.Replace(whole, passed, "", 1) + passed + "ok  \t" + modulePath + "/other\t0.1s\n",
		logOf(logs, tests[0].room, "FAIL"),
		"",
	} {
		if out, err := check(log); err == nil || !strings.Contains(out, one+" has not run") {
			t.Errorf("without %s: %v\n%s", one, err, out)
		}
	}
}

const modulePath = "github.com/gokprobe/gokprobe"

// logOf is what go test -v prints of tests that pass, but for the last line of the room other.
func logOf(logs map[string]map[string]bool, other, end string) string {
	var b strings.Builder
	for room, tests := range logs {
		for name := range tests {
			fmt.Fprintf(&b, "=== RUN   %s\nok  \tsays the program\n--- PASS: %s (0.01s)\nok  \tso it does\n", name, name)
		}
		last := "ok  "
		if room == other {
			last = end
		}
		fmt.Fprintf(&b, "PASS\n%s\t%s/%s\t1.234s\n", last, modulePath, room)
	}
	return b.String()
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
