package kprobes_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/kprobes"
)

// allNumbers is every number that a system call of the 64-bit ABI has or may get soon.
func allNumbers() []int {
	var all []int
	for nr := range 512 {
		all = append(all, nr)
	}
	return append(all, 1000)
}

func registerSyscall(t testing.TB, s *kprobes.Session, sp *kprobes.SyscallProbe) {
	t.Helper()
	if err := s.RegisterSyscallProbe(t.Context(), sp); err != nil {
		t.Fatalf("register: %v", err)
	}
}

var ways = []kprobes.SyscallWay{kprobes.SyscallBySites, kprobes.SyscallByStops}

// notBySites tells of the calls that the vdso makes, or that have a form which must not change.
func notBySites(nr int) bool {
	switch nr {
	case unix.SYS_RT_SIGRETURN, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY, unix.SYS_TIME, unix.SYS_GETCPU, unix.SYS_GETRANDOM:
		return true
	}
	return false
}

// TestAProgramCannotTellThatItsCallsStop: the program forks, executes, blocks and takes signals, with a probe
// on all its system calls.
func TestAProgramCannotTellThatItsCallsStop(t *testing.T) {
	commands := []string{"processes", "interrupt", "signals 2000", "same 500", "facts", "raw 2000", "dispatch", "only"}
	unprobed := start(t, "callsites")
	for _, command := range commands {
		want := answer(unprobed, command)
		for _, by := range ways {
			t.Run(command+"/"+by.String(), func(t *testing.T) {
				prog := start(t, "callsites")
				s := attach(t, prog.PID(), kprobes.Options{})
				entered, left := 0, 0
				numbers := allNumbers()
				if by == kprobes.SyscallBySites {
					numbers = slices.DeleteFunc(numbers, notBySites)
				}
				sp := &kprobes.SyscallProbe{
					Numbers: numbers, By: by,
					Enter: func(*kprobes.SyscallProbe, *kprobes.Regs) int { entered++; return 0 },
					Exit:  func(*kprobes.SyscallProbe, *kprobes.Regs) { left++ },
				}
				registerSyscall(t, s, sp)
				compareAnswers(t, command, answer(prog, command), want)
				if err := s.UnregisterSyscallProbe(sp); err != nil {
					t.Error(err)
				}
				if entered == 0 || left == 0 || left > entered {
					t.Errorf("%d calls were entered, %d were left", entered, left)
				}
				closeSession(t, s)
				wantRight(t, prog)
			})
		}
	}
	wantRight(t, unprobed)
}

// TestSyscallHandlersChangeACall: Enter skips a call or changes its number or its arguments, Exit its result.
func TestSyscallHandlersChangeACall(t *testing.T) {
	prog := start(t, "callsites")
	var pid, parent uint64
	who := prog.Do("who", "pid")
	if _, err := fmt.Sscanf(who, "pid %d parent %d", &pid, &parent); err != nil {
		t.Fatal(err)
	}
	prog.Expect("did")
	s := attach(t, prog.PID(), kprobes.Options{})
	for _, by := range ways {
		with := func(sp *kprobes.SyscallProbe, want uint64) {
			t.Helper()
			sp.Numbers, sp.By = []int{unix.SYS_GETPID}, by
			registerSyscall(t, s, sp)
			if got := number(t, prog.Do(fmt.Sprintf("one %d", unix.SYS_GETPID), "result"), "result"); got != want {
				t.Errorf("the result is %d, want %d", int64(got), int64(want))
			}
			prog.Expect("did")
			if err := s.UnregisterSyscallProbe(sp); err != nil {
				t.Error(err)
			}
			if sp.Hits() != 1 { // the fixture makes the call once more by itself
				t.Errorf("%d hits", sp.Hits())
			}
		}
		with(&kprobes.SyscallProbe{}, pid)
		with(&kprobes.SyscallProbe{Enter: func(sp *kprobes.SyscallProbe, r *kprobes.Regs) int {
			if r.Syscall() != unix.SYS_GETPID || r.SyscallArg(0) != 2 || r.SyscallArg(2) != 4 || r.SyscallArg(5) != 7 || r.SyscallArg(6) != 0 {
				t.Errorf("call %d(%d, …)", r.Syscall(), r.SyscallArg(0))
			}
			r.SetReturnValue(99)
			return 1
		}, Exit: func(*kprobes.SyscallProbe, *kprobes.Regs) { t.Error("Exit of a call that was not made") }}, 99)
		change := func(_ *kprobes.SyscallProbe, r *kprobes.Regs) int { r.SetReturnValue(unix.SYS_GETPPID); return 0 }
		with(&kprobes.SyscallProbe{Enter: change}, parent)
		with(&kprobes.SyscallProbe{Enter: change, Exit: func(_ *kprobes.SyscallProbe, r *kprobes.Regs) {
			if r.ReturnValue() != parent {
				t.Errorf("Exit sees %d, want %d", r.ReturnValue(), parent)
			}
			r.SetReturnValue(4711)
		}}, 4711)
	}
	closeSession(t, s)
	wantRight(t, prog)
}

