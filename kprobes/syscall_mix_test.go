package kprobes_test

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestSyscallProbesAmongOtherProbes: everything at once: Kprobes on all system-call instructions, SyscallProbes by both ways on all calls,
// blocked threads, signals all the time, children that are followed and let go. All results are those of an unprobed run.
func TestSyscallProbesAmongOtherProbes(t *testing.T) {
	commands := []string{"processes", "interrupt", "raw 200", "block", "wake"}
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "callsites")
			want := map[string][]string{}
			for _, c := range commands {
				want[c] = answer(prog, c)
			}
			sites := syscallSites(t, prog.PID())
			s := attach(t, prog.PID(), kprobes.Options{Follow: m == stepped})
			entered := map[kprobes.SyscallWay]int{}
			for _, by := range ways {
				numbers := allNumbers()
				if by == kprobes.SyscallBySites {
					numbers = slices.DeleteFunc(numbers, notBySites)
				}
				registerSyscall(t, s, &kprobes.SyscallProbe{Numbers: numbers, By: by, Enter: func(*kprobes.SyscallProbe, *kprobes.Regs) int {
					entered[by]++
					return 0
				}})
			}
			probeAll(t, s, m, sites)
			for _, c := range commands {
				compareAnswers(t, c, answer(prog, c), want[c])
			}
			stop := flood(prog)
			compareAnswers(t, "processes", answer(prog, "processes"), want["processes"])
			stop()
			closeSession(t, s)
			if entered[kprobes.SyscallBySites] == 0 || entered[kprobes.SyscallByStops] < entered[kprobes.SyscallBySites] {
				t.Errorf("calls: %v", entered)
			}
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestDetachFromThreadsThatStopAtCalls: the session ends while threads are blocked in calls that it has seen begin, and while others make
// one after the other.
func TestDetachFromThreadsThatStopAtCalls(t *testing.T) {
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			prog := start(t, "callsites")
			want := answer(prog, "block")
			wantWake := answer(prog, "wake")
			for range 5 {
				s := attach(t, prog.PID(), kprobes.Options{})
				registerSyscall(t, s, &kprobes.SyscallProbe{
					Numbers: slices.DeleteFunc(allNumbers(), notBySites), By: by,
					Enter: func(*kprobes.SyscallProbe, *kprobes.Regs) int { return 0 },
					Exit:  func(*kprobes.SyscallProbe, *kprobes.Regs) {},
				})
				compareAnswers(t, "block", answer(prog, "block"), want)
				prog.Send("raw 1000")
				closeSession(t, s)
				prog.CheckClean()
				prog.Expect("did")
				compareAnswers(t, "wake", answer(prog, "wake"), wantWake)
			}
			wantRight(t, prog)
		})
	}
}

// TestDetachAtTheEntryToACall: the session ends, by a handler, where a thread stands at the entry to a call that fails with EINTR if anything interrupts
// it. Nothing of the program's has.
func TestDetachAtTheEntryToACall(t *testing.T) {
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			prog := start(t, "edge")
			for range 5 {
				s := attach(t, prog.PID(), kprobes.Options{})
				entered := make(chan struct{})
				registerSyscall(t, s, &kprobes.SyscallProbe{Numbers: []int{unix.SYS_EPOLL_WAIT}, By: by, Enter: func(*kprobes.SyscallProbe, *kprobes.Regs) int {
					ok(t, s.Close())
					close(entered)
					return 0
				}})
				prog.Do("epoll", "going")
				<-entered
				prog.CheckClean()
				if got := prog.Do("end", "did"); got != "did 1 errno 0" {
					t.Errorf("epoll_wait: %q", got)
				}
			}
			wantRight(t, prog)
		})
	}
}

