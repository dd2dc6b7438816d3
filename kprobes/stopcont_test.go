package kprobes_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestJobControlInAStorm: the process is stopped and goes on at once, over and over, while probes come and go and memory is
// mapped; none of these makes it stop again.
func TestJobControlInAStorm(t *testing.T) {
	rounds := testsize.Rounds(2, 5, 100)
	prog := start(t, "threads", "8")
	for i := range rounds {
		m := modes[i%2]
		s := attach(t, prog.PID(), kprobes.Options{NoOptimize: i%3 == 0})
		kp := m.probe("foo")
		register(t, s, kp)
		prog.Send("start")
		for j := range 30 {
			toggle(t, s, modes[j%2].probe("main"), 1)
			at, err := s.Alloc(4096)
			ok(t, err)
			ok(t, s.Free(at, 4096))
			ok(t, prog.Signal(unix.SIGSTOP))
			ok(t, prog.Signal(unix.SIGCONT))
		}
		prog.Send("stop")
		wantHits(t, kp, number(t, prog.Expect("calls"), "calls"))
		closeSession(t, s)
		prog.CheckClean()
	}
	wantRight(t, prog)
}

// TestAShellSeesItsJobAsWithoutUs: a shell stops its job with each stop signal and has it go on, in peace and many times at once,
// while probes come and go, hits take time and call functions. It is told of each stop and continuation once, no thread runs between
// them, all do afterwards, and no run of SIGCONT's handler is lost.
func TestAShellSeesItsJobAsWithoutUs(t *testing.T) {
	rounds := testsize.Rounds(1, 4, 100)
	prog := start(t, "jobs", "4")
	job := int(number(t, prog.Expect("job"), "job"))
	inPeace := func() {
		t.Helper()
		for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
			prog.Do(fmt.Sprintf("stop %d", sig), "stopped")
		}
	}
	inPeace()
	prog.Send("pairs")
	prog.Do("enough", "went")
	for i := range rounds {
		s := attach(t, job, kprobes.Options{NoOptimize: i%3 == 0})
		kp := modes[i%2].caller("foo", takingTime(t, s, i/2%3))
		register(t, s, kp)
		inPeace()
		prog.Send("pairs")
		for j := range 30 {
			toggle(t, s, modes[j%2].probe("bar"), 1)
			at, err := s.Alloc(4096)
			ok(t, err)
			ok(t, s.Free(at, 4096))
		}
		prog.Do("enough", "went")
		inPeace()
		if kp.Hits() == 0 {
			t.Error("nothing was hit")
		}
		closeSession(t, s)
		inPeace()
		testprog.CheckClean(t, job)
	}
	wantRight(t, prog)
}

// takingTime is a handler that does nothing, has its thread wait, or calls a function.
func takingTime(t *testing.T, s *kprobes.Session, what int) func(*kprobes.Regs) {
	bar := symbol(t, s, "bar")
	switch what {
	case 1:
		return func(r *kprobes.Regs) { r.Delay(50 * time.Microsecond) }
	case 2:
		return func(r *kprobes.Regs) { wantCall(t, r, 4, bar, 7) }
	}
	return func(*kprobes.Regs) {}
}
