package ptrace

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/host"
)

// TestWhatIsOverIsNotMadeAgain: of the calls that fail with EINTR some have had their effect.
func TestWhatIsOverIsNotMadeAgain(t *testing.T) {
	const usbBulk = 0xc0185502 // USBDEVFS_BULK
	for _, c := range []struct {
		name         string
		number       uint64
		command, arg uint64
		want         bool
	}{
		{"close", unix.SYS_CLOSE, 0, 0, false},
		{"bpf", unix.SYS_BPF, 0, 0, false},
		{"no call", ^uint64(0), 0, 0, false},
		{"tcsendbreak", unix.SYS_IOCTL, unix.TCSBRK, 0, false},
		{"tcdrain", unix.SYS_IOCTL, unix.TCSBRK, 1, true},
		{"a transfer by USB", unix.SYS_IOCTL, usbBulk, 1, false},
		{"a command with more bits than the kernel looks at", unix.SYS_IOCTL, 1<<32 | unix.TCSBRK, 1, true},
		{"fallocate", unix.SYS_FALLOCATE, 0, 0, true},
		{"preadv2", unix.SYS_PREADV2, 0, 0, true},
	} {
		var r host.Regs
		r.Orig_rax, r.Rsi, r.Rdx = c.number, c.command, c.arg
		if got := undone(&r); got != c.want {
			t.Errorf("%s: may be made again: %v, want %v", c.name, got, c.want)
		}
	}
}
