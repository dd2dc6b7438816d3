package ptrace

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestSignalsWaitInTheKernelWhileTheirStopsDo: threads have stopped for signals, and the tracer takes these stops but can't deal with them yet. If it were killed now, the
// kernel would forget a signal whose stop was taken: so it is pending again.
func TestSignalsWaitInTheKernelWhileTheirStopsDo(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "threads"), "3")
	prog.Send("start")
	tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
	defer tr.Close()
	whileHeld(t, tr, func() {
		for _, tid := range tids(t, prog.PID()) {
			if err := unix.Tgkill(prog.PID(), tid, unix.SIGURG); err != nil {
				t.Fatal(err)
			}
			for stops := false; !stops; {
				st, err := procfs.ReadStatus(prog.PID(), tid)
				if err != nil {
					t.Fatal(err)
				}
				stops = st.State == 't'
			}
		}
	}, func() error {
		return p.Space.Freeze(func() error {
			for _, th := range p.Threads() {
				st, err := procfs.ReadStatus(p.PID, th.TID)
				if err != nil {
					return err
				}
				if taken := tr.unreaped != th.TID; taken != st.SigPnd.Has(int(unix.SIGURG)) {
					t.Errorf("thread %d: its stop was taken: %t; signals that wait in the kernel: %x", th.TID, taken, st.SigPnd)
				}
			}
			return nil
		})
	})
	whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
	prog.CheckClean()
	prog.Do("stop", "calls")
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

func tids(t *testing.T, pid int) []int {
	t.Helper()
	list, err := procfs.Tasks(pid)
	if err != nil {
		t.Fatal(err)
	}
	return list
}
