package kprobes_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

// TestRegistrationIsRefused: each refusal has its named error and the kernel's errno,
// and leaves nothing behind (A10–A26).
func TestRegistrationIsRefused(t *testing.T) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	target := symbol(t, s, "target")
	long := firstLongInstruction(t, prog.PID(), target)
	registered := boosted.probe("target2")
	register(t, s, registered)
	tests := []struct {
		name  string
		kp    *kprobes.Kprobe
		named error
		errno unix.Errno
	}{
		{"address and symbol", &kprobes.Kprobe{Addr: target, SymbolName: "target"}, kprobes.ErrBothAddrAndSymbol, unix.EINVAL},
		{"neither", &kprobes.Kprobe{}, kprobes.ErrNoAddrOrSymbol, unix.EINVAL},
		{"unknown symbol", &kprobes.Kprobe{SymbolName: "no_such_function"}, kprobes.ErrUnknownSymbol, unix.ENOENT},
		{"registered already", registered, kprobes.ErrRegistered, unix.EINVAL},
		{"address in no mapping", &kprobes.Kprobe{Addr: 0x1000}, kprobes.ErrNotMapped, unix.EINVAL},
		{"data", &kprobes.Kprobe{Addr: mapping(t, prog.PID(), func(m procfs.Mapping) bool { return m.Write })}, kprobes.ErrNotExecutable, unix.EINVAL},
		{"the injected region", &kprobes.Kprobe{Addr: mapping(t, prog.PID(), func(m procfs.Mapping) bool { return m.Exec && m.Deleted })}, kprobes.ErrBlacklisted, unix.EINVAL},
		{"inside an instruction", &kprobes.Kprobe{Addr: long + 1}, kprobes.ErrNotBoundary, unix.EILSEQ},
		{"inside, by offset", &kprobes.Kprobe{SymbolName: "target", Offset: uint64(long + 1 - target)}, kprobes.ErrNotBoundary, unix.EILSEQ},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := s.RegisterKprobe(test.kp)
			if !errors.Is(err, test.named) || !errors.Is(err, test.errno) {
				t.Errorf("got %v, want %v and %v", err, test.named, test.errno)
			}
		})
	}
	if got := prog.Do("call target 30", "ret"); got != "ret 10" {
		t.Errorf("got %q", got)
	}
}

// TestBatchIsAllOrNothing (A45): a failure takes back what came before it.
func TestBatchIsAllOrNothing(t *testing.T) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	good, bad := boosted.probe("target"), boosted.probe("no_such_function")
	if err := s.RegisterKprobes(t.Context(), []*kprobes.Kprobe{good, bad}); !errors.Is(err, unix.ENOENT) {
		t.Errorf("got %v, want ENOENT", err)
	}
	prog.Do("call target 30", "ret")
	wantHits(t, good, 0)
}

// TestRegisterAgain (A39): a probe by symbol must be reset before it is registered
// again, else it is refused, or silently disabled.
func TestRegisterAgain(t *testing.T) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := boosted.probe("target")
	register(t, s, kp)
	if err := s.UnregisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterKprobe(kp); !errors.Is(err, unix.EINVAL) {
		t.Errorf("without a reset: %v, want EINVAL", err)
	}
	kp.Addr = 0
	register(t, s, kp)
	prog.Do("call target 30", "ret")
	wantHits(t, kp, 0)
	if err := s.UnregisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	kp.Addr, kp.Flags = 0, 0
	register(t, s, kp)
	prog.Do("call target 30", "ret")
	wantHits(t, kp, 1)
}

// TestDisabledAtRegistration (A32, A47, A48).
func TestDisabledAtRegistration(t *testing.T) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := boosted.probe("target")
	if err := s.EnableKprobe(kp); !errors.Is(err, unix.EINVAL) {
		t.Errorf("enabling an unregistered probe: %v, want EINVAL", err)
	}
	kp.Flags = kprobes.FlagDisabled
	register(t, s, kp)
	prog.Do("call target 30", "ret")
	wantHits(t, kp, 0)
	for range 2 {
		if err := s.EnableKprobe(kp); err != nil {
			t.Error(err)
		}
	}
	prog.Do("call target 30", "ret")
	wantHits(t, kp, 1)
}

// TestUnregisterOfAStranger (A38) clears its address and does nothing else.
func TestUnregisterOfAStranger(t *testing.T) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := &kprobes.Kprobe{Addr: 4711}
	if err := s.UnregisterKprobe(kp); err != nil || kp.Addr != 0 {
		t.Errorf("error %v, address %s", err, kp.Addr)
	}
}

// TestEndbr64 (A15, D33): a probe on a function that starts with a landing pad stands
// behind it, by offset 0 and by offset 4; in between there is no boundary.
func TestEndbr64(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "prey", "-fcf-protection=branch"))
	s := attach(t, prog.PID(), kprobes.Options{})
	entry := symbol(t, s, "target")
	for _, offset := range []uint64{0, 4} {
		kp := boosted.probe("target")
		kp.Offset = offset
		register(t, s, kp)
		if kp.Addr != entry+4 || !s.Status(kp).FuncEntry {
			t.Errorf("offset %d: placed at %s, want %s", offset, kp.Addr, entry+4)
		}
		prog.Do("call target 30", "ret")
		wantHits(t, kp, 1)
	}
	kp := boosted.probe("target")
	kp.Offset = 2
	if err := s.RegisterKprobe(kp); !errors.Is(err, unix.EILSEQ) {
		t.Errorf("inside endbr64: %v, want EILSEQ", err)
	}
}

// TestAttachToItself is refused by name.
func TestAttachToItself(t *testing.T) {
	_, err := kprobes.Attach(context.Background(), os.Getpid(), kprobes.Options{})
	var refused *ptrace.AttachError
	if !errors.As(err, &refused) || refused.Cause != ptrace.CauseSelf {
		t.Errorf("got %v", err)
	}
}

// symbol is a function's address, its landing pad included.
func symbol(t *testing.T, s *kprobes.Session, name string) arch.Addr {
	t.Helper()
	found, err := s.Symbols().Resolve(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return found[0].Symbol.Addr
}

// mapping is the start of the first mapping that fits.
func mapping(t *testing.T, pid int, fits func(procfs.Mapping) bool) arch.Addr {
	t.Helper()
	maps, err := procfs.Maps(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if fits(m) {
			return m.Range.Start
		}
	}
	t.Fatal("no such mapping")
	return 0
}

// firstLongInstruction is the first instruction of a function that has more than one
// byte.
func firstLongInstruction(t *testing.T, pid int, at arch.Addr) arch.Addr {
	t.Helper()
	code := make([]byte, 64)
	if err := (ptrace.PeekMemory{PID: pid}).ReadMemory(at, code); err != nil {
		t.Fatal(err)
	}
	for off := 0; off < 48; {
		insn, err := host.Arch.Decode(code[off:], at+arch.Addr(off))
		if err != nil {
			t.Fatal(err)
		}
		if insn.Len() > 1 {
			return insn.Addr
		}
		off += insn.Len()
	}
	t.Fatal("only one-byte instructions")
	return 0
}
