package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNothingIsWrittenIntoAFileInTheNumberOfAClosedOne: where stdin, stdout or stderr are closed, no file that is opened gets their numbers (Go's runtime opens
// /dev/null for them before anything else), so neither messages nor reports are in it.
func TestNothingIsWrittenIntoAFileInTheNumberOfAClosedOne(t *testing.T) {
	p := prey(t)
	file := filepath.Join(t.TempDir(), "out")
	for _, closed := range []string{">&-", "2>&-", "<&- >&- 2>&-"} {
		cmd := exec.Command("sh", "-c", `exec "$0" "$@" `+closed, program, "attach", "-p", pidOf(p), "-sym", "foo", "-max-hits", "1", "-format", "json", "-o", file)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		over := false
		for !over {
			p.Do("call foo 3", "ret 7") // until it is armed
			select {
			case err := <-ended:
				if over = true; err != nil {
					t.Errorf("%s: %v", closed, err)
				}
			default:
			}
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if hits, _ := records(t, string(text)); len(hits) != 1 || strings.Contains(string(text), "armed") {
			t.Errorf("%s: the file has %q", closed, text)
		}
		p.CheckClean()
	}
}
