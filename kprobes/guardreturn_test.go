package kprobes_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestTheGuardLeavesByNoSystemCall: the tracer is killed while all of a function is probed in random ways. The program keeps all its registers at what
// it then meets, and one whose seccomp filter ends it for rt_sigreturn(2), as for nearly all other calls, goes on.
func TestTheGuardLeavesByNoSystemCall(t *testing.T) {
	rounds := testsize.Rounds(3, 12, 200)
	for _, v := range []victim{
		{"keepregs", nil, "run 200", "ran", []string{"subject"}, 0},
		{"rev_jail", []string{"few"}, "foo 200", "did", []string{"foo"}, 0},
	} {
		for i := range rounds {
			t.Run(fmt.Sprintf("%s-%d", v.name, i), func(t *testing.T) {
				if v.args != nil && os.Geteuid() != 0 {
					t.Skip("only root may suspend a seccomp filter")
				}
				t.Setenv("GOKPROBE_REMOTE", "none")
				prog := start(t, v.name, v.args...)
				want := v.do(prog)
				kill := startTracer(t, prog.PID(), v.symbols)
				v.check(t, prog, want)
				prog.Send(v.work)
				kill()
				if got := prog.Expect(v.answer); got != want {
					t.Errorf("while we died: %q, want %q", got, want)
				}
				for range 3 {
					v.check(t, prog, want)
				}
				if done, err := kprobes.Recover(context.Background(), prog.PID()); err != nil || done.Regions != 1 {
					t.Errorf("recovered: %+v, %v", done, err)
				}
				prog.CheckClean()
				v.check(t, prog, want)
				wantRight(t, prog)
			})
		}
	}
}
