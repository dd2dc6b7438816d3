package amd64

import (
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// A refusal tells of the bytes that were refused, also when they are others by the time that somebody reads it.
func TestARefusalTellsOfTheBytesThatItWasFor(t *testing.T) {
	code := []byte{0x0f, 0x04}
	err := undecodable("no instruction begins with % x", code)
	code[1] = 0x90
	if want := arch.ErrUndecodable.Error() + ": no instruction begins with 0f 04"; !errors.Is(err, arch.ErrUndecodable) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
