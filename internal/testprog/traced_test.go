//go:build linux

package testprog

import (
	"errors"
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

// leaveRegion maps a memfd named as gokprobe's twice into this process, r-x and
// rw-, and returns what undoes it.
func leaveRegion(t *testing.T) func() {
	t.Helper()
	fd, err := unix.MemfdCreate("gokprobe", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	var maps [2][]byte
	for i, prot := range []int{unix.PROT_READ | unix.PROT_EXEC, unix.PROT_READ | unix.PROT_WRITE} {
		if maps[i], err = unix.Mmap(fd, 0, 4096, prot, unix.MAP_SHARED); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := errors.Join(unix.Munmap(maps[0]), unix.Munmap(maps[1]), unix.Close(fd)); err != nil {
			t.Error(err)
		}
	}
}
