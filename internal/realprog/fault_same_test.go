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

// sameScenario decides twice: whether a call fails, and how.
const sameScenario = `
def fail(ctx):
    code = random.choice(["ENOSPC", "EIO"])
    report("fails", code = code, length = ctx.arg(2), offset = ctx.arg(3))
    ctx.fail(-1, errno = code)

inject("libc.so.6:pwrite64", probability = 0.05, handler = fail)
`

// TestTheSameSeedFailsTheSameCalls: a single-threaded program is run several times under the same rules, or
// under the same scenario, with jumps and with breakpoints, and the lists of its failed calls are identical; with
// another seed they are not.
func TestTheSameSeedFailsTheSameCalls(t *testing.T) {
	tools := requires(t, "sqlite3", "go")
	dir := t.TempDir()
	gokprobe, db, list := filepath.Join(dir, "gokprobe"), filepath.Join(dir, "db"), filepath.Join(dir, "list")
	output(t, "", tools[1], "build", "-o", gokprobe, "../../cmd/gokprobe")
	base := ledger(t, tools[0], filepath.Join(dir, "base"), "DELETE")
	scenario := filepath.Join(dir, "scenario.star")
	write(t, scenario, sameScenario)
	failed := func(t *testing.T, args ...string) string {
		t.Helper()
		write(t, db, string(base))
		args = append(append([]string{gokprobe}, args...), "-o", list, "--", tools[0], "-batch", db)
		out, err := run(ledgerWork(), args...)
		if err == nil || !strings.Contains(out, "database or disk is full") { // the shell exits with 1
			t.Fatalf("%v: the shell should fail now and then: %v\n%s", args, err, out)
		}
		b, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		return timeAndThread.ReplaceAllString(string(b), "$1 ")
	}
	for name, args := range map[string][]string{
		"rules":    {"inject", "-probability", "5%", "-errno", "ENOSPC", "-sym", "libc.so.6:pwrite64", "-arg", "length=$arg3", "-arg", "offset=$arg4"},
		"scenario": {"run", "-script", scenario},
	} {
		t.Run(name, func(t *testing.T) {
			seven := append(args, "-seed", "7")
			want := failed(t, seven...)
			if n := strings.Count(want, "\n"); n < 5 {
				t.Fatalf("%d calls have failed:\n%s", n, want)
			}
			t.Logf("\n%s", want)
			sameText(t, "again", want, failed(t, seven...))
			sameText(t, "by breakpoints", want, failed(t, append(seven, "-no-optimize")...))
			sameText(t, "by breakpoints, again", want, failed(t, append(seven, "-no-optimize")...))
			if failed(t, append(args, "-seed", "8")...) == want {
				t.Error("another seed lets the same calls fail")
			}
		})
	}
}
