package ptrace

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestAPeekSeesWhatProcShows of the process, whose files stay open, and of the program that it executes when it follows.
func TestAPeekSeesWhatProcShows(t *testing.T) {
	k := probe(t, "execer")
	var peek *Peek
	k.do(func() error { peek = k.p.Space.Peek(k.p.PID); return nil })
	check := func() {
		t.Helper()
		if got, want := must2(peek.Maps()), must2(procfs.Maps(k.p.PID)); !reflect.DeepEqual(got, want) {
			t.Errorf("mappings are\n%v, want\n%v", got, want)
		}
		if got, want := must2(peek.Auxv()), must2(procfs.Auxv(k.p.PID)); !maps.Equal(got, want) {
			t.Errorf("the auxiliary vector is %v, want %v", got, want)
		}
		root := os.NewFile(uintptr(must2(peek.Root())), "root")
		defer root.Close()
		if !os.SameFile(must2(root.Stat()), must2(os.Stat("/"))) {
			t.Error("its root is another directory")
		}
		at, code, file := k.symbol("foo"), make([]byte, 16), make([]byte, 16)
		must(peek.ReadMemory(at, code))
		must(PeekMemory{PID: k.p.PID}.ReadMemory(at, file))
		if !bytes.Equal(code, file) {
			t.Errorf("foo is % x, want % x", code, file)
		}
		if err := peek.WriteMemory(at, code); !errors.Is(err, unix.EACCES) {
			t.Errorf("it writes: %v", err)
		}
	}
	check()
	k.do(func() error {
		k.onExec = func(p *Process, _ *Space) { peek.Follow(p.Space) }
		return nil
	})
	k.prog.Do("exec", "ready")
	check()
	k.end()
	if _, err := peek.Root(); !errors.Is(err, unix.EBADF) {
		t.Errorf("the root of a process that is let go: %v", err)
	}
	if err := peek.ReadMemory(0x1000, make([]byte, 1)); !errors.As(err, new(*arch.FaultError)) {
		t.Errorf("memory that there is not: %v", err)
	}
	if err := peek.ReadMemory(0, nil); err != nil {
		t.Errorf("nothing: %v", err)
	}
}

// TestAProcessIsDumpableForAMomentOnly: its files in /proc are its user's while we open its files, and root's before and after, whatever comes of that.
func TestAProcessIsDumpableForAMomentOnly(t *testing.T) {
	options := testprog.Options{}
	if os.Geteuid() == 0 {
		options.UID = 65534
	}
	prog := testprog.StartWith(t, options, testprog.Build(t, "siblings"))
	failed := errors.New("it fails")
	withTarget(t, prog, func(p *Process) {
		dumpable := func() (is bool) {
			var st unix.Stat_t
			must(unix.Stat(fmt.Sprintf("/proc/%d/status", p.PID), &st))
			return st.Uid != 0
		}
		prctl := func(args ...uint64) (v uint64) {
			must(p.Remote(func(r *Remote) (err error) {
				v, err = r.Syscall(unix.SYS_PRCTL, args...)
				return err
			}))
			return v
		}
		insn := must2(p.Space.findSyscallInsn())
		for _, was := range []uint64{0, 1} {
			for _, want := range []error{nil, failed} {
				prctl(unix.PR_SET_DUMPABLE, was)
				must(p.Space.Freeze(func(*Frozen) error {
					if dumpable() != (was == 1) {
						t.Errorf("it was made dumpable %d, and is: %v", was, dumpable())
					}
					err := p.Leader().whileDumpable(insn, func() error {
						if !dumpable() || !p.Space.blind {
							t.Error("its files can't be opened")
						}
						return want
					})
					if !errors.Is(err, want) || p.Space.blind || dumpable() != (was == 1) {
						t.Errorf("%v; it is dumpable: %v, was %d", err, dumpable(), was)
					}
					return nil
				}))
				if now := prctl(unix.PR_GET_DUMPABLE); now != was {
					t.Errorf("it has %d, had %d", now, was)
				}
			}
		}
	})
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}
