package kprobes_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestContinuedProcessesRun: whatever the tracer does while a process is stopped and continued at once, with probes that come
// and go and memory that is mapped, it runs afterwards, and probes are hit.
func TestContinuedProcessesRun(t *testing.T) {
	const rounds = 20
	prog := start(t, "threads", "8")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := counting("foo")
	register(t, s, kp)
	for range rounds {
		prog.Send("start")
		changed := make(chan error)
		go func() { changed <- restless(s) }()
		for range 5 {
			for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGWINCH, unix.SIGCONT} {
				ok(t, prog.Signal(sig))
			}
		}
		ok(t, <-changed)
		prog.Do("stop", "calls")
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// restless freezes the process and makes system calls in it.
func restless(s *kprobes.Session) error {
	for i := range 4 {
		kp := counting("main")
		if err := s.RegisterKprobe(kp); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		at, err := s.Alloc(4096)
		if err != nil {
			return err
		}
		if err := s.Free(at, 4096); err != nil {
			return err
		}
		if err := s.UnregisterKprobe(kp); err != nil {
			return err
		}
	}
	return nil
}