// TestSyscallProbesComeAndGo: all of a program's calls are counted although memory is mapped, probes are placed and
// threads are frozen by others meanwhile.
func TestSyscallProbesComeAndGo(t *testing.T) {
	prog := start(t, "callsites")
	s := attach(t, prog.PID(), kprobes.Options{})
	var calls atomic.Uint64
	sp := &kprobes.SyscallProbe{Numbers: []int{unix.SYS_GETPID}, By: kprobes.SyscallByStops,
		Enter: func(_ *kprobes.SyscallProbe, r *kprobes.Regs) int { calls.Add(1); return 0 }}
	registerSyscall(t, s, sp)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
			}
			at, err := s.Alloc(4096)
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Free(at, 4096); err != nil {
				t.Error(err)
			}
			kp := boosted.probe("raw_site")
			if err := s.RegisterKprobe(kp); err != nil {
				t.Error(err)
				return
			}
			if err := s.UnregisterKprobe(kp); err != nil {
				t.Error(err)
			}
		}
	}()
	const n = 1500
	prog.Do(fmt.Sprintf("same %d", n), "did")
	close(stop)
	<-ended
	if want := uint64(8 * n); sp.Hits() != want || calls.Load() != want { // half of them check the others
		t.Errorf("%d hits, Enter ran %d times, want %d", sp.Hits(), calls.Load(), want)
	}
	closeSession(t, s)
	wantRight(t, prog)
}

// TestSystemCallsOfAnotherProgramAreNotSeen unless it is followed, and the probe's status tells that.
func TestSystemCallsOfAnotherProgramAreNotSeen(t *testing.T) {
	for _, by := range ways {
		for _, follow := range []bool{false, true} {
			prog := start(t, "execer")
			s := attach(t, prog.PID(), kprobes.Options{Follow: follow})
			sp := &kprobes.SyscallProbe{Numbers: []int{unix.SYS_WRITE}, By: by, Enter: func(*kprobes.SyscallProbe, *kprobes.Regs) int { return 0 }}
			registerSyscall(t, s, sp)
			prog.Do("call 1", "ret 14")
			if st := s.SyscallStatus(sp); st.Gone || sp.Hits() != 1 {
				t.Errorf("%v, follow %v: gone %v, %d hits", by, follow, st.Gone, sp.Hits())
			}
			prog.Do("exec", "ready 1")
			prog.Do("call 2", "ret 27")
			st := s.SyscallStatus(sp)
			hits := map[bool]uint64{false: 1, true: 3}[follow]
			if st.Gone == follow || strings.Contains(st.Reason, "executes another program") == follow || sp.Hits() != hits {
				t.Errorf("%v, follow %v: after an exec %+v, %d hits", by, follow, st, sp.Hits())
			}
			closeSession(t, s)
			wantRight(t, prog)
		}
	}
}
