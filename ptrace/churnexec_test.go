package ptrace

import (
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestAnExecWhileThreadsAreMadeHoldsNobodyUp: a thread that was being made is killed by the exec before anybody has told of it, with
// its maker. The exec waits for it, and whoever waits for the thread that calls exec does.
func TestAnExecWhileThreadsAreMadeHoldsNobodyUp(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "churnexec"), "150")
	tr, err := New()
	must(err)
	tr.SetHandler(Nop{})
	defer tr.Close()
	var p *Process
	must(tr.Do(func() { p, err = tr.Attach(prog.PID()) }))
	must(err)
	prog.Send("go")
	for over := false; !over; {
		must(tr.Do(func() {
			if over = p.dropped; !over {
				_ = p.Space.Remote(func(*Remote) error { return nil }) // it may be between two programs
			}
		}))
	}
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q", got)
	}
}
