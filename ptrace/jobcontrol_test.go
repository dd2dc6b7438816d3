package ptrace

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestAStopSignalIsActedOnWhereItIsTaken: by a thread that is to make system calls for us, and by one that is to act on
// it alone. SIGCONT may have come since. The process is stopped then, as the kernel says, or it is not.
func TestAStopSignalIsActedOnWhereItIsTaken(t *testing.T) {
	getpid := func(th *Thread) error {
		return th.remote(func(r *Remote) error {
			_, err := r.Syscall(unix.SYS_GETPID)
			return err
		})
	}
	here := func(th *Thread) error { return th.Proc.tracer.stopHere(th) }
	takes := func(th *Thread) error { // without acting on it
		if err := unix.Tgkill(th.Proc.PID, th.TID, unix.SIGSTOP); err != nil {
			return err
		}
		th.cont(unix.PTRACE_CONT, 0)
		return th.Proc.tracer.await(th)
	}
	for _, c := range []struct {
		name      string
		continued bool
		acts      func(*Thread) error
	}{
		{"a system call", false, getpid},
		{"a system call after SIGCONT", true, getpid},
		{"nothing else", false, here},
		{"nothing else after SIGCONT", true, here},
	} {
		t.Run(c.name, func(t *testing.T) {
			prog := testprog.Start(t, testprog.Build(t, "prey"))
			tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
			defer tr.Close()
			whileHeld(t, tr, func() {}, func() error {
				return p.Space.Freeze(func(*Frozen) error {
					th := p.Leader()
					if err := takes(th); err != nil {
						return err
					}
					if got := th.stopSignal(); got != unix.SIGSTOP {
						t.Errorf("the thread is to act on signal %d, not SIGSTOP", got)
					}
					if c.continued {
						if err := unix.Kill(p.PID, unix.SIGCONT); err != nil {
							return err
						}
					}
					if err := c.acts(th); err != nil {
						return err
					}
					if th.job.grouped == c.continued {
						t.Errorf("it is in a group-stop: %v, continued: %v", th.job.grouped, c.continued)
					}
					return nil
				})
			})
			whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
			if err := unix.Kill(p.PID, unix.SIGCONT); err != nil {
				t.Error(err)
			}
			prog.CheckClean()
			if got := prog.Quit(); got != "right" {
				t.Errorf("the program says %q, want right", got)
			}
		})
	}
}
