package kprobes_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestHandlersAllocate: a handler gives a function a string of its own, in memory that it has the
// target allocate, and takes it back behind the call. The memory of a Session.Alloc outlives the
// session.
func TestHandlersAllocate(t *testing.T) {
	prog := start(t, "prey")
	before := testprog.TakeSnapshot(t, prog.PID())
	s := attach(t, prog.PID(), kprobes.Options{})
	const text = "a longer one"
	var given arch.Addr
	register(t, s, &kprobes.Kprobe{SymbolName: "length", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		was, _ := r.Arg(0)
		if got, err := r.ReadString(arch.Addr(was), 100); err != nil || got != "test" {
			t.Errorf("the argument is %q, %v", got, err)
		}
		var err error
		if given, err = r.Alloc(uint64(len(text) + 1)); err != nil {
			t.Error(err)
		}
		if err := r.WriteString(given, text); err != nil {
			t.Error(err)
		}
		r.SetArg(0, uint64(given))
		return 0
	}})
	for range 3 {
		if got := prog.Do("call string 5", "ret"); got != fmt.Sprintf("ret %d", len(text)+5) {
			t.Errorf("got %q, want the length of %q and 5", got, text)
		}
		if err := s.Free(given, uint64(len(text)+1)); err != nil {
			t.Error(err)
		}
		if mapped(t, prog.PID(), given) {
			t.Errorf("%s is still mapped", given)
		}
	}
	kept, err := s.Alloc(3 * 4096)
	if err != nil {
		t.Fatal(err)
	}
	closeSession(t, s)
	for page := range 3 {
		if at := kept + arch.Addr(page*4096); !mapped(t, prog.PID(), at) {
			t.Errorf("%s is not mapped", at)
		}
	}
	before.Compare(t, prog.PID())
	wantRight(t, prog)
}

// TestAllocFails as mmap(2) does.
func TestAllocFails(t *testing.T) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	if _, err := s.Alloc(0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no bytes: %v, want EINVAL", err)
	}
	if _, err := s.Alloc(1 << 60); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("too many bytes: %v, want ENOMEM", err)
	}
	prog.Kill()
	<-s.Done()
	if _, err := s.Alloc(1); !errors.Is(err, unix.ESRCH) {
		t.Errorf("of the dead: %v, want ESRCH", err)
	}
}

func mapped(t *testing.T, pid int, at arch.Addr) bool {
	t.Helper()
	maps, err := procfs.Maps(pid)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(maps, func(m procfs.Mapping) bool { return m.Range.Contains(at) })
}

// TestHandlersSeeThreadLocalStorage: a variable is where the compiler says, and can be changed.
func TestHandlersSeeThreadLocalStorage(t *testing.T) {
	prog := start(t, "conform")
	line := prog.Do("local", "at")
	offset := number(t, line, "offset")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := &kprobes.Kprobe{SymbolName: "third", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		at := r.ThreadPointer() + arch.Addr(offset)
		if uint64(at) != number(t, line, "at") {
			t.Errorf("the variable is at %s, the program says %s", at, line)
		}
		v, err := r.ReadUint64(at)
		if err != nil || v != 4711 {
			t.Errorf("it is %d, %v", v, err)
		}
		if err := r.WriteUint64(at, v+1); err != nil {
			t.Error(err)
		}
		return 0
	}}
	register(t, s, kp)
	prog.Do("call third 3", "ret")
	if got := number(t, prog.Do("local", "at"), "value"); got != 4712 {
		t.Errorf("the program finds %d, want 4712", got)
	}
	wantHits(t, kp, 1)
}
