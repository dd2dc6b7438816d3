package layers

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTestsThatArchitectureNamesAreThere: a claim in ARCHITECTURE.md with a test's name beside
// it stays proven. A name that ends in … stands for all that begin so.
func TestTestsThatArchitectureNamesAreThere(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		tests.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)(…?)`").FindAllStringSubmatch(string(doc), -1)
	if len(named) < 10 {
		t.Errorf("only %d tests are named", len(named))
	}
	for _, m := range named {
		end := "("
		if m[2] != "" {
			end = ""
		}
		if !strings.Contains(tests.String(), "func "+m[1]+end) {
			t.Errorf("ARCHITECTURE.md names %s, which is no test", m[1])
		}
	}
}

// TestFunctionsOfTheJourneysAreThere: each numbered step that ARCHITECTURE.md draws is a
// function in the file beside it.
func TestFunctionsOfTheJourneysAreThere(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	steps := regexp.MustCompile(`(?m)^ │ \d (\w+) +(\S+\.go) `).FindAllStringSubmatch(string(doc), -1)
	if len(steps) < 20 {
		t.Errorf("only %d steps are drawn", len(steps))
	}
	for _, m := range steps {
		src, err := os.ReadFile(filepath.Join(root, m[2]))
		if err != nil {
			t.Error(err)
			continue
		}
		if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + m[1] + `\(`).Match(src) {
			t.Errorf("ARCHITECTURE.md draws the step %s in %s, which has no such function", m[1], m[2])
		}
	}
}

// TestCorporaHaveTheirFuzzTargets: what was found by a fuzz target is read only where that target is, so it moves with it. And each target has some.
func TestCorporaHaveTheirFuzzTargets(t *testing.T) {
	target := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(f \*testing\.F\)`)
	want := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range target.FindAllSubmatch(b, -1) {
			want[filepath.Join(filepath.Dir(path), "testdata", "fuzz", string(m[1]))] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Base(filepath.Dir(path)) != "fuzz" || !e.IsDir() {
			return err
		}
		if !want[path] {
			t.Errorf("%s belongs to no fuzz target", path)
		}
		delete(want, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range want {
		t.Errorf("there is no %s", path)
	}
}
