package ptrace

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// undoer puts back in an executed program what a fault there would have done to the action of SIGSEGV.
type undoer struct {
	Nop
	handled chan Sigset // then
}

func (u *undoer) Execed(p *Process, _ *Space) Fate {
	must(p.NoteFaultActions(true))
	p.Leader().undoFault(unix.SIGSEGV)
	handled, _, _ := p.faultSets()
	u.handled <- handled
	return Keep
}

// TestAnExecutedProgramDoesNotGetTheOldOnesHandlers: they are addresses in memory that has gone.
func TestAnExecutedProgramDoesNotGetTheOldOnesHandlers(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "execer"))
	u := &undoer{handled: make(chan Sigset, 1)}
	tr, p := attachKeeper(t, u, prog.PID())
	defer tr.Close()
	whileHeld(t, tr, func() {}, func() error {
		return p.Space.Freeze(func(*Frozen) error {
			regs := must2(p.Leader().Regs())
			must(p.Space.Remote(func(r *Remote) error { return r.setSigaction(unix.SIGSEGV, &sigaction{handler: uintptr(regs.IP())}) }))
			must(p.NoteFaultActions(true))
			if handled, _, _ := p.faultSets(); !handled.Has(unix.SIGSEGV) {
				t.Errorf("the program handles %#x", handled)
			}
			return nil
		})
	})
	if got := prog.Do("exec", "ready"); got != "ready 1" {
		t.Fatalf("the program says %q", got)
	}
	if handled := <-u.handled; handled != 0 {
		t.Errorf("the executed program handles %#x", handled)
	}
	whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}
