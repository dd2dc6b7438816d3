package ptrace

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestAProcessThatHasLeftTheMemoryIsNoRelative: a vfork child was seen in the memory, and has called exec before it is
// seized, which nobody tells of.
func TestAProcessThatHasLeftTheMemoryIsNoRelative(t *testing.T) {
	bin := testprog.Build(t, "siblings")
	prog, gone := testprog.Start(t, bin), testprog.Start(t, bin)
	tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
	defer tr.Close()
	whileHeld(t, tr, func() {}, func() error { return tr.seizeRelative(p, gone.PID()) })
	whileHeld(t, tr, func() {}, func() error {
		if got := p.Space.Processes(); len(got) != 1 || got[0] != p || len(tr.procs) != 1 || len(tr.threads) != 1 {
			t.Errorf("the memory's processes are %v of %d, want %d alone", got, len(tr.procs), prog.PID())
		}
		return nil
	})
	gone.CheckClean()
	if got := gone.Quit(); got != "right" {
		t.Errorf("the other program says %q, want right", got)
	}
	whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
	prog.CheckClean()
}

// TestASystemCallThatCannotBeMade: the instruction for it is not where it was seen.
func TestASystemCallThatCannotBeMade(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "siblings"))
	tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
	defer tr.Close()
	whileHeld(t, tr, func() {}, func() error {
		err := p.Space.Remote(func(r *Remote) error {
			pid, err := r.Syscall(unix.SYS_GETPID)
			if err != nil || int(pid) != prog.PID() {
				t.Errorf("the call returns %d and %v, want %d", pid, err, prog.PID())
			}
			r.insn = 0x10
			_, err = r.Syscall(unix.SYS_GETPID)
			return err
		})
		if err == nil || !strings.HasSuffix(err.Error(), "raised SIGSEGV") {
			t.Errorf("the error is %v", err)
		}
		return tr.Detach(p)
	})
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}
