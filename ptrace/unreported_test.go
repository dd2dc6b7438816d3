package ptrace

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestAFreezeHasStoppedThreadsReport: a thread has a trap to report and stops for something else first, while another thread is waited
// for. The next Freeze finds it stopped.
func TestAFreezeHasStoppedThreadsReport(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "prey"))
	tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
	defer tr.Close()
	whileHeld(t, tr, func() {}, func() error {
		th := p.Leader()
		if err := stopWithTrap(th); err != nil {
			return err
		}
		if th.at.stop.Reason != Interrupt || !th.unreported() {
			t.Errorf("the thread has stopped for %v, and has nothing to report", th.at.stop.Reason)
		}
		tr.enqueue(th)
		return p.Space.Freeze(func(*Frozen) error {
			if th.at.stop.Reason != Signal || th.at.stop.Signal != unix.SIGTRAP || !th.queued {
				t.Errorf("the thread has stopped for %v (signal %d), queued: %v", th.at.stop.Reason, th.at.stop.Signal, th.queued)
			}
			th.queued = false // the program would die of it
			return nil
		})
	})
	whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// stopWithTrap stops a thread that has been sent SIGTRAP, before it reports that.
func stopWithTrap(th *Thread) error {
	await := func() error { return th.Proc.tracer.await(th) }
	if err := th.interrupt(); err != nil {
		return err
	}
	if err := await(); err != nil {
		return err
	}
	if err := unix.Tgkill(th.Proc.PID, th.TID, unix.SIGTRAP); err != nil {
		return err
	}
	if err := th.interrupt(); err != nil {
		return err
	}
	th.cont(unix.PTRACE_CONT, 0)
	return await()
}
