package ptrace

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// keeper keeps forked children and remembers whose memory each is a copy of.
type keeper struct {
	Nop
	copied map[int]*Space
}

func (k keeper) Forked(parent *Space, child *Process) Fate {
	k.copied[child.PID] = parent
	return Keep
}

// TestAChildIsACopyOfItsMaker: a child's first stop is collected before its maker's event,
// and a process ends in between: another one, or the maker, whose event is lost with it.
func TestAChildIsACopyOfItsMaker(t *testing.T) {
	for _, c := range []struct {
		name, command string
		byFirst       bool // the maker is the first child, and is killed
	}{
		{"another process ends", "swap", false},
		{"its maker is killed", "grow", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			prog := testprog.Start(t, testprog.Build(t, "siblings"))
			k := keeper{copied: map[int]*Space{}}
			tr, p := attachKeeper(t, k, prog.PID())
			defer tr.Close()
			var first int
			if _, err := fmt.Sscanf(prog.Do("fork", "forked"), "forked %d", &first); err != nil {
				t.Fatal(err)
			}
			var child int
			var maker *Space
			whileHeld(t, tr, func() { prog.Send(c.command) }, func() (err error) {
				maker = p.Space
				if c.byFirst {
					maker = tr.procs[first].Space
				}
				child, err = tr.endsFirst(maker, first, c.byFirst)
				return err
			})
			if got := prog.Do("reap", "reaped"); got != "reaped 2" {
				t.Errorf("the program says %q, want reaped 2", got)
			}
			whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
			if got := k.copied[child]; got != maker || len(k.copied) != 2 {
				t.Errorf("child %d is taken for a copy of %p, its maker's memory is %p", child, got, maker)
			}
			prog.CheckClean()
			if got := prog.Quit(); got != "right" {
				t.Errorf("the program says %q, want right", got)
			}
		})
	}
}

// TestAThreadThatDiesBeforeItRunsIsLetGo: SIGKILL comes when a thread has just been made. Its maker has no time to tell of it, and is on its way out before the
// thread's stop is seen: nothing else is reported of the process until the thread has ended.
func TestAThreadThatDiesBeforeItRunsIsLetGo(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "prey"))
	tr, _ := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
	defer tr.Close()
	states := func() string {
		var b strings.Builder
		for _, tid := range tids(t, prog.PID()) {
			if st, err := procfs.ReadStatus(prog.PID(), tid); err == nil {
				b.WriteByte(st.State)
			}
		}
		return b.String()
	}
	whileHeld(t, tr, func() {
		prog.Send("threads 1 1 foo")
		testprog.Await(t, "a stop of the maker and of what it has made", func() bool { return states() == "tt" })
		if err := unix.Kill(prog.PID(), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testprog.Await(t, "a stop of both on their way out", func() bool { return states() == "tt" })
	}, func() error { return tr.collect(prog.PID()) })
	testprog.Await(t, "an end of the process", func() (gone bool) {
		if err := tr.Do(func() { gone = len(tr.procs) == 0 && len(tr.threads) == 0 && len(tr.early) == 0 }); err != nil {
			t.Fatal(err)
		}
		return gone
	})
}

func attachKeeper(t *testing.T, k Handler, pid int) (tr *Tracer, p *Process) {
	t.Helper()
	tr, err := New()
	if err != nil {
		t.Fatal(err)
	}
	tr.SetHandler(k)
	whileHeld(t, tr, func() {}, func() (err error) {
		p, err = tr.Attach(pid)
		return err
	})
	return tr, p
}

// whileHeld runs do while the tracer's thread collects nothing, and then f on that thread.
func whileHeld(t *testing.T, tr *Tracer, do func(), f func() error) {
	t.Helper()
	held, done, failed := make(chan bool), make(chan bool), make(chan error, 2)
	go func() {
		failed <- tr.Do(func() {
			close(held)
			<-done
			failed <- f()
		})
	}()
	<-held
	do()
	close(done)
	for range 2 {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
}

// endsFirst waits until a process with the maker's memory has forked, and collects the
// child's first stop and then all of process ends until that is gone.
func (t *Tracer) endsFirst(maker *Space, ends int, kill bool) (child int, err error) {
	pid := maker.Processes()[0].PID
	for {
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOWAIT|unix.WALL, nil); err != nil {
			return 0, fmt.Errorf("waiting for the fork: %w", err)
		}
		if child, err = eventMsg(pid); err != nil {
			return 0, err
		}
		if child != 0 {
			break
		}
		if err := t.collect(pid); err != nil { // its own first stop
			return 0, err
		}
	}
	if err := t.collect(child); err != nil {
		return child, err
	}
	if kill {
		if err := unix.Kill(ends, unix.SIGKILL); err != nil {
			return child, err
		}
	}
	for t.threads[ends] != nil && err == nil {
		err = t.collect(ends)
	}
	return child, err
}

// collect does what step does for one stop, that of tid.
func (t *Tracer) collect(tid int) error {
	_, ws, err := waitStatus(tid, 0)
	if err != nil {
		return fmt.Errorf("waiting for %d: %w", tid, err)
	}
	if th := t.record(decode(tid, ws)); th != nil {
		t.dispatch(th)
	}
	return nil
}
