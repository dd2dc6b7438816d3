// Package examples runs every example on its sample and compares what it prints
// with its want.txt.
package examples

import (
	"bufio"
	"bytes"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite want.txt")

// ready is what an example prints first when its probe is in place.
const ready = "planted "

func TestEveryExamplePrintsWhatItShould(t *testing.T) {
	mains, err := filepath.Glob("*/main.go")
	if err != nil || len(mains) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range mains {
		dir := filepath.Dir(file)
		t.Run(dir, func(t *testing.T) {
			compare(t, filepath.Join(dir, "want.txt"), mask(runExample(t, dir)))
		})
	}
}

// compare fails t unless the file want holds got, or writes it with -update.
func compare(t *testing.T, want, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(want, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(text) {
		t.Errorf("the example prints\n%s\nand not, as want.txt,\n%s", got, text)
	}
}

// runExample probes dir's sample with dir's example and returns what that prints.
func runExample(t *testing.T, dir string) string {
	t.Helper()
	tmp := t.TempDir()
	sample, example := filepath.Join(tmp, "sample"), filepath.Join(tmp, "example")
	build(t, "gcc", "-O1", "-g", "-pthread", "-o", sample, filepath.Join(dir, "testdata", "sample.c"))
	build(t, "go", "build", "-o", example, "./"+dir)

	target := exec.Command(sample)
	in, hear := start(t, target)
	if line, _, _ := hear.ReadLine(); string(line) != "ready" {
		t.Fatalf("the sample says %q instead of ready", line)
	}
	probing := exec.Command(example, "-p", strconv.Itoa(target.Process.Pid))
	_, out := start(t, probing)
	first, err := out.ReadString('\n')
	if err != nil || !strings.HasPrefix(first, ready) {
		t.Fatalf("the example says %q first, not %q", first, ready)
	}
	if _, err := io.WriteString(in, "once\ntwice\n"); err != nil {
		t.Fatal(err)
	}
	in.Close() // the sample exits, so the example ends
	rest, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := probing.Wait(); err != nil {
		t.Errorf("the example: %v", err)
	}
	if err := target.Wait(); err != nil {
		t.Errorf("the sample was disturbed: %v", err)
	}
	return first + string(rest)
}

// start runs cmd and ends it with the test at the latest.
func start(t *testing.T, cmd *exec.Cmd) (io.WriteCloser, *bufio.Reader) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if stderr.Len() > 0 {
			t.Errorf("%s prints on stderr: %s", filepath.Base(cmd.Path), &stderr)
		}
	})
	return in, bufio.NewReader(out)
}

func build(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// volatile is addresses, and flags that the instructions before the probe left; elapsed is
// durations.
var (
	volatile = regexp.MustCompile(`(flags = )0x[0-9a-f]+|0x[0-9a-f]{5,}`)
	elapsed  = regexp.MustCompile(`[0-9]+ ns`)
)

// mask hides what differs from run to run and from compiler to compiler.
func mask(s string) string {
	return elapsed.ReplaceAllString(volatile.ReplaceAllString(s, "${1}0x…"), "… ns")
}
