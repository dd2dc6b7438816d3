package realprog

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// timeAndThread are the columns that differ from run to run.
var timeAndThread = regexp.MustCompile(`(?m)^\S+ +(\S+)-\d+ +`)

// TestTheSameSeedFailsTheSameCalls: a single-threaded program is run several times under the same rules,
// with jumps and with breakpoints, and the lists of its failed calls are identical; with another seed they are not.
func TestTheSameSeedFailsTheSameCalls(t *testing.T) {
	tools := requires(t, "sqlite3", "go")
	dir := t.TempDir()
	gokprobe := filepath.Join(dir, "gokprobe")
	output(t, "", tools[1], "build", "-o", gokprobe, "../../cmd/gokprobe")
	base := ledger(t, tools[0], filepath.Join(dir, "base"), "DELETE")
	failed := func(seed string, flags ...string) string {
		db, list := filepath.Join(dir, "db"), filepath.Join(dir, "list")
		write(t, db, string(base))
		args := append([]string{gokprobe, "inject", "-seed", seed, "-probability", "5%", "-errno", "ENOSPC",
			"-sym", "libc.so.6:pwrite64", "-arg", "length=$arg3", "-arg", "offset=$arg4", "-o", list}, flags...)
		out, err := run(ledgerWork(), append(args, "--", tools[0], "-batch", db)...)
		if err == nil || !strings.Contains(out, "database or disk is full") { // the shell exits with 1
			t.Fatalf("%v: the shell should fail now and then: %v\n%s", args, err, out)
		}
		b, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		return timeAndThread.ReplaceAllString(string(b), "$1 ")
	}
	want := failed("7")
	if n := strings.Count(want, "\n"); n < 5 {
		t.Fatalf("%d calls have failed:\n%s", n, want)
	}
	t.Logf("\n%s", want)
	sameText(t, "again", want, failed("7"))
	sameText(t, "by breakpoints", want, failed("7", "-no-optimize"))
	sameText(t, "by breakpoints, again", want, failed("7", "-no-optimize"))
	if failed("8") == want {
		t.Error("another seed lets the same calls fail")
	}
}
