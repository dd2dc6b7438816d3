package kprobes_test

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
)

// TestAProgramCannotTellThatItsCallsPass: it forks, executes, blocks and takes signals all the time, with probes that choose some of
// its calls, several at the same places.
func TestAProgramCannotTellThatItsCallsPass(t *testing.T) {
	commands := []string{"processes", "interrupt", "same 500", "facts", "raw 2000", "block", "wake"}
	for _, follow := range []bool{false, true} {
		t.Run(fmt.Sprintf("follow=%t", follow), func(t *testing.T) {
			prog := start(t, "callsites")
			want := map[string][]string{}
			for _, c := range commands {
				want[c] = answer(prog, c)
			}
			s := attach(t, prog.PID(), kprobes.Options{Follow: follow})
			var all []*kprobes.SyscallProbe
			few := []int{unix.SYS_READ, unix.SYS_FUTEX, unix.SYS_CLONE3, unix.SYS_WAIT4, unix.SYS_GETPID, unix.SYS_RT_SIGPROCMASK}
			for _, n := range []uint64{3, 100} {
				for _, numbers := range [][]int{few, slices.DeleteFunc(allNumbers(), notBySites)} {
					sp := choosing(kprobes.SyscallBySites, 0, n, 1, new(uint64))
					sp.Numbers = numbers
					sp.Enter = func(*kprobes.SyscallProbe, *kprobes.Regs) int { return 0 }
					all = append(all, sp)
				}
			}
			for _, sp := range all {
				registerSyscall(t, s, sp)
			}
			for _, c := range commands {
				compareAnswers(t, c, answer(prog, c), want[c])
			}
			stop := flood(prog)
			compareAnswers(t, "processes", answer(prog, "processes"), want["processes"])
			stop()
			for i, sp := range all {
				if sp.Hits() == 0 {
					t.Errorf("probe %d was never hit", i)
				}
			}
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestChosenCallsInALibraryThatComes are counted with the program's own.
func TestChosenCallsInALibraryThatComes(t *testing.T) {
	lib := testprog.Build(t, "libsys.so", "-shared", "-fPIC")
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			prog := start(t, "sysfails")
			s := attach(t, prog.PID(), kprobes.Options{})
			sp := &kprobes.SyscallProbe{
				Numbers: []int{unix.SYS_GETPID}, By: by,
				Enter:  func(_ *kprobes.SyscallProbe, r *kprobes.Regs) int { r.SetReturnValue(1); return 1 },
				Choose: program.Compare(program.Sequence(0), program.Equal, program.Const(0)), // the first
			}
			registerSyscall(t, s, sp)
			if got := prog.Do("load "+lib, "loaded"); got != "loaded other 1" {
				t.Error(got)
			}
			if sp.Hits() != 2 || sp.State(0) != 2 {
				t.Errorf("%d hits, %d counted", sp.Hits(), sp.State(0))
			}
			closeSession(t, s)
			prog.CheckClean()
		})
	}
}
