package examples

import (
	"io"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestExamplesEndCleanlyOnSignals: whichever signal ends an example, its sample is as it was found and goes on.
func TestExamplesEndCleanlyOnSignals(t *testing.T) {
	tmp := t.TempDir()
	sample, example := filepath.Join(tmp, "sample"), filepath.Join(tmp, "example")
	build(t, "gcc", "-O1", "-g", "-pthread", "-o", sample, filepath.Join("kprobe", "testdata", "sample.c"))
	build(t, "go", "build", "-o", example, "./kprobe")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			target := exec.Command(sample)
			in, hear := start(t, target)
			if line, _, _ := hear.ReadLine(); string(line) != "ready" {
				t.Fatalf("the sample says %q instead of ready", line)
			}
			probing := exec.Command(example, "-p", strconv.Itoa(target.Process.Pid))
			_, out := start(t, probing)
			if first, err := out.ReadString('\n'); err != nil {
				t.Fatalf("the example says %q: %v", first, err)
			}
			if err := probing.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if signal.Ignored(sig) { // the tests run under nohup, and so does the example: it goes on
				if err := probing.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := io.Copy(io.Discard, out); err != nil {
				t.Fatal(err)
			}
			if err := probing.Wait(); err != nil {
				t.Errorf("the example ends with %v", err)
			}
			testprog.CheckClean(t, target.Process.Pid)
			if _, err := io.WriteString(in, "once\ntwice\n"); err != nil {
				t.Fatal(err)
			}
			in.Close()
			if err := target.Wait(); err != nil {
				t.Errorf("the sample was disturbed: %v", err)
			}
		})
	}
}
