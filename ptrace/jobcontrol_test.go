package ptrace

import (
	"fmt"
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

// TestAShellSeesItsJobsStopsOnce: the job is frozen, and makes system calls for us, all along. The shell has sent each signal, and looks at what waitpid(2)
// tells.
func TestAShellSeesItsJobsStopsOnce(t *testing.T) {
	shell := testprog.Start(t, testprog.Build(t, "jobs"), "3")
	var job int
	if _, err := fmt.Sscanf(shell.Expect("job"), "job %d", &job); err != nil {
		t.Fatal(err)
	}
	tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, job)
	defer tr.Close()
	end := stopAllAlong(t, tr, p)
	calls := make(chan bool)
	go func() {
		defer close(calls)
		for range 40 {
			if err := tr.Do(func() {
				if err := p.Remote(func(r *Remote) error {
					pid, err := r.Syscall(unix.SYS_GETPID)
					if err == nil && int(pid) != job {
						t.Errorf("getpid: %d", pid)
					}
					return err
				}); err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Error(err)
			}
		}
	}()
	for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
		want := fmt.Sprintf("stopped %d", sig)
		if got := shell.Do(fmt.Sprintf("stop %d", sig), "stopped"); got != want {
			t.Errorf("the shell says %q, want %q", got, want)
		}
	}
	shell.Send("pairs")
	<-calls
	shell.Do("enough", "went")
	end()
	whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
	testprog.CheckClean(t, job)
	if got := shell.Quit(); got != "right" {
		t.Errorf("the shell says %q, want right", got)
	}
}

// TestASIGCONTDiscardsStopSignalsThatAreKept: one that is pending, or recorded since the thread has stopped; other signals it leaves alone.
func TestASIGCONTDiscardsStopSignalsThatAreKept(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "threads"), "2")
	tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
	defer tr.Close()
	whileHeld(t, tr, func() {}, func() error {
		return p.Space.Freeze(func(*Frozen) error {
			th := p.Leader()
			overtaken := func(want bool) {
				t.Helper()
				for _, sig := range []unix.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGUSR1, unix.SIGTERM} {
					if got := th.overtaken(sig); got != (want && stopSignals.Has(sig)) {
						t.Errorf("%s is overtaken: %v", unix.SignalName(sig), got)
					}
				}
			}
			overtaken(false)
			p.continues++
			overtaken(true)
			th.job.continues = p.continues
			overtaken(false)
			must(unix.Kill(p.PID, unix.SIGCONT)) // it waits for a thread that runs
			overtaken(true)
			for _, other := range p.Threads() {
				other.owed.held = append(other.owed.held, siginfoOf(unix.SIGTSTP, siUser), siginfoOf(unix.SIGTERM, siUser))
			}
			return nil
		})
	})
	testprog.Await(t, "a SIGCONT that is recorded", func() (came bool) {
		must(tr.Do(func() {
			came = p.continues == 2
			for _, th := range p.Threads() {
				if came && (len(th.owed.held) != 1 || th.owed.held[0].Signo() != unix.SIGTERM) {
					t.Errorf("thread %d keeps %v", th.TID, signos(th.owed.held))
				}
				if came {
					th.owed.held = nil
				}
			}
		}))
		return came
	})
	whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}
