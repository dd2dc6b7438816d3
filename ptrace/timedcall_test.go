package ptrace

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// stopAllAlong freezes the address space again and again until the function that it returns is called.
func stopAllAlong(t *testing.T, tr *Tracer, p *Process) (end func()) {
	ended, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			default:
			}
			if err := tr.Do(func() {
				if err := p.Space.Freeze(func(*Frozen) error { return nil }); err != nil {
					t.Errorf("freeze: %v", err)
				}
			}); err != nil {
				return
			}
		}
	}()
	return func() { close(ended); <-done }
}

// everyTimeout has the program wait in each of its calls, as it would alone.
func everyTimeout(prog *testprog.Prog) (answers []string) {
	for _, name := range strings.Fields(prog.Do("waits", "did"))[1:] {
		answers = append(answers, prog.Do("wait "+name, "did"))
	}
	return answers
}

// TestTimeoutsEndHoweverOftenThreadsAreStopped: stops come more often than any of the timeouts is long, also beside filters that do not
// let the program make restart_syscall(2).
func TestTimeoutsEndHoweverOftenThreadsAreStopped(t *testing.T) {
	bin := testprog.Build(t, "timeouts")
	alone := testprog.Start(t, bin)
	want := everyTimeout(alone)
	if got := alone.Quit(); got != "right" {
		t.Fatalf("unprobed the program says %q", got)
	}
	for _, filter := range []string{"none", "process", "thread", "trap", "errno", "notify", "list"} {
		t.Run(filter, func(t *testing.T) {
			t.Parallel()
			args := slices.DeleteFunc([]string{filter}, func(s string) bool { return s == "none" })
			prog := testprog.Start(t, bin, args...)
			tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
			defer tr.Close()
			end := stopAllAlong(t, tr, p)
			got := everyTimeout(prog)
			prog.Do("events 12", "did 12")
			end()
			if !slices.Equal(got, want) {
				t.Errorf("calls return\n%s\nunprobed\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
			prog.CheckClean()
			if got := prog.Quit(); got != "right" {
				t.Errorf("the program says %q, want right", got)
			}
		})
	}
}

// TestATracerOfThisThreadAnswersNoTimer, as that of a guardian, which puts right a program whose threads wait with timeouts: a timer that finds no
// bell to ring ended the guardian, and the program kept its breakpoints.
func TestATracerOfThisThreadAnswersNoTimer(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "timeouts"))
	prog.Send("wait epoll_wait")
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread() // its end lets go of everything
		tr := NewHere(Nop{})
		p, err := tr.Attach(prog.PID())
		if err != nil {
			t.Error(err)
			return
		}
		var c *timedCall
		for c == nil && err == nil { // until it is found in its call
			err = p.Space.Freeze(func(*Frozen) error {
				c = p.Leader().timed
				return nil
			})
		}
		if err != nil {
			t.Error(err)
			return
		}
		told := make(chan error)
		time.AfterFunc(time.Until(c.due), func() { told <- tr.Do(func() { t.Error("it is called") }) }) // behind the call's own
		if err := <-told; !errors.Is(err, ErrClosed) {
			t.Errorf("on another thread: %v", err)
		}
		if err := tr.Detach(p); err != nil {
			t.Error(err)
		}
	}()
	<-done
	prog.Expect("did epoll_wait 0 0")
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}
