package kprobes_test

import (
	"fmt"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestMasksAreTheProgramsOwn: threads block signals, trap, fault and hit at random, and know at each step what they block. Whatever a session
// changes of that, and whenever it begins or ends, they see none of it.
func TestMasksAreTheProgramsOwn(t *testing.T) {
	rounds := testsize.Rounds(10, 100, 3000)
	for _, kind := range []string{"handle", "nodefer", "block", "ignore", "default"} {
		for _, threads := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d threads", kind, threads), func(t *testing.T) {
				prog := start(t, "maskwalk", kind, fmt.Sprint(threads))
				prog.Do("walk 1000", "did walk")
				end := comeAndGo(t, prog, func(s *kprobes.Session, i int) (kps []*kprobes.Kprobe) {
					for j, at := range instructions(t, s, prog, "foo") {
						if (i+j)%2 == 0 {
							kps = append(kps, modes[(i+j)/2%2].probeAt(at))
						}
					}
					return kps
				})
				defer end()
				for range rounds {
					prog.Do("walk 1000", "did walk")
				}
			})
		}
	}
}
