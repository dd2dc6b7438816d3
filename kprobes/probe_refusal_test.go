package kprobes_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestWhatCannotBeProbedIsRefusedByName: the rest of what there is in programs, each with
// the errno that the kernel would give it. Breakpoints of the program's own are tested
// among the faults.
func TestWhatCannotBeProbedIsRefusedByName(t *testing.T) {
	const vsyscall = 0xffffffffff600000
	prog := start(t, "rough")
	s := attach(t, prog.PID(), kprobes.Options{})
	tests := []struct {
		name  string
		kp    *kprobes.Kprobe
		named error
		errno unix.Errno
	}{
		{"a table in text", &kprobes.Kprobe{Addr: symbol(t, s, "lookup") - 8}, kprobes.ErrData, unix.EILSEQ},
		{"start of a restartable sequence", &kprobes.Kprobe{SymbolName: "seq_first"}, kprobes.ErrRestartable, unix.EINVAL},
		{"inside a restartable sequence", &kprobes.Kprobe{SymbolName: "seq_inside"}, kprobes.ErrRestartable, unix.EINVAL},
		{"signature of its abort address", &kprobes.Kprobe{SymbolName: "seq_behind", Offset: 1}, kprobes.ErrRestartable, unix.EINVAL},
		{"66 e9", &kprobes.Kprobe{SymbolName: "narrow", Offset: 4}, arch.ErrOperandSize, unix.EILSEQ},
	}
	maps, err := procfs.Maps(prog.PID())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if m.Path == "[vsyscall]" {
			tests = append(tests, tests[0])
			last := &tests[len(tests)-1]
			last.name, last.kp, last.named, last.errno = "vsyscall", &kprobes.Kprobe{Addr: vsyscall}, kprobes.ErrBlacklisted, unix.EINVAL
		}
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := s.RegisterKprobe(test.kp)
			if !errors.Is(err, test.named) || !errors.Is(err, test.errno) {
				t.Errorf("got %v, want %v and %v", err, test.named, test.errno)
			}
		})
	}
	before, behind := boosted.probe("sequence"), boosted.probe("seq_behind")
	register(t, s, before, behind)
	for range 100 {
		prog.Do("rough 7", "did")
	}
	wantHits(t, before, 100)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}
