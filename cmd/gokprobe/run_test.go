package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

func TestRunExitsAsItsProgramDoes(t *testing.T) {
	for _, c := range []struct {
		name   string
		script string
		status int
	}{
		{"success", "exit 0", 0},
		{"a status", "exit 3", 3},
		{"a signal", "kill -9 $$", 128 + 9},
		{"the target is terminated", "kill $$", 128 + 15},
	} {
		r := gokprobe(t, "run", "-sym", "getpid", "-count", "--", "sh", "-c", c.script)
		if r.status != c.status || !strings.Contains(r.stdout, "-all-rows prints all\n") && !strings.Contains(r.stdout, "getpid") || !strings.HasPrefix(r.stderr, "armed: 1 probe in ") {
			t.Errorf("%s: status %d, not %d; stdout %q, stderr %q", c.name, r.status, c.status, r.stdout, r.stderr)
		}
	}
}

func TestRunPassesTheStandardFilesThrough(t *testing.T) {
	cmd := command(t, "run", "-sym", "exit", "-o", filepath.Join(t.TempDir(), "hits"), "--", "sh", "-c", "cat; echo problem >&2")
	cmd.Stdin = strings.NewReader("some input\n")
	r := finish(t, cmd)
	if r.status != 0 || r.stdout != "some input\n" || !strings.Contains(r.stderr, "\nproblem\n") {
		t.Errorf("status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
	}
}

func TestRunProbesFromTheFirstInstruction(t *testing.T) {
	cmd := command(t, "run", "-sym", "main", "-sym", "foo", "-args", "-format", "json", "--", testprog.Build(t, "prey"))
	cmd.Stdin = strings.NewReader("call foo 3\ncall foo 4\n")
	r := finish(t, cmd)
	var ours []string
	for line := range strings.Lines(r.stdout) {
		if strings.HasPrefix(line, "{") {
			ours = append(ours, line)
		}
	}
	hits, sum := records(t, strings.Join(ours, ""))
	if len(hits) != 3 || hits[0].Probe != "main" || string(hits[1].Args) != `{"v":3}` || string(hits[2].Args) != `{"v":4}` {
		t.Errorf("hits %+v", hits)
	}
	if len(sum.Probes) != 2 || sum.Probes[1].Hits != 2 || r.status != 0 {
		t.Errorf("status %d, summary %+v", r.status, sum)
	}
	if !strings.Contains(r.stdout, "ret 7\n") || !strings.Contains(r.stdout, "ret 9\n") {
		t.Errorf("the target prints %q", r.stdout)
	}
}

func TestRunTellsWhatTheDynamicLinkerDidUnseen(t *testing.T) {
	for _, c := range []struct{ sym, warning string }{
		{"ld-linux-x86-64.so.2:_dl_map_object", "gokprobe: 1 probe of the dynamic linker, which has loaded the libraries already: what it did until now is not seen\n"},
		{"main", ""},
	} {
		cmd := command(t, "run", "-sym", c.sym, "-count", "-all-rows", "--", testprog.Build(t, "prey"))
		cmd.Stdin = strings.NewReader("call foo 3\n")
		r := finish(t, cmd)
		if before, _, armed := strings.Cut(r.stderr, "armed: 1 probe in "); !armed || before != c.warning || r.status != 0 {
			t.Errorf("%s: status %d, stderr %q, not %q before it is armed", c.sym, r.status, r.stderr, c.warning)
		}
		if !strings.Contains(r.stdout, "ret 7\n") {
			t.Errorf("%s: the target prints %q", c.sym, r.stdout)
		}
	}
}

// unloadable builds a program one of whose libraries is missing.
func unloadable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	lib, prog := filepath.Join(dir, "libgone.so"), filepath.Join(dir, "prog")
	for _, args := range [][]string{{"-shared", "-o", lib}, {"-Wl,--no-as-needed", "-o", prog, lib}} {
		cc := exec.Command("gcc", append([]string{"-x", "c", "-", "-x", "none"}, args...)...)
		cc.Stdin = strings.NewReader("int main(void) { return 0; }\n")
		if out, err := cc.CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v: %s", err, out)
		}
	}
	if err := os.Remove(lib); err != nil {
		t.Fatal(err)
	}
	return prog
}

