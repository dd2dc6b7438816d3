package ptrace

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestAThreadIsNotLeftInACallForUs: the attach is given up while a thread makes a system call for us, which
// a freezer lets it never end. It goes on as it was when it is thawed. Without a freezer the call ends first, as it is to.
func TestAThreadIsNotLeftInACallForUs(t *testing.T) {
	for range 4 {
		prog := testprog.Start(t, testprog.Build(t, "waits"), "4", "again")
		tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
		thaw, ok := func() {}, false
		err := tr.Do(func() {
			err := p.Space.Remote(func(r *Remote) error {
				thaw, ok = prog.Freeze(1)
				go tr.Cancel()
				for range 100 {
					if _, err := r.Syscall(unix.SYS_GETPPID); err != nil {
						return err
					}
				}
				return nil
			})
			if ok != errors.Is(err, ErrGivenUp) {
				t.Errorf("the calls end with %v", err)
			}
			tr.LetGo()
		})
		if err != nil {
			t.Error(err)
		}
		tr.Close()
		prog.CheckClean()
		thaw()
		stillRight(t, prog)
	}
}

// TestACancelledAttachLetsGo: a process whose threads do not all stop.
func TestACancelledAttachLetsGo(t *testing.T) {
	prog, hears := testprog.StartDeaf(t, 4)
	tr, err := New()
	if err != nil {
		t.Fatal(err)
	}
	tr.SetHandler(keeper{copied: map[int]*Space{}})
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	tr.OnEvent(func() {
		if n++; n == 8 {
			cancel()
		}
	})
	defer tr.CancelOn(ctx)()
	derr := tr.Do(func() {
		if p, err := tr.Attach(prog.PID()); p != nil || !errors.Is(err, ErrGivenUp) {
			t.Errorf("the attach ends with %v, %v", p, err)
		}
		tr.LetGo()
		if len(tr.procs) > 0 || len(tr.threads) > 0 {
			t.Errorf("%d processes and %d threads are left", len(tr.procs), len(tr.threads))
		}
	})
	tr.Close()
	if derr != nil {
		t.Error(derr)
	}
	prog.CheckClean()
	hears()
	stillRight(t, prog)
}

func stillRight(t *testing.T, prog *testprog.Prog) {
	t.Helper()
	prog.Do("call 4", "ret 117")
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}
