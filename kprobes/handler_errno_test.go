package kprobes_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestErrno: it is set in the thread that hit, for C libraries of all kinds.
func TestErrno(t *testing.T) {
	for _, c := range []struct {
		name    string
		flags   []string
		library string // whose getppid is probed; empty for the executable's
	}{
		{"glibc", nil, "libc.so.6:getppid"},
		{"glibc, static", []string{"-static"}, "getppid"},
		{"glibc, static-pie", []string{"-static-pie"}, "getppid"},
		{"musl", []string{"-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs"}, "getppid"},
		{"musl, static", []string{"-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs", "-static"}, "getppid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			prog := testprog.Start(t, testprog.Build(t, "errnos", c.flags...))
			s := attach(t, prog.PID(), kprobes.Options{})
			fail := func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
				if e, err := r.Errno(); err != nil || e != 0 {
					t.Errorf("errno is %v, %v, want 0", e, err)
				}
				ok(t, r.SetErrno(unix.ENOSPC))
				if e, err := r.Errno(); err != nil || e != unix.ENOSPC {
					t.Errorf("errno is %v, %v, want %v", e, err, unix.ENOSPC)
				}
				ok(t, r.ReturnNow(^uint64(0)))
				return 1
			}
			register(t, s, &kprobes.Kprobe{SymbolName: "fails", PreHandler: fail}, &kprobes.Kprobe{SymbolName: c.library, PreHandler: fail})
			for range 5 {
				for _, command := range []string{"go", "thread", "vfork", "library"} {
					wantSays(t, prog, command, "-1 errno 28 others 0")
				}
			}
			closeSession(t, s)
			wantSays(t, prog, "go", "10 errno 0 others 0")
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestNoErrno: a program without a C library has none.
func TestNoErrno(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "nolibc", "-static", "-nostdlib"))
	s := attach(t, prog.PID(), kprobes.Options{})
	errs := make(chan error, 2)
	register(t, s, &kprobes.Kprobe{SymbolName: "answer", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		errs <- r.SetErrno(unix.EIO)
		return 0
	}})
	for range 2 {
		prog.Do("go", "ret 42")
		if err := <-errs; !errors.Is(err, kprobes.ErrNoErrno) {
			t.Errorf("got %v, want %v", err, kprobes.ErrNoErrno)
		}
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestErrnoOfAnotherKind: the thread is asked where errno is, by a call, if that is not plain to see.
func TestErrnoOfAnotherKind(t *testing.T) {
	prog := start(t, "ownerrno")
	s := attach(t, prog.PID(), kprobes.Options{})
	register(t, s, &kprobes.Kprobe{SymbolName: "fails", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		ok(t, r.SetErrno(unix.EAGAIN))
		ok(t, r.ReturnNow(7))
		return 1
	}})
	for range 5 {
		wantSays(t, prog, "go 30", "7 errno 11 0 asked 1")
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}
