package hostile

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestForgedRegionsHarmNobody: programs in which there is as much to be undone as they can make it, of each kind. What recovers them ends, within the limits for a
// file, leaves them alone, and says what is forged.
func TestForgedRegionsHarmNobody(t *testing.T) {
	bin := testprog.Build(t, "forger")
	for _, kind := range []string{"records", "detours", "resume", "stacks", "loops", "all"} {
		t.Run(kind, func(t *testing.T) {
			prog := testprog.Start(t, bin, kind)
			defer prog.Kill()
			c, err := start(t).read(fmt.Sprint(recoverCommand, prog.PID()))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%v, %d MB: %s", c.time, c.memory/1_000_000, c.said)
			if !strings.Contains(c.said, "it is forged") {
				t.Errorf("it said %q", c.said)
			}
			if told := strings.Contains(c.said, "Patches:0 "); told == (kind == "records" || kind == "all") {
				t.Errorf("it said %q", c.said) // the text is put back first
			}
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", prog.PID()))
			must(t, err)
			if !strings.Contains(string(status), "TracerPid:\t0\n") {
				t.Errorf("it is traced:\n%s", status)
			}
		})
	}
}
