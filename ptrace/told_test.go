package ptrace

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// listener counts the signals that it is told of.
type listener struct {
	keeper
	told map[unix.Signal]int
}

func (l listener) Signal(_ *Thread, info *Siginfo) (Delivery, Verdict) {
	l.told[info.Signo()]++
	return Deliver, AsTold()
}

// TestASignalIsToldOnce: a SIGTRAP that the program has a handler for is put off while the action is read, and is reported once more.
func TestASignalIsToldOnce(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "owntraps"))
	prog.Do("act handle", "did")
	l := listener{keeper{copied: map[int]*Space{}}, map[unix.Signal]int{}}
	tr, p := attachKeeper(t, l, prog.PID())
	defer tr.Close()
	const times = 3
	for range times {
		prog.Do("raise", "did")
	}
	whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
	if got := l.told[unix.SIGTRAP]; got != times {
		t.Errorf("told of %d, want %d", got, times)
	}
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}
