package ptrace

import (
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// birthRegister writes to the parent's code when a child was made, if it is to, and keeps what is then said of the children's births.
type birthRegister struct {
	Nop
	write bool
	asNow []bool
}

func (b *birthRegister) Copied(parent *Thread, _ *Process) {
	if b.write {
		must(writeAgain(parent.Proc.Space, parent))
	}
}

func (b *birthRegister) Forked(parent *Space, child *Process) Fate {
	b.asNow = append(b.asNow, child.BornAsNow(parent))
	return Keep
}

// writeAgain writes the byte that is where th is.
func writeAgain(s *Space, th *Thread) error {
	regs, err := th.Regs()
	if err != nil {
		return err
	}
	var b [1]byte
	if err := s.ReadMemory(regs.IP(), b[:]); err != nil {
		return err
	}
	return s.Text().WriteMemory(regs.IP(), b[:])
}

// TestChildrenThatAreBornAsTheirParentIsNow: not if its code was written to since the thread that forks was last resumed, be it before the fork, which may have
// copied it or not, or after.
func TestChildrenThatAreBornAsTheirParentIsNow(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "siblings"))
	b := &birthRegister{}
	tr, p := attachKeeper(t, b, prog.PID())
	defer tr.Close()
	fork := func(before func()) {
		whileHeld(t, tr, before, func() error { return nil })
		if got := prog.Do("fork", "forked"); got == "" {
			t.Error("it does not fork")
		}
	}
	inside := func(write bool) { whileHeld(t, tr, func() {}, func() error { b.write = write; return nil }) }
	fork(func() {}) // it may not have been resumed since the attach
	b.asNow = nil
	fork(func() {})
	inside(true)
	fork(func() {})
	inside(false)
	fork(func() {})
	whileHeld(t, tr, func() {}, func() error {
		return p.Space.Freeze(func(*Frozen) error { return writeAgain(p.Space, p.Leader()) })
	})
	fork(func() {}) // the Freeze has resumed it after the write
	whileHeld(t, tr, func() {}, func() error {
		p.Space.writes++ // while it runs
		return nil
	})
	fork(func() {})
	fork(func() {})
	var asNow []bool
	whileHeld(t, tr, func() {}, func() error { asNow = b.asNow; return nil })
	if want := []bool{true, false, true, true, false, true}; !slices.Equal(asNow, want) {
		t.Errorf("they are born as the parent is now: %v, want %v", asNow, want)
	}
	prog.Send("swap")
	if got := prog.Do("reap", "reaped"); got != "reaped 8" {
		t.Errorf("the program says %q, want reaped 8", got)
	}
	whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}
