package procfs

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// StackPointer is where the stack of thread tid of pid ended when the thread entered the
// kernel; 0 if the thread runs. It needs the right to trace the process.
func StackPointer(pid, tid int) (arch.Addr, error) {
	return load(path(pid, tid, "syscall"), ParseStackPointer)
}

// ParseStackPointer reads /proc/PID/syscall: "running", or numbers of which the last two are
// the stack pointer and the program counter (proc_pid_syscall in fs/proc/base.c).
func ParseStackPointer(r io.Reader) (arch.Addr, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return 0, err
	}
	words := strings.Fields(string(b))
	if len(words) == 1 && words[0] == "running" {
		return 0, nil
	}
	if len(words) != 3 && len(words) != 9 {
		return 0, fmt.Errorf("%w: %d words", ErrFormat, len(words))
	}
	sp, err := strconv.ParseUint(words[len(words)-2], 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: no stack pointer: %w", ErrFormat, err)
	}
	return arch.Addr(sp), nil
}
