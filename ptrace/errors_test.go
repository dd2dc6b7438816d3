package ptrace

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// TestWhoHasDeparted: a process that has ended or called exec, as its memory and its requests tell.
func TestWhoHasDeparted(t *testing.T) {
	th := &Thread{TID: 7}
	for _, c := range []struct {
		err      error
		departed bool
	}{
		{nil, false}, {unix.EIO, false}, {ErrSeccomp, false}, {ErrNoThread, false},
		{ErrExited, true}, {fmt.Errorf("x: %w", ErrExited), true}, {th.gone(unix.ESRCH), true}, {unix.EFAULT, true},
		{fmt.Errorf("x: %w", &arch.FaultError{Cause: unix.EIO}), true},
	} {
		if got := Departed(c.err); got != c.departed {
			t.Errorf("%v: %v", c.err, got)
		}
	}
	if err := th.gone(unix.EIO); !errors.Is(err, unix.EIO) || errors.Is(err, ErrExited) || th.gone(nil) != nil {
		t.Errorf("another error: %v", err)
	}
	if !errors.Is(ErrExited, unix.ESRCH) {
		t.Error("ErrExited is no ESRCH")
	}
}
