package ptrace

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestAnIdentityIsOfOneProcess, found by the number of any of its threads; it ends with the process, also where the kernel has only start times to tell.
func TestAnIdentityIsOfOneProcess(t *testing.T) {
	for _, old := range []bool{false, true} {
		prog := testprog.Start(t, testprog.Build(t, "threads"), "2")
		for _, tid := range tids(t, prog.PID()) {
			id := must2(Identify(tid))
			if old {
				id.Close()
			} else {
				id.start = 0 // which is not asked for where there is more to tell
			}
			if err := id.Still(); err != nil || id.PID() != prog.PID() {
				t.Errorf("by number %d it is %d, %v", tid, id.PID(), err)
			}
			defer func() {
				for range 2 {
					if err := id.Still(); !errors.Is(err, unix.ESRCH) {
						t.Errorf("it has ended: %v", err)
					}
					id.start = 0
				}
				id.Close()
			}()
		}
		prog.Kill()
	}
	if id, err := Identify(1 << 30); id != nil || !errors.Is(err, unix.ESRCH) {
		t.Errorf("nobody is %v, %v", id, err)
	}
	(*Identity)(nil).Close()
}

// TestAnotherProcessOfTheSameNumberIsNotTheOneThatWasIdentified.
func TestAnotherProcessOfTheSameNumberIsNotTheOneThatWasIdentified(t *testing.T) {
	id := must2(Identify(os.Getpid()))
	defer id.Close()
	other := exec.Command("/proc/self/exe", "-test.run=^$")
	must(other.Run())
	gone := &Identity{pid: os.Getpid(), fd: -1, start: id.start - 1}
	if err := id.Still(); err != nil {
		t.Errorf("we have ended: %v", err)
	}
	if err := gone.Still(); !errors.Is(err, unix.ESRCH) {
		t.Errorf("one that began at another time is still there: %v", err)
	}
	if err := (&Identity{pid: other.Process.Pid, fd: -1}).Still(); !errors.Is(err, unix.ESRCH) {
		t.Errorf("one that has ended is still there: %v", err)
	}
}
