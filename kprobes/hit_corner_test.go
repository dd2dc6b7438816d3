package kprobes_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestEmulatedCallGrowsTheStack: the push of an emulated call may be the first access to
// a page of the stack.
func TestEmulatedCallGrowsTheStack(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "corner")
			s := attach(t, prog.PID(), kprobes.Options{})
			kp := m.probe("grow")
			kp.Offset = 8 // the call
			register(t, s, kp)
			prog.Do("growth 50000", "did")
			wantHits(t, kp, 50_000)
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

// TestPendingTrapStaysPending: the kernel loses a breakpoint's SIGTRAP beside one that
// waits already. The hit is one nevertheless, and the other signal keeps waiting.
func TestPendingTrapStaysPending(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "corner")
			s := attach(t, prog.PID(), kprobes.Options{})
			kp := m.probe("foo")
			register(t, s, kp)
			prog.Do("pending 100", "did")
			wantHits(t, kp, 100)
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

// TestOwnBreakpointsAreDelivered: not one of the program's own is lost while it is
// attached to and let go, again and again.
func TestOwnBreakpointsAreDelivered(t *testing.T) {
	prog := start(t, "corner")
	const n = 100_000
	prog.Do(fmt.Sprintf("own %d", n), "going")
	for range 20 {
		s := attach(t, prog.PID(), kprobes.Options{})
		register(t, s, boosted.probe("foo"))
		closeSession(t, s)
	}
	if got := number(t, prog.Expect("did"), "traps"); got != n {
		t.Errorf("%d traps, want %d", got, n)
	}
	wantRight(t, prog)
}

// TestFaultBesideAHeldSignal: the copied instruction faults while another signal waits
// for it. Both handlers see addresses of the program, and the fault is mended.
func TestFaultBesideAHeldSignal(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "corner")
			s := attach(t, prog.PID(), kprobes.Options{})
			kp := m.probe("fault_at")
			kp.Offset = 1
			odd := false
			kp.PreHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
				if odd = !odd; odd {
					if err := unix.Tgkill(r.PID(), r.TID(), unix.SIGUSR1); err != nil {
						t.Error(err)
					}
				}
				return 0
			}
			register(t, s, kp)
			did := prog.Do("fault 100", "did")
			if f, u := number(t, did, "faults"), number(t, did, "users"); f != 100 || u != 100 {
				t.Errorf("%s, want 100 of both", did)
			}
			wantHits(t, kp, 200) // the retry is a hit again
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

// TestKilledAtAnyMoment: whatever is under way when the target dies ends with an error
// that says so, and nothing hangs.
func TestKilledAtAnyMoment(t *testing.T) {
	rounds := testsize.Rounds(8, 40, 200)
	for i := range rounds {
		prog := start(t, "busy64", "8")
		killed := make(chan struct{})
		s, err := kprobes.Attach(context.Background(), prog.PID(), kprobes.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for step := 0; err == nil; step++ {
			if step == i%10 {
				go func() { prog.Signal(unix.SIGKILL); close(killed) }()
			}
			kp := boosted.probe("foo")
			if err = s.RegisterKprobe(kp); err == nil {
				err = s.UnregisterKprobe(kp)
			}
		}
		if !errors.Is(err, unix.ESRCH) {
			t.Errorf("round %d: %v, want ESRCH", i, err)
		}
		<-killed
		closeSession(t, s)
		prog.Kill()
	}
}

// TestGoexitInAHandler, which testing.T.Fatal is too, ends the session and lets the
// target go.
func TestGoexitInAHandler(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "prey"))
	s := attach(t, prog.PID(), kprobes.Options{Log: func(string) {}})
	register(t, s, &kprobes.Kprobe{SymbolName: "target", PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int {
		runtime.Goexit()
		return 0
	}})
	prog.Send("call target 30")
	<-s.Done()
	if got := prog.Expect("ret"); got != "ret 10" {
		t.Errorf("got %q", got)
	}
	closeSession(t, s)
	prog.CheckClean()
}
