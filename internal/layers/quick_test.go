package layers

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTestsOfMakeQuickAreThere: a test that is renamed or moves to another room would
// silently no longer run.
func TestTestsOfMakeQuickAreThere(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, "scripts/quick"))
	if err != nil {
		t.Fatal(err)
	}
	listed := regexp.MustCompile(`(?m)^(\S+) (Test\S+)$`).FindAllStringSubmatch(string(script), -1)
	if len(listed) < 30 {
		t.Errorf("only %d tests are listed", len(listed))
	}
	seen := map[string]bool{}
	for _, m := range listed {
		if seen[m[0]] {
			t.Errorf("%s is listed twice", m[0])
		}
		seen[m[0]] = true
		if !strings.Contains(testsOf(t, m[1]), "\nfunc "+m[2]+"(t *testing.T) {") {
			t.Errorf("scripts/quick lists %s of %s, which is no test", m[2], m[1])
		}
	}
}

// testsOf is the text of a room's tests.
func testsOf(t *testing.T, room string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, room, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b)
	}
	return text.String()
}