// TestDetachAtTheEntryToACallThatTakesTime: the same of calls that are not to wait for events, but fail, or do a part, if anything interrupts them.
func TestDetachAtTheEntryToACallThatTakesTime(t *testing.T) {
	prog := start(t, "everycall")
	for _, call := range []struct {
		number        int
		command, want string
	}{
		{unix.SYS_FALLOCATE, "long 1", "did 1"}, {unix.SYS_IOCTL, "drain", "did"}, {unix.SYS_WRITE, "whole", "did 1048576"},
	} {
		s := attach(t, prog.PID(), kprobes.Options{})
		registerSyscall(t, s, &kprobes.SyscallProbe{Numbers: []int{call.number}, By: kprobes.SyscallByStops, Enter: func(_ *kprobes.SyscallProbe, r *kprobes.Regs) int {
			if call.number != unix.SYS_IOCTL || r.SyscallArg(1) == unix.TCSBRK {
				ok(t, s.Close())
			}
			return 0
		}})
		if got := prog.Do(call.command, "did"); got != call.want {
			t.Errorf("%s: %q, want %q", call.command, got, call.want)
		}
		ok(t, s.Close())
		prog.CheckClean()
	}
	wantRight(t, prog)
}

// TestDetachAtTheEntryToAFilteredCall: the same of all calls with timeouts, for programs whose filter ends them for restart_syscall(2), or is asked of a call that
// there is not.
func TestDetachAtTheEntryToAFilteredCall(t *testing.T) {
	filters := []string{"list"}
	if testsize.Torture() {
		filters = []string{"process", "thread", "trap", "errno", "list"}
	}
	numbers := []int{
		unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2, unix.SYS_SEMTIMEDOP, unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_IO_GETEVENTS, unix.SYS_IO_PGETEVENTS,
		unix.SYS_SELECT, unix.SYS_PSELECT6, unix.SYS_PPOLL, unix.SYS_POLL, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_FUTEX,
		unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_PREADV2, unix.SYS_ACCEPT, unix.SYS_CONNECT, unix.SYS_SENDTO, unix.SYS_PWRITEV2, unix.SYS_SPLICE, unix.SYS_SENDFILE,
	}
	for _, filter := range filters {
		t.Run(filter, func(t *testing.T) {
			prog := start(t, "timeouts", filter)
			for _, name := range strings.Fields(prog.Do("waits", "did"))[1:] {
				want := prog.Do("wait "+name, "did")
				s := attach(t, prog.PID(), kprobes.Options{})
				registerSyscall(t, s, &kprobes.SyscallProbe{Numbers: numbers, By: kprobes.SyscallByStops, Enter: func(*kprobes.SyscallProbe, *kprobes.Regs) int {
					ok(t, s.Close())
					return 0
				}})
				if got := prog.Do("wait "+name, "did"); got != want {
					t.Errorf("%q, unprobed %q", got, want)
				}
				ok(t, s.Close())
				prog.CheckClean()
			}
			wantRight(t, prog)
		})
	}
}

// TestHandlersOfCallsUseTheProcess: an Enter maps memory in the process, which takes its own thread out of the call, calls
// a function, and ends the session.
func TestHandlersOfCallsUseTheProcess(t *testing.T) {
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			prog := start(t, "callsites")
			s := attach(t, prog.PID(), kprobes.Options{})
			n := 0
			registerSyscall(t, s, &kprobes.SyscallProbe{Numbers: []int{unix.SYS_GETPID}, By: by, Enter: func(_ *kprobes.SyscallProbe, r *kprobes.Regs) int {
				at, err := r.Alloc(4096)
				if err == nil {
					err = r.Free(at, 4096)
				}
				if err != nil {
					t.Error(err)
				}
				n++
				if r.Syscall() != unix.SYS_GETPID {
					t.Errorf("call %d", r.Syscall())
				}
				return 0
			}})
			prog.Do("same 20", "did")
			if n != 8*20 {
				t.Errorf("Enter ran %d times", n)
			}
			registerSyscall(t, s, &kprobes.SyscallProbe{Numbers: []int{unix.SYS_GETPPID}, By: by, Enter: func(_ *kprobes.SyscallProbe, r *kprobes.Regs) int {
				closeSession(t, s)
				return 0
			}})
			prog.Do("who", "did")
			<-s.Done()
			prog.CheckClean()
			prog.Do("same 20", "did")
			wantRight(t, prog)
		})
	}
}
