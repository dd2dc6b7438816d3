package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestEveryFaultExamplePrintsWhatItShould runs the examples of injected faults, each by its script.
func TestEveryFaultExamplePrintsWhatItShould(t *testing.T) {
	runs, err := filepath.Glob("fault/*/run")
	if err != nil || len(runs) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	gokprobe := filepath.Join(t.TempDir(), "gokprobe")
	build(t, "go", "build", "-o", gokprobe, "../cmd/gokprobe")
	for _, run := range runs {
		dir := filepath.Dir(run)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			cmd := exec.Command("fault/try", filepath.Base(dir))
			cmd.Env = append(os.Environ(), "GOKPROBE="+gokprobe)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("the example: %v", err)
			}
			compare(t, filepath.Join(dir, "want.txt"), maskFault(string(out)))
		})
	}
}

// What differs from run to run in what gokprobe prints of faults.
var varying = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\.\d{9}\b`), "00:00:00.000000000"},
	{regexp.MustCompile(`(?m)^gokprobe: .* the compiler has inlined .*\n`), ""}, // where the C library has debug information
	{regexp.MustCompile(`(armed: .* in )\d+`), "${1}PID"},
	{regexp.MustCompile(`\b(sample|ledger)-\d+ *`), "$1-PID "},
	{regexp.MustCompile(`\b(seed:?) \d+`), "$1 N"},
	{regexp.MustCompile(`\b(boosted|optimized)\b.*`), "…"}, // a short program may end before there are jumps
	{regexp.MustCompile(`\b(time|timestamp)="[^"]*"`), `$1="…"`},
	{regexp.MustCompile(`(took|duration) ?\d[^ ]*`), "$1 …"},
}

func maskFault(s string) string {
	s = mask(s)
	for _, v := range varying {
		s = v.what.ReplaceAllString(s, v.as)
	}
	return s
}
