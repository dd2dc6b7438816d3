package kprobes_test

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestAChangedCallIsEverybodys: what one Enter changes about a call the next ones see, in the order of registration.
func TestAChangedCallIsEverybodys(t *testing.T) {
	for _, exits := range []bool{false, true} {
		for _, by := range ways {
			t.Run(fmt.Sprint(by, exits), func(t *testing.T) {
				prog := start(t, "callsites")
				s := attach(t, prog.PID(), kprobes.Options{})
				var saw [3][]uint64
				left, was := 0, uint64(0)
				for i := range saw {
					sp := &kprobes.SyscallProbe{Numbers: []int{unix.SYS_GETPID}, By: by, Enter: func(_ *kprobes.SyscallProbe, r *kprobes.Regs) int {
						if r.Syscall() != unix.SYS_GETPID {
							t.Errorf("probe %d sees call %d", i, r.Syscall())
						}
						saw[i] = append(saw[i], r.SyscallArg(0))
						if i == 0 {
							was = r.SyscallArg(0)
						}
						r.SetSyscallArg(0, []uint64{100, 101, was}[i]) // the program checks its registers
						return 0
					}}
					if exits {
						sp.Exit = func(*kprobes.SyscallProbe, *kprobes.Regs) { left++ }
					}
					registerSyscall(t, s, sp)
				}
				prog.Do("same 20", "did")
				closeSession(t, s)
				for i, args := range saw {
					if len(args) != 8*20 || i > 0 && slices.ContainsFunc(args, func(a uint64) bool { return a != uint64(99+i) }) {
						t.Errorf("probe %d sees %d calls: %v", i, len(args), args)
					}
				}
				if exits && left != 3*8*20 {
					t.Errorf("%d Exits", left)
				}
				wantRight(t, prog)
			})
		}
	}
}
