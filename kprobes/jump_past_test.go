package kprobes_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestAForkedChildGetsItsCodeBackWhateverJumpStoodThere: jumps that stood at one place one after the other differ in a byte or two, and any byte may be that of a
// breakpoint.
func TestAForkedChildGetsItsCodeBackWhateverJumpStoodThere(t *testing.T) {
	original := []byte{0xb8, 0x0e, 0, 0, 0}
	few := []byte{0xcc, 0, 0x0e, 0x8e, 0xcc}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		var jumps [][]byte
		for range 1 + rnd.IntN(5) {
			jump := []byte{0xe9, 0, 0, 0, 0}
			for i := range jump[1:] {
				jump[1+i] = few[rnd.IntN(len(few))]
			}
			jumps = append(jumps, jump)
		}
		now := jumps[rnd.IntN(len(jumps))]
		if got, err := kprobes.WithoutJump(original, now, jumps...); err != nil || !bytes.Equal(got, original) {
			t.Fatalf("of % x, of which % x stood there, % x is left, %v", jumps, now, got, err)
		}
	}
}
