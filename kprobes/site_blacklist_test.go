package kprobes_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

// refused wants ErrBlacklisted and EINVAL.
func refused(t *testing.T, s *kprobes.Session, kp *kprobes.Kprobe) {
	t.Helper()
	if err := s.RegisterKprobe(kp); !errors.Is(err, kprobes.ErrBlacklisted) || !errors.Is(err, unix.EINVAL) {
		t.Errorf("%s %s: got %v, want ErrBlacklisted and EINVAL", kp.SymbolName, kp.Addr, err)
	}
}

// TestBlacklistOfTheUser (A20, A21): functions by name and by pattern, with what was split off
// them, and bare ranges. What is beside them can be probed, and probes that were there before
// stay.
func TestBlacklistOfTheUser(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	before := boosted.probe("third")
	register(t, s, before)
	counted, past := symbol(t, s, "counted"), symbol(t, s, "go_past")
	if err := s.Blacklist("third", "go_jum?"); err != nil {
		t.Fatal(err)
	}
	if err := s.BlacklistRange(arch.Range{Start: past + 4, End: past + 5}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"third", "third.constprop.0", "third.cold", "third.warm", "go_jump", "at_go_jump"} {
		refused(t, s, boosted.probe(name))
	}
	refused(t, s, boosted.probeAt(past+4))
	allowed := []*kprobes.Kprobe{boosted.probeAt(counted), boosted.probeAt(past), boosted.probe("go_taken"), boosted.probe("go_next")}
	register(t, s, allowed...)
	for _, name := range []string{"third", "counted", "go_past", "go_taken", "go_next"} {
		prog.Do("call "+name+" 30", "ret")
	}
	for _, kp := range append(allowed, before) {
		wantHits(t, kp, 1)
	}
	var list []string
	for _, e := range s.BlacklistEntries() {
		list = append(list, e.String())
	}
	for _, name := range []string{"\tthird", "\tgo_jump", arch.Range{Start: past + 4, End: past + 5}.String()} {
		if !strings.Contains(strings.ReplaceAll(strings.Join(list, "\n"), "0x", ""), name) {
			t.Errorf("%q is not in the list %q", name, list)
		}
	}
	closeSession(t, s)
	wantRight(t, prog)
}

// TestBlacklistRefusesWhatIsNot: an unknown name is an error, and then nothing is added.
func TestBlacklistRefusesWhatIsNot(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	if err := s.Blacklist("third", "no_such_function"); !errors.Is(err, unix.ENOENT) || !errors.Is(err, kprobes.ErrUnknownSymbol) {
		t.Errorf("got %v, want ENOENT", err)
	}
	if list := s.BlacklistEntries(); len(list) != 0 {
		t.Errorf("the list holds %v", list)
	}
	register(t, s, boosted.probe("third"))
}

// TestBlacklistAfterExec: names are looked up again in the new program, ranges mean nothing
// there.
func TestBlacklistAfterExec(t *testing.T) {
	prog := start(t, "execer")
	s := attach(t, prog.PID(), kprobes.Options{Follow: true})
	old := symbol(t, s, "foo")
	if err := errors.Join(s.Blacklist("foo"), s.BlacklistRange(arch.Range{Start: 0, End: 1 << 47})); err != nil {
		t.Fatal(err)
	}
	refused(t, s, boosted.probe("main"))
	prog.Do("exec", "ready")
	if symbol(t, s, "foo") == old {
		t.Log("the new program lies where the old one did")
	}
	refused(t, s, boosted.probe("foo"))
	register(t, s, boosted.probe("main"))
	closeSession(t, s)
	wantRight(t, prog)
}

// TestBlacklistOfOurOwn (A22): the vdso, as the kernel's gate area; the code that signal handlers
// return to. The vsyscall page and our own region are tested with what else is refused.
func TestBlacklistOfOurOwn(t *testing.T) {
	prog := start(t, "signals")
	s := attach(t, prog.PID(), kprobes.Options{})
	refused(t, s, boosted.probeAt(mapping(t, prog.PID(), func(m procfs.Mapping) bool { return m.Path == "[vdso]" })))
	at := find(t, prog.PID(), append(bytes.Clone(sigreturn), host.Arch.SyscallInsn()...))
	refused(t, s, boosted.probeAt(at+7))
	if err := s.RegisterKprobe(boosted.probeAt(at)); err == nil { // glibc's frame begins a byte before
		t.Error("the start of the code that handlers return to can be probed")
	}
	prog.Do("run 100", "ran")
	closeSession(t, s)
	wantRight(t, prog)
}

// find is where the C library has pattern in its code.
func find(t *testing.T, pid int, pattern []byte) arch.Addr {
	t.Helper()
	maps, err := procfs.Maps(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if !m.Exec || !strings.Contains(m.Path, "libc.so") {
			continue
		}
		code := make([]byte, m.Range.Len())
		if err := (ptrace.PeekMemory{PID: pid}).ReadMemory(m.Range.Start, code); err != nil {
			t.Fatal(err)
		}
		if i := bytes.Index(code, pattern); i >= 0 {
			return m.Range.Start + arch.Addr(i)
		}
	}
	t.Fatal("the C library does not have it")
	return 0
}
