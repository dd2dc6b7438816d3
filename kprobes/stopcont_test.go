package kprobes_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestJobControlInAStorm: the process is stopped and goes on at once, over and over, while probes come and go and memory is
// mapped; none of these makes it stop again.
func TestJobControlInAStorm(t *testing.T) {
	rounds := 5
	if torture() {
		rounds = 100
	}
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
