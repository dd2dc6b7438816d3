package recovery

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
)

// TestADeadTracersStepIsNoSignalOfTheProgram: of a step over an instruction, and over a system call; int1 is the program's own, and so is a step
// of a program that traces itself.
func TestADeadTracersStepIsNoSignalOfTheProgram(t *testing.T) {
	const page, traces = 0x1000, 1 << 8 // TF
	code := make([]byte, 64)
	copy(code[8:], host.Arch.SyscallInsn())
	copy(code[16:], host.OwnTrap)
	l := &leftover{mem: &fakeMemory{maps: map[arch.Addr][]byte{page: code}}}
	for _, c := range []struct {
		what  string
		code  uint32
		ip    arch.Addr
		flags uint64
		ours  bool
	}{
		{"an instruction", 2, page + 20, 0, true},
		{"an instruction of a program that traces itself", 2, page + 20, traces, false},
		{"a system call", 1, page + 10, 0, true},
		{"a return from a signal's handler", 1, page + 30, 0, true},
		{"a return to where nothing is in front of", 1, page, 0, true},
		{"a system call of a program that traces itself", 1, page + 10, traces, false},
		{"int1", 1, page + 17, 0, false},
		{"a debug register", 4, page + 20, 0, false},
	} {
		info := &ptrace.Siginfo{}
		binary.LittleEndian.PutUint32(info[0:], uint32(unix.SIGTRAP))
		binary.LittleEndian.PutUint32(info[8:], c.code)
		regs := &host.Regs{Rip: uint64(c.ip), Eflags: c.flags}
		if to, ours := l.afterTrap(info, regs); ours != c.ours || ours && to != c.ip {
			t.Errorf("%s: the thread goes on at %s, %t", c.what, to, ours)
		}
	}
}
