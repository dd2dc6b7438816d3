package kprobes_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestACallThatBlocksDuringAttachIsNotMistakenForAHit: the read(2) in which the process waits
// is restarted before the breakpoint is there. The next one is a hit, and so is every one
// after it.
func TestACallThatBlocksDuringAttachIsNotMistakenForAHit(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "interrupts")
			waitSyscall(t, prog.PID(), unix.SYS_READ)
			s := attach(t, prog.PID(), kprobes.Options{})
			waitSyscall(t, prog.PID(), unix.SYS_READ)
			kp := m.probe("raw_read_insn")
			register(t, s, kp)
			waitSyscall(t, prog.PID(), unix.SYS_READ)
			before := kp.Hits() // of the read that waits, if it was restarted after all
			for range 10 {
				prog.Do("hello", "did")
			}
			waitSyscall(t, prog.PID(), unix.SYS_READ)
			wantHits(t, kp, before+10)
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

// TestACallRestartedWhileDisabledIsNotMistaken: the call was a hit, is interrupted by a stop,
// restarted while nobody looks, and done. The next call is another hit.
func TestACallRestartedWhileDisabledIsNotMistaken(t *testing.T) {
	prog := start(t, "interrupts")
	s := attach(t, prog.PID(), kprobes.Options{NoOptimize: true}) // which stops the thread too, at a time of its own
	kp := boosted.probe("raw_read_insn")
	register(t, s, kp)
	prog.Do("hello", "did")
	waitSyscall(t, prog.PID(), unix.SYS_READ)
	if err := s.DisableKprobe(kp); err != nil {
		t.Fatal(err)
	}
	register(t, s, boosted.probe("libc.so.6:abs")) // an arena of its own: stops the thread
	waitSyscall(t, prog.PID(), unix.SYS_READ)
	before := kp.Hits()
	if err := s.EnableKprobe(kp); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		prog.Do("hello", "did")
	}
	waitSyscall(t, prog.PID(), unix.SYS_READ)
	wantHits(t, kp, before+5)
}

// TestPostHandlersSeeInterruptedCalls: a call that a signal handler ends has an end.
func TestPostHandlersSeeInterruptedCalls(t *testing.T) {
	const calls = 20
	prog := start(t, "interrupts")
	s := attach(t, prog.PID(), kprobes.Options{})
	results := map[int64]int{}
	kp := boosted.probe("raw_pause_insn")
	kp.PostHandler = func(_ *kprobes.Kprobe, regs *kprobes.Regs, _ uint64) { results[int64(regs.ReturnValue())]++ }
	register(t, s, kp)
	prog.Do(fmt.Sprintf("pause %d", calls), "did")
	closeSession(t, s)
	const restartNoHand = -514 // ERESTARTNOHAND (include/linux/errno.h)
	if kp.Hits() != calls || results[restartNoHand] != calls || len(results) != 1 {
		t.Errorf("%d hits, results %v, want %d of %d", kp.Hits(), results, calls, restartNoHand)
	}
	wantRight(t, prog)
}

// TestOwnTrapsReachAHandlerInstalledLater: SIGTRAP is learned to have a handler when the first
// one is delivered; that one is not lost.
func TestOwnTrapsReachAHandlerInstalledLater(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "interrupts")
			prog.Do("handler", "did")
			want := prog.Do("step", "did")
			prog.Quit()
			for _, first := range []string{"own", "step"} {
				prog := start(t, "interrupts")
				s := attach(t, prog.PID(), kprobes.Options{})
				register(t, s, m.probe("jump_insn"))
				prog.Do("handler", "did")
				for _, command := range []string{first, "own", "step", "own"} {
					answer := map[string]string{"own": "did 1 traps 1", "step": want}[command]
					if got := prog.Do(command, "did"); got != answer {
						t.Errorf("%s: %q, want %q", command, got, answer)
					}
				}
				closeSession(t, s)
				wantRight(t, prog)
			}
		})
	}
}

// TestAFaultWhileTheSessionEndsTellsTheTruth: the copy's fault is still to be delivered when
// the slot goes.
func TestAFaultWhileTheSessionEndsTellsTheTruth(t *testing.T) {
	rounds := testsize.Rounds(10, 60, 1000)
	prog := start(t, "interrupts")
	prog.Send("divide")
	for range rounds {
		s := attach(t, prog.PID(), kprobes.Options{})
		register(t, s, boosted.probe("divide_insn"))
		closeSession(t, s)
	}
	prog.Do("hello", "did ")
	prog.Expect("did")
	wantRight(t, prog)
}

// TestUserDispatchDecidesAsForTheOriginal: the program lets only its own text make system
// calls (prctl(2), PR_SET_SYSCALL_USER_DISPATCH); the copy is elsewhere.
func TestUserDispatchDecidesAsForTheOriginal(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "interrupts")
			want := prog.Do("dispatch", "did")
			s := attach(t, prog.PID(), kprobes.Options{})
			kp := m.probe("raw_getpid_insn")
			register(t, s, kp)
			if got := prog.Do("dispatch", "did"); got != want {
				t.Errorf("probed: %q, unprobed: %q", got, want)
			}
			wantHits(t, kp, 1)
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

// TestProbesComeAndGoWhileTheLeaderMakesProbedCalls: the thread that is made to map memory
// stands at the entry of a system call of its own now and then.
func TestProbesComeAndGoWhileTheLeaderMakesProbedCalls(t *testing.T) {
	rounds := testsize.Rounds(4, 20, 500)
	prog := start(t, "interrupts")
	prog.Send("calls")
	for range rounds {
		s := attach(t, prog.PID(), kprobes.Options{})
		call, gone, far := stepped.probe("raw_getpid_insn"), boosted.probe("divide"), boosted.probe("libc.so.6:abs")
		register(t, s, call, gone)
		if err := s.UnregisterKprobe(gone); err != nil {
			t.Fatal(err)
		}
		register(t, s, far) // recycles the slot, then maps an arena
		closeSession(t, s)
	}
	prog.Do("hello", "did")
	prog.Expect("did")
	wantRight(t, prog)
}
