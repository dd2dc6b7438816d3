package procfs

import (
	"errors"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

func TestParseStackPointerReadsWhatTheKernelPrints(t *testing.T) {
	for text, want := range map[string]arch.Addr{
		"running\n": 0,
		"0 0x3 0x7fba12b93000 0x20000 0x7fba12c25b60 0xffffffff 0x0 0x7ffc4601d928 0x7fba12d0e2ad\n": 0x7ffc4601d928,
		"-1 0x7ffc4601d928 0x7fba12d0e2ad\n": 0x7ffc4601d928,
	} {
		if got, err := ParseStackPointer(strings.NewReader(text)); got != want || err != nil {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "sleeping", "1 2", "-1 x 0x7fba12d0e2ad"} {
		if _, err := ParseStackPointer(strings.NewReader(text)); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v, want ErrFormat", text, err)
		}
	}
}