// TestRunEndsAsAProgramThatIsNotLoaded: a library is missing. The dynamic linker says so, and its status is ours.
func TestRunEndsAsAProgramThatIsNotLoaded(t *testing.T) {
	prog := unloadable(t)
	r := finish(t, command(t, "run", "-sym", "main", "--", prog))
	if r.status != 127 || !strings.Contains(r.stderr, "libgone.so: cannot open") || !strings.Contains(r.stderr, "it has ended before it was loaded, with exit status 127\n") {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
}

func TestRunWaitsForAProgramThatItHasLetGo(t *testing.T) {
	for _, c := range []struct {
		args          []string
		before, after string // what the target reads before and after the detach
		status        int
		printed       string
	}{
		{[]string{"-sym", "foo", "--", testprog.Build(t, "prey")}, "call foo 1\ncall foo 2\n", "call foo 3\n", 0, "right\n"},
		{[]string{"-sym", "getpid", "-sym", "getppid", "--", "sh", "-c", "read x; echo $x; kill -9 $$"}, "", "late\n", 128 + 9, "late\n"},
	} {
		in, feed, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		cmd := command(t, append([]string{"run", "-max-hits", "2", "-o", filepath.Join(t.TempDir(), "hits")}, c.args...)...)
		cmd.Stdin, cmd.Stdout = in, &out
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		in.Close()
		if _, err := feed.WriteString(c.before); err != nil {
			t.Fatal(err)
		}
		readUntil(t, stderr, "MECHANISM") // the summary: it has detached
		if _, err := feed.WriteString(c.after); err != nil {
			t.Fatal(err)
		}
		feed.Close()
		_ = cmd.Wait()
		if status := cmd.ProcessState.ExitCode(); status != c.status || !strings.HasSuffix(out.String(), c.printed) {
			t.Errorf("%v: status %d, not %d; the target prints %q", c.args, status, c.status, out.String())
		}
	}
}

func readUntil(t *testing.T, r io.Reader, word string) {
	t.Helper()
	var said []byte
	for !bytes.Contains(said, []byte(word)) {
		b := make([]byte, 1024)
		n, err := r.Read(b)
		if err != nil {
			t.Fatalf("%v after %s", err, said)
		}
		said = append(said, b[:n]...)
	}
}

func TestRunPassesTerminationOn(t *testing.T) {
	l := start(t, "run", "-sym", "getpid", "-count", "--", "sh", "-c", "trap 'exit 5' TERM; echo trapped; while :; do read x; done")
	if got := l.line(); got != "trapped" {
		t.Fatalf("the target prints %q", got)
	}
	l.signal(syscall.SIGTERM)
	if r := l.end(); r.status != 5 {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
}

// TestTheSummaryTellsWhereALaterProgramHadAName: only a child that has ended had the place.
func TestTheSummaryTellsWhereALaterProgramHadAName(t *testing.T) {
	for _, c := range []struct{ flag, mechanism string }{
		{"-no-boost", `int3 \(boosting is turned off\)`},
		{"-no-optimize", `boosted`},
		{"-args", `(boosted \(.+\)|optimized)`}, // by what processors can do
	} {
		cmd := command(t, "run", "-follow", "-sym", "foo", c.flag, "--", "sh", "-c", testprog.Build(t, "prey")+"; true")
		cmd.Stdin = strings.NewReader("call foo 3\ncall foo 4\n")
		r := finish(t, cmd)
		row := regexp.MustCompile(`(?m)^foo  +kprobe  +0x[1-9a-f][0-9a-f]+  +foo\+0x[04]  +2  +0  +` + c.mechanism + `$`)
		if r.status != 0 || !row.MatchString(r.stdout+r.stderr) {
			t.Errorf("%s: status %d, stdout %q, stderr %q; want a row as %s", c.flag, r.status, r.stdout, r.stderr, row)
		}
	}
}

func TestRunLetsNothingRunThatItCannotProbe(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "marker")
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		args   []string
		status int
		want   string
	}{
		{"unknown symbol", []string{"-sym", "no_such_function_here", "--", "touch", marker}, 4, "unknown symbol"},
		{"no such program", []string{"-sym", "main", "--", "no-such-program-here"}, 2, "cannot run no-such-program-here: executable file not found"},
		{"not executable", []string{"-sym", "main", "--", text}, 2, "permission denied"},
		{"no program", []string{"-sym", "main"}, 2, "no command given"},
	} {
		r := gokprobe(t, append([]string{"run"}, c.args...)...)
		if r.status != c.status || r.stdout != "" || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: status %d, stdout %q, stderr %q", c.name, r.status, r.stdout, r.stderr)
		}
		oneSentence(t, r)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the target ran")
	}
}
