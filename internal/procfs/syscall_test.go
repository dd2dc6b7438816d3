package procfs

import (
	"errors"
	"strings"
	"testing"
)

func TestParseBlockedReadsWhatTheKernelPrints(t *testing.T) {
	for text, want := range map[string]Blocked{
		"0 0x3 0x7fba12b93000 0x20000 0x7fba12c25b60 0xffffffff 0x0 0x7ffc4601d928 0x7fba12d0e2ad\n": {0, 0x7ffc4601d928, 0x7fba12d0e2ad},
		"-1 0x7ffc4601d928 0x7fba12d0e2ad\n": {-1, 0x7ffc4601d928, 0x7fba12d0e2ad},
	} {
		if got, err := ParseBlocked(strings.NewReader(text)); got != want || err != nil {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	if _, err := ParseBlocked(strings.NewReader("running\n")); !errors.Is(err, ErrRunning) {
		t.Errorf("one that runs: %v", err)
	}
	for _, text := range []string{"", "sleeping", "1 2", "x 0x7ffc4601d928 0x7fba12d0e2ad", "-1 x 0x7fba12d0e2ad", "-1 0x7ffc4601d928 x"} {
		if _, err := ParseBlocked(strings.NewReader(text)); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v, want ErrFormat", text, err)
		}
	}
}
