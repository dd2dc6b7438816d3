//go:build linux

package testprog

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// traced runs f while a thread of this process traces the leader of process pid.
func traced(t *testing.T, pid int, f func(tracer int)) {
	t.Helper()
	runtime.LockOSThread() // ptrace requests must come from one thread
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(pid); err != nil {
		t.Fatal(err)
	}
	f(unix.Gettid())
	if err := unix.PtraceInterrupt(pid); err != nil {
		t.Fatal(err)
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil {
		t.Fatal(err)
	}
	if err := unix.PtraceDetach(pid); err != nil {
		t.Fatal(err)
	}
}
