package kprobes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rules are the rows of CONFORMANCE.md: what is checked, and by what.
func rules(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("CONFORMANCE.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z]\d+) \|[^|]+\| ([^|]+) \|$`).FindAllStringSubmatch(string(text), -1) {
		if found[m[1]] != "" {
			t.Errorf("%s is listed twice", m[1])
		}
		found[m[1]] = m[2]
	}
	return found
}

// TestConformanceListsEveryRule, each with a test or a reason.
func TestConformanceListsEveryRule(t *testing.T) {
	found := rules(t)
	for _, r := range []struct {
		letter      string
		first, last int
	}{{"A", 1, 64}, {"B", 1, 34}, {"B", 38, 46}} {
		for i := r.first; i <= r.last; i++ {
			name := fmt.Sprintf("%s%d", r.letter, i)
			how := found[name]
			reason := slices.ContainsFunc([]string{"kernel only", "not yet"}, func(r string) bool { return strings.Contains(how, r) })
			if !reason && !strings.Contains(how, "`Test") && !strings.Contains(how, ":Test") {
				t.Errorf("%s: %q names no test and no reason", name, how)
			}
		}
	}
}

// TestConformanceNamesTestsThatExist, in the package that they are said to be in.
func TestConformanceNamesTestsThatExist(t *testing.T) {
	named := 0
	for rule, how := range rules(t) {
		for _, m := range regexp.MustCompile("`(?:([a-z0-9/]+):)?(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(how, -1) {
			named++
			if dir := filepath.Join("..", m[1]); m[1] == "" && !hasTest(t, ".", m[2]) || m[1] != "" && !hasTest(t, dir, m[2]) {
				t.Errorf("%s: there is no %s", rule, m[0])
			}
		}
	}
	if named < 60 {
		t.Errorf("only %d tests are named", named)
	}
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
