package ptrace

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestAProcessThatIsKilledInItsExecEnds: the kill comes when the exec has stopped, and the new program has not begun. Its parent, who waits for its end, waited
// for ever; and nobody was told that it has left its address space.
func TestAProcessThatIsKilledInItsExecEnds(t *testing.T) {
	for _, how := range []string{"fork", "vfork", "spawn"} {
		t.Run(how, func(t *testing.T) {
			k := probe(t, "spawner", "/bin/true")
			k.do(func() error {
				k.tr.OnEvent(func() {
					for _, p := range k.tr.procs {
						if p.oldSpace != nil {
							_ = unix.Kill(p.PID, unix.SIGKILL)
						}
					}
				})
				return nil
			})
			const rounds = 20
			for range rounds {
				if got := k.prog.Do(how+" 1", "child"); got != "child -1" {
					t.Errorf("the program says %q, want the end by a signal", got)
				}
			}
			if execed, left := k.seen("execed"), k.seen("left"); execed+left != rounds || left == 0 {
				t.Errorf("of %d processes %d were told to run a new program, and %d to have left the old one", rounds, execed, left)
			}
			k.end()
		})
	}
}
