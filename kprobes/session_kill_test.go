package kprobes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestTargetIsKilledWhileAttaching: SIGKILL comes while the session attaches or reads the
// symbols, or soon after. Every call returns, its error is ESRCH, and Close has none.
func TestTargetIsKilledWhileAttaching(t *testing.T) {
	rounds := testsize.Rounds(10, 50, 200)
	for i := range rounds {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			prog := start(t, "busy64", "8")
			pid := prog.PID()
			go killLater(pid, rand.IntN(1000))
			if err := probeUntilError(pid); !errors.Is(err, unix.ESRCH) {
				t.Errorf("%v, want ESRCH", err)
			}
			prog.Kill()
		})
		if t.Failed() {
			return
		}
	}
}

// killLater kills the process after so many looks at it.
func killLater(pid, looks int) {
	for range looks {
		_, _ = procfs.ReadStat(pid, 0)
	}
	_ = unix.Kill(pid, unix.SIGKILL)
}

// probeUntilError returns the first error of a session that registers and unregisters
// without end, or that of its Close, which must have none.
func probeUntilError(pid int) error {
	s, err := kprobes.Attach(context.Background(), pid, kprobes.Options{})
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	kp := boosted.probe("foo")
	for err == nil {
		kp.Addr, kp.Flags = 0, 0
		if err = s.RegisterKprobe(kp); err == nil {
			err = s.UnregisterKprobe(kp)
		}
	}
	if closing := s.Close(); closing != nil {
		return fmt.Errorf("close: %w", closing)
	}
	return err
}

// TestSessionsLeaveNothingBehind: descriptors, goroutines and child processes of the
// tracer are no more after 100 sessions than after the first. (Fewer they may be: of tests before something is closed late.)
func TestSessionsLeaveNothingBehind(t *testing.T) {
	prog := start(t, "threads", "4")
	once := func() {
		s, err := kprobes.Attach(context.Background(), prog.PID(), kprobes.Options{})
		if err != nil {
			t.Fatal(err)
		}
		register(t, s, boosted.probe("foo"))
		closeSession(t, s)
	}
	once()
	before := ownings(t)
	for range 100 {
		once()
	}
	testprog.Await(t, fmt.Sprintf("a tracer with no more than %+v after 100 sessions", before), func() bool { // goroutines may be about to end
		after := ownings(t)
		return after.descriptors <= before.descriptors && after.goroutines <= before.goroutines && len(after.children) <= len(before.children)
	})
	prog.CheckClean()
	wantRight(t, prog)
}

// owned is what a process has. Idle threads of the Go runtime come and go.
type owned struct {
	descriptors, goroutines int
	children                []int
}

// ownings counts what this process has.
func ownings(t *testing.T) owned {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	tids, err := procfs.Tasks(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var children []int
	for _, tid := range tids {
		of, err := procfs.Children(os.Getpid(), tid)
		if err != nil && !procfs.Gone(err) {
			t.Fatal(err)
		}
		children = append(children, of...)
	}
	slices.Sort(children)
	return owned{len(fds), runtime.NumGoroutine(), children}
}
