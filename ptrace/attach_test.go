package ptrace

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
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

// TestBytesForACallTouchNoOtherPage: the stack pointer of the thread leads to a page that can't be written. It is as absent
// afterwards as before, or the error code of the next fault there would tell.
func TestBytesForACallTouchNoOtherPage(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "siblings"))
	tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
	defer tr.Close()
	pagemap, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", prog.PID()))
	if err != nil {
		t.Fatal(err)
	}
	defer pagemap.Close()
	present := func(at uint64) bool { // Documentation/admin-guide/mm/pagemap.rst
		var entry [8]byte
		if _, err := pagemap.ReadAt(entry[:], int64(at/4096*8)); err != nil {
			t.Error(err)
		}
		return entry[7]&0x80 != 0
	}
	whileHeld(t, tr, func() {}, func() error {
		err := p.Space.Remote(func(r *Remote) error {
			page, err := r.Syscall(unix.SYS_MMAP, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0), 0)
			if err != nil {
				return err
			}
			regs, err := r.th.hostRegs()
			if err != nil {
				return err
			}
			regs.SetSP(arch.Addr(page + 2048))
			err = r.WithString("name", func(at arch.Addr) error {
				if uint64(at)/4096 == page/4096 || present(page) {
					t.Errorf("the bytes are at %s; the page %#x is present: %v", at, page, present(page))
				}
				return nil
			})
			return errors.Join(err, r.munmap(arch.Range{Start: arch.Addr(page), End: arch.Addr(page + 4096)}))
		})
		return errors.Join(err, tr.Detach(p))
	})
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// TestAThreadThatWasSeizedOnItsWayIntoVfork, and is taken for one that runs: whoever waits for it finds out, and it is traced as any when its child has let it go.
func TestAThreadThatWasSeizedOnItsWayIntoVfork(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "family"))
	prog.Do("vfork", "child")
	tr, err := New()
	if err != nil {
		t.Fatal(err)
	}
	tr.SetHandler(keeper{copied: map[int]*Space{}})
	defer tr.Close()
	var p *Process
	whileHeld(t, tr, func() {}, func() error {
		p = tr.newProcess(prog.PID(), nil)
		if err := request(unix.PTRACE_SEIZE, prog.PID(), 0, seizeOptions); err != nil {
			return err
		}
		th := tr.newThread(p, prog.PID())
		if err := p.Space.Freeze(func(*Frozen) error { return nil }); err != nil {
			return err
		}
		if th.state != parked || !p.InsideVfork() {
			t.Errorf("the thread is in state %d", th.state)
		}
		return nil
	})
	if got := prog.Do("end", "back"); got != "back 56" {
		t.Error(got)
	}
	whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}
