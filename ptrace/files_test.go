package ptrace

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTooFewOpenFilesAreRefused: with a low limit processes would be taken for gone, and programs for stripped.
func TestTooFewOpenFilesAreRefused(t *testing.T) {
	if os.Getenv("GOKPROBE_FEW_FILES") != "" {
		tr, err := New()
		if tr != nil || !errors.Is(err, unix.EMFILE) {
			t.Errorf("with few files there is a tracer: %v", err)
		}
		t.Log(err)
		return
	}
	if err := roomForFiles(); err != nil {
		t.Errorf("with the usual limit: %v", err)
	}
	again := exec.Command("sh", "-c", `ulimit -n 20 && exec "$0" "$@"`, "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	again.Args[3] = self
	again.Env = append(os.Environ(), "GOKPROBE_FEW_FILES=1")
	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "no more than 20 files may be open") {
		t.Errorf("%v: %s", err, out)
	}
}
