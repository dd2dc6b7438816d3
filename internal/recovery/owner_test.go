package recovery

import (
	"os"
	"strconv"
	"testing"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/trampoline"
)

// TestTheOwnerInAJournalIsBelievedOnlyIfItTraces: a program says that process 1, or this one, has probed it. Nobody is told to end that.
func TestTheOwnerInAJournalIsBelievedOnlyIfItTraces(t *testing.T) {
	for _, pid := range []int{1, os.Getpid()} {
		st, err := procfs.ReadStat(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		prog := testprog.Start(t, testprog.Build(t, "forgedowner"), strconv.Itoa(pid), strconv.FormatUint(st.StartTime, 10), strconv.FormatUint(PIDNamespace(), 10), strconv.Itoa(trampoline.Version))
		if r, err := Recover(t.Context(), prog.PID(), Options{}); err != nil || r.Regions == 0 {
			t.Errorf("an owner that is process %d: %+v, %v", pid, r, err)
		}
		prog.CheckClean()
		if got := prog.Quit(); got != "right" {
			t.Errorf("the program says %q", got)
		}
	}
}
