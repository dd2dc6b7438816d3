package ptrace

import (
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestFreezeAwake: a thread that waits in read(2) is not stopped, comes back and runs while the function does, is stopped by a Freeze in there,
// and by FreezeAwake if it is to be kept where it is.
func TestFreezeAwake(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "rev_jail"))
	tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
	defer tr.Close()
	nowhere, anywhere := func(arch.Addr) bool { return false }, func(arch.Addr) bool { return true }
	waits := func() {
		for {
			if b, err := procfs.ReadBlocked(prog.PID(), prog.PID()); err == nil && b.Number == 0 {
				return
			}
		}
	}
	frozen := func(th *Thread) func() error {
		return func() error {
			if !th.Stopped() {
				t.Error("a thread runs in a Freeze")
			}
			return nil
		}
	}
	for _, nested := range []func(func() error) error{
		func(f func() error) error { return p.Space.Freeze(func(*Frozen) error { return f() }) },
		func(f func() error) error { return p.Space.FreezeAwake(anywhere, f) },
	} {
		waits()
		var th *Thread
		whileHeld(t, tr, func() {}, func() error {
			th = p.Leader()
			return p.Space.FreezeAwake(nowhere, func() error {
				if th.Stopped() {
					t.Error("a thread that waits was stopped")
				}
				prog.Do("foo 1000", "did")
				return nested(frozen(th))
			})
		})
		prog.Do("foo 10", "did")
		waits()
		whileHeld(t, tr, func() {}, func() error { return p.Space.FreezeAwake(anywhere, frozen(th)) })
		prog.Do("foo 10", "did")
	}
	whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}
