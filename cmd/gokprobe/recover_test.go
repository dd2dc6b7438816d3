package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestRecoverRunsUntilNothingIsLeft: memory to which a handler returns stays until it has.
func TestRecoverRunsUntilNothingIsLeft(t *testing.T) {
	var said strings.Builder
	std := stdio{err: &said}
	kept, asked := 3, 0
	once := func() (*kprobes.Recovered, error) {
		asked++
		kept--
		return &kprobes.Recovered{Regions: 1, Patches: 7 - asked, Kept: max(kept, 0)}, nil
	}
	done, err := recoverAll(std, os.Getpid(), once, func(time.Duration) bool { return true })
	if err != nil || done.Patches != 6 || asked != 3 || strings.Count(said.String(), "waiting") != 1 {
		t.Errorf("asked %d times: %+v, %v, %q", asked, done, err, said.String())
	}
	kept = 3
	if _, err := recoverAll(std, os.Getpid(), once, func(time.Duration) bool { return false }); !errors.Is(err, errStillUsed) {
		t.Errorf("interrupted: %v", err)
	}
}

// A process that is never done has most of the time for itself.
func TestAttemptsToRecoverAreApart(t *testing.T) {
	pause := time.Duration(0)
	for _, c := range []struct{ took, want time.Duration }{
		{0, 20 * time.Millisecond}, {time.Millisecond, 40 * time.Millisecond}, {time.Second, 4 * time.Second}, {time.Millisecond, time.Second}, {0, time.Second},
	} {
		if pause = pauseAfter(pause, c.took); pause != c.want {
			t.Errorf("%v after an attempt of %v, want %v", pause, c.took, c.want)
		}
	}
}
