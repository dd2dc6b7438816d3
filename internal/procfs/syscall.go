package procfs

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// Blocked is where a thread waits in the kernel.
type Blocked struct {
	Number int // of the system call; -1 if it waits for something else, as in a page fault
	SP, PC arch.Addr
}

// ErrRunning is that of a thread that does not wait in the kernel.
var ErrRunning = errors.New("the thread runs")

// ReadBlocked says where thread tid of pid waits. It needs the right to trace the process.
func ReadBlocked(pid, tid int) (Blocked, error) { return load(path(pid, tid, "syscall"), ParseBlocked) }

// StackPointer is where the stack of thread tid of pid ended when the thread entered the
// kernel; 0 if the thread runs. It needs the right to trace the process.
func StackPointer(pid, tid int) (arch.Addr, error) {
	b, err := ReadBlocked(pid, tid)
	if errors.Is(err, ErrRunning) {
		return 0, nil
	}
	return b.SP, err
}

// ParseBlocked reads /proc/PID/syscall: "running", or the call's number, its arguments if that is one, the stack pointer and the program
// counter (proc_pid_syscall in fs/proc/base.c).
func ParseBlocked(r io.Reader) (b Blocked, err error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return b, err
	}
	words := strings.Fields(string(text))
	if len(words) == 1 && words[0] == "running" {
		return b, ErrRunning
	}
	if len(words) != 3 && len(words) != 9 {
		return b, fmt.Errorf("%w: %d words", ErrFormat, len(words))
	}
	number, err := strconv.ParseInt(words[0], 0, 32)
	if err != nil {
		return b, fmt.Errorf("%w: no number of a system call: %w", ErrFormat, err)
	}
	sp, err := strconv.ParseUint(words[len(words)-2], 0, 64)
	if err != nil {
		return b, fmt.Errorf("%w: no stack pointer: %w", ErrFormat, err)
	}
	pc, err := strconv.ParseUint(words[len(words)-1], 0, 64)
	if err != nil {
		return b, fmt.Errorf("%w: no program counter: %w", ErrFormat, err)
	}
	return Blocked{int(number), arch.Addr(sp), arch.Addr(pc)}, nil
}
