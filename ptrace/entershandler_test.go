package ptrace

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestAStopBehindTheDeliveryOfASignalIsNoSignal: a thread that is being single-stepped is given a signal, and stops in front of its handler, as it may for whoever seizes
// it when another tracer has died. The program gets no SIGTRAP for that, whatever is done with the thread there.
func TestAStopBehindTheDeliveryOfASignalIsNoSignal(t *testing.T) {
	for name, then := range map[string]func(tr *Tracer, th *Thread) error{
		"goes on":    func(*Tracer, *Thread) error { return nil },
		"is let go":  func(tr *Tracer, th *Thread) error { return tr.Detach(th.Proc) },
		"is stepped": func(_ *Tracer, th *Thread) error { defer func() { _ = th.EndStep() }(); return th.Proc.Space.Step(th) },
		"makes system calls for us": func(_ *Tracer, th *Thread) error {
			return th.remote(func(r *Remote) error { return r.setSigaction(unix.SIGTRAP, must2(r.sigaction(unix.SIGTRAP))) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			prog := testprog.Start(t, testprog.Build(t, "signals"), "unseen") // where a timer raises SIGALRM
			tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
			defer tr.Close()
			whileHeld(t, tr, func() {}, func() error {
				return p.Space.Freeze(func(*Frozen) error {
					th := p.Leader()
					for th.at.stop.Reason != Signal || th.at.stop.Signal != unix.SIGALRM {
						th.cont(unix.PTRACE_CONT, 0)
						if err := tr.await(th); err != nil {
							return err
						}
					}
					th.cont(unix.PTRACE_SINGLESTEP, unix.SIGALRM)
					if err := tr.await(th); err != nil {
						return err
					}
					if s := th.at.stop; s.Reason != Interrupt || th.at.injectable {
						t.Errorf("the stop is %s, and a signal can be delivered there: %t", s, th.at.injectable)
					}
					return then(tr, th)
				})
			})
			if name != "is let go" {
				prog.Do("run 5", "ran 5")
				whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
			}
			prog.CheckClean()
			prog.Do("run 5", "ran 5")
			if got := prog.Quit(); got != "right" {
				t.Errorf("the program says %q, want right", got)
			}
		})
	}
}
