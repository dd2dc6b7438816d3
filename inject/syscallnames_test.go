package inject

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/host"
)

// TestNamesOfSystemCalls: the table against constants of x/sys, at the ends of its runs and here and there.
func TestNamesOfSystemCalls(t *testing.T) {
	for name, nr := range map[string]int{
		"read": unix.SYS_READ, "write": unix.SYS_WRITE, "clone": unix.SYS_CLONE, "execve": unix.SYS_EXECVE, "gettid": unix.SYS_GETTID,
		"openat": unix.SYS_OPENAT, "newfstatat": unix.SYS_NEWFSTATAT, "accept4": unix.SYS_ACCEPT4, "getrandom": unix.SYS_GETRANDOM, "statx": unix.SYS_STATX,
		"rseq": unix.SYS_RSEQ, "pidfd_send_signal": unix.SYS_PIDFD_SEND_SIGNAL, "clone3": unix.SYS_CLONE3, "openat2": unix.SYS_OPENAT2,
		"epoll_pwait2": unix.SYS_EPOLL_PWAIT2, "mseal": unix.SYS_MSEAL, "exit_group": unix.SYS_EXIT_GROUP, "restart_syscall": unix.SYS_RESTART_SYSCALL,
	} {
		if got, err := ParseSyscalls(name); err != nil || !slices.Equal(got, []int{nr}) || SyscallName(nr) != name {
			t.Errorf("%s: %v, %v, want %d, which is %s", name, got, err, nr, SyscallName(nr))
		}
	}
	for class, names := range callClasses {
		for _, name := range strings.Fields(names) {
			if _, ok := host.CallNumbers[name]; !ok {
				t.Errorf("%s of class %s is no system call", name, class)
			}
		}
	}
}

func TestSetsOfSystemCalls(t *testing.T) {
	for _, c := range []struct {
		text string
		want []int
	}{
		{"257", []int{257}},
		{"0x101", []int{257}},
		{"openat, open", []int{2, 257}},
		{"open,2,open*", []int{2, 257, 304, 428, 437, 467}},
		{"/^f(ork|lock)$", []int{57, 73}},
		{"%ipc", []int{29, 30, 31, 64, 65, 66, 67, 68, 69, 70, 71, 220}},
		{"1000", []int{1000}},
	} {
		if got, err := ParseSyscalls(c.text); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"", "opennat", "-1", "70000", "x*", "/(", "%nothing", "open,,write"} {
		if got, err := ParseSyscalls(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
