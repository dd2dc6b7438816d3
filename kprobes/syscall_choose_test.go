package kprobes_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
)

// choosing is a probe on nr whose Enter, which counts its runs, is for one in n calls.
func choosing(by kprobes.SyscallWay, nr int, n, seed uint64, ran *uint64) *kprobes.SyscallProbe {
	return &kprobes.SyscallProbe{
		Numbers: []int{nr}, By: by,
		Enter: func(_ *kprobes.SyscallProbe, r *kprobes.Regs) int {
			*ran++
			r.SetReturnValue(1)
			return 1
		},
		Choose: oneOf(n, seed),
	}
}

// TestCallsThatPassDoNotStop: of calls at libc's own places and at that of syscall(2), where a register has the number, those stop that are
// chosen.
func TestCallsThatPassDoNotStop(t *testing.T) {
	const calls, n, seed = 50_000, 1000, 5
	prog := start(t, "sysfails")
	s := attach(t, prog.PID(), kprobes.Options{})
	var ran uint64
	sp := choosing(kprobes.SyscallBySites, unix.SYS_GETPID, n, seed, &ran)
	registerSyscall(t, s, sp)
	s.WaitForOptimizer(t.Context())
	st := s.SyscallStatus(sp)
	if st.Passing < 2 && !testprog.BesideUprobes() || st.Passing > st.Optimized {
		t.Errorf("%d places of %d optimized have calls pass", st.Passing, st.Optimized)
	}
	before := s.Handled()
	got := prog.Do(fmt.Sprintf("raw %d", calls), "other")
	stops := s.Handled() - before
	lost := testprog.BesideUprobes() && s.SyscallStatus(sp).Passing < max(st.Passing, 2) // jumps, without which all calls stop
	if want := fmt.Sprintf("other %d", ran); got != want || ran == 0 || stops != ran && !lost {
		t.Errorf("%s, want %s; %d stops", got, want, stops)
	}
	if got := sp.Hits(); got != 2*calls+1 { // one is the program's own
		t.Errorf("%d hits", got)
	}
	if got := prog.Do("write 10", "failed"); got != "failed 0:" || sp.Hits() != 2*calls+1 {
		t.Errorf("%s, %d hits", got, sp.Hits())
	}
	if err := s.UnregisterSyscallProbe(sp); err != nil {
		t.Error(err)
	}
	prog.Do("raw 10", "other")
	if got := sp.Hits(); got != 2*calls+1 {
		t.Errorf("%d hits of a probe that is gone", got)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// chosenCalls is which of the program's writes return another number, by mechanism.
func chosenCalls(t *testing.T, by kprobes.SyscallWay, opts kprobes.Options, seed uint64) string {
	t.Helper()
	const calls, n = 1000, 20
	prog := start(t, "sysfails")
	s := attach(t, prog.PID(), opts)
	var ran uint64
	sp := choosing(by, unix.SYS_WRITE, n, seed, &ran)
	sp.Enter = func(_ *kprobes.SyscallProbe, r *kprobes.Regs) int {
		if r.SyscallArg(2) != 1 { // that the program answers with
			return 0
		}
		ran++
		failed := -int64(unix.ENOSPC)
		r.SetReturnValue(uint64(failed))
		return 1
	}
	registerSyscall(t, s, sp)
	s.WaitForOptimizer(t.Context())
	got := prog.Do(fmt.Sprintf("write %d", calls), "failed")
	if !strings.HasPrefix(got, fmt.Sprintf("failed %d:", ran)) || ran < calls/n/2 {
		t.Errorf("%s, %d chosen", got, ran)
	}
	if hits := sp.Hits(); hits != calls && hits != calls+1 { // its answer is a call too, which may not have come yet
		t.Errorf("%d hits", hits)
	}
	closeSession(t, s)
	prog.CheckClean()
	return got
}

// TestChosenCallsAreTheSame, those that the seed says, by sites, however these are probed, and by ptrace.
func TestChosenCallsAreTheSame(t *testing.T) {
	for _, seed := range []uint64{9, 90} {
		var numbers []string
		for _, i := range chosenOf(1000, 20, seed) {
			numbers = append(numbers, fmt.Sprint(i+1))
		}
		want := fmt.Sprintf("failed %d: %s", len(numbers), strings.Join(numbers, " "))
		for _, by := range ways {
			for _, opts := range []kprobes.Options{{}, {NoOptimize: true}} {
				if got := chosenCalls(t, by, opts, seed); got != want {
					t.Errorf("%s, %+v: %s\nwant %s", by, opts, got, want)
				}
			}
		}
	}
}

// TestChosenCallsOfThreadsAreExact: no call is counted twice or not at all, while the places change, and while the probe is silenced in between.
func TestChosenCallsOfThreadsAreExact(t *testing.T) {
	const threads, n, seed = 8, 50, 77
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			prog := start(t, "sysfails")
			s := attach(t, prog.PID(), kprobes.Options{})
			var ran uint64
			sp := choosing(by, unix.SYS_WRITE, n, seed, &ran)
			answers := uint64(0)
			sp.Enter = func(_ *kprobes.SyscallProbe, r *kprobes.Regs) int {
				if r.SyscallArg(2) != 1 {
					answers++
					return 0
				}
				ran++
				failed := -int64(unix.ENOSPC)
				r.SetReturnValue(uint64(failed))
				return 1
			}
			registerSyscall(t, s, sp)
			calls := 3000
			if by == kprobes.SyscallByStops {
				calls = 300
			}
			for i := range 6 {
				before := ran
				prog.Send(fmt.Sprintf("threads %d %d", threads, calls))
				ok(t, s.SetOptimization(i%2 == 0))
				s.WaitForOptimizer(t.Context())
				if got, want := prog.Expect("failed"), fmt.Sprintf("failed %d of %d", ran-before, threads*calls); got != want {
					t.Errorf("%s, want %s", got, want)
				}
			}
			ok(t, s.DisableSyscallProbe(sp))
			hits := sp.Hits()
			if made := uint64(6 * (threads*calls + 1)); hits < made-1 || hits > made || answers > 6 { // the last answer may be under way
				t.Errorf("%d hits of %d calls, %d answers chosen", hits, made, answers)
			}
			if got := prog.Do("write 500", "failed"); got != "failed 0:" || sp.Hits() != hits {
				t.Errorf("silenced: %s, %d hits, before %d", got, sp.Hits(), hits)
			}
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestExitIsForAllCalls that are made, chosen or not.
func TestExitIsForAllCalls(t *testing.T) {
	const calls, n, seed = 500, 10, 3
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			prog := start(t, "sysfails")
			s := attach(t, prog.PID(), kprobes.Options{})
			var ran, left uint64
			sp := choosing(by, unix.SYS_GETPID, n, seed, &ran)
			sp.Exit = func(*kprobes.SyscallProbe, *kprobes.Regs) { left++ }
			registerSyscall(t, s, sp)
			got := prog.Do(fmt.Sprintf("raw %d", calls), "other")
			if want := fmt.Sprintf("other %d", ran); got != want || sp.Hits() != 2*calls+1 || left != sp.Hits()-ran {
				t.Errorf("%s, want %s; %d hits, %d left", got, want, sp.Hits(), left)
			}
			if want := uint64(len(chosenOf(2*calls+1, n, seed))); ran != want {
				t.Errorf("%d chosen, want %d", ran, want)
			}
			closeSession(t, s)
			prog.CheckClean()
		})
	}
}

// TestChoicesThatMakeNoSense are refused, and nothing is armed.
func TestChoicesThatMakeNoSense(t *testing.T) {
	for want, choose := range map[string]program.Cond{
		"no register arg": program.Compare(program.Reg("arg"), program.Equal, program.Const(0)),
		"no cell 512":     program.Compare(program.Sequence(program.MaxCells-1), program.Equal, program.Const(0)),
	} {
		for _, by := range slices.Concat(ways, []kprobes.SyscallWay{kprobes.SyscallAuto}) {
			prog := start(t, "sysfails")
			s := attach(t, prog.PID(), kprobes.Options{})
			err := s.RegisterSyscallProbe(t.Context(), &kprobes.SyscallProbe{Numbers: []int{unix.SYS_GETPID}, By: by, Choose: choose})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", by, err, want)
			}
			closeSession(t, s)
			prog.CheckClean()
		}
	}
}
