package kprobes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

// TestSignalsThatAreBlockedWait for whom they are blocked for, as they would alone: also those that a thread which blocks nearly all signals does not block while we are
// there, so that it outlives us. They are sent before the attach, meanwhile, to the process or a thread, by the program itself or from outside; and what is blocked when we
// have left is what was.
func TestSignalsThatAreBlockedWait(t *testing.T) {
	for _, what := range []string{"all", "most", "parts", "few"} {
		for _, opts := range []kprobes.Options{{}, {NoOptimize: true}} {
			t.Run(fmt.Sprintf("%s, jumps %v", what, !opts.NoOptimize), func(t *testing.T) {
				prog := start(t, "waitedfor", what)
				mask := prog.Do("blocked", "blocked")
				s := attach(t, prog.PID(), opts)
				register(t, s, &kprobes.Kprobe{SymbolName: "foo"})
				for _, sym := range s.Symbols().Symbols("libc.so.6:*sig*") {
					_ = s.RegisterKprobe(&kprobes.Kprobe{Addr: sym.Addr})
				}
				for range 3 {
					for _, sig := range []unix.Signal{unix.SIGTRAP, unix.SIGILL, unix.SIGUSR1} {
						waitsFor(t, prog, sig)
					}
				}
				closeSession(t, s)
				wantAnswered(t, prog, "blocked", mask)
				for _, sig := range []unix.Signal{unix.SIGTRAP, unix.SIGILL} {
					waitsFor(t, prog, sig)
				}
				prog.CheckClean()
				wantRight(t, prog)
			})
		}
	}
}

// TestSignalsThatAreBlockedWaitWhenWeAreDead is that for a SIGTRAP and a tracer which is killed, until somebody puts the program right. A call that the signal finds may end
// with EINTR then.
func TestSignalsThatAreBlockedWaitWhenWeAreDead(t *testing.T) {
	for _, what := range []string{"all", "most", "parts"} {
		for i := range 5 {
			t.Run(fmt.Sprintf("%s-%d", what, i), func(t *testing.T) {
				t.Setenv("GOKPROBE_REMOTE", "jump")
				prog := start(t, "waitedfor", what)
				mask := prog.Do("blocked", "blocked")
				kill := startTracer(t, prog.PID(), []string{"foo"})
				kill()
				switch i % 3 {
				case 0:
					prog.Do("send 5", "sent")
				case 1:
					prog.Do("raise 5", "sent")
				case 2:
					ok(t, unix.Kill(prog.PID(), unix.SIGTRAP))
				}
				read := []string{"fd 5", "wait 5"}[i%2]
				if got := prog.Do(read, "got"); !strings.HasPrefix(got, "got 5 from ") {
					t.Errorf("%s: %q", read, got)
				}
				wantAnswered(t, prog, "pending 5", "pending 0")
				if done, err := kprobes.Recover(context.Background(), prog.PID()); err != nil || done.Regions != 1 {
					t.Errorf("recovered: %+v, %v", done, err)
				}
				wantAnswered(t, prog, "blocked", mask)
				waitsFor(t, prog, unix.SIGTRAP)
				prog.CheckClean()
				wantRight(t, prog)
			})
		}
	}
}

// TestWhoBlocksSIGTRAPKeepsItBlocked when it has blocked all signals for a moment, or the C library has, as it does around the making of processes and threads: then what is
// taken out of the full mask for the guard is out of that one only.
func TestWhoBlocksSIGTRAPKeepsItBlocked(t *testing.T) {
	moments := []string{"around", "spawn", "vfork", "fork", "thread"}
	for _, what := range []string{"trap", "few"} {
		for _, opts := range []kprobes.Options{{}, {NoOptimize: true}, {NoOptimize: true, Follow: true}} {
			t.Run(fmt.Sprintf("%s, jumps %v, follow %v", what, !opts.NoOptimize, opts.Follow), func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(testprog.Seed(t, 5), 0))
				prog := start(t, "waitedfor", what)
				mask := prog.Do("blocked", "blocked")
				s := attach(t, prog.PID(), opts)
				register(t, s, &kprobes.Kprobe{SymbolName: "foo"})
				for _, sym := range s.Symbols().Symbols("libc.so.6:*sig*") {
					_ = s.RegisterKprobe(&kprobes.Kprobe{Addr: sym.Addr})
				}
				for range testsize.Rounds(20, 60, 1000) {
					moment := moments[rnd.IntN(len(moments))]
					prog.Do("moment "+moment, "over")
					if rnd.IntN(2) == 0 {
						continue
					}
					prog.Do([]string{"raise 5", "send 5"}[rnd.IntN(2)], "sent")
					wantAnswered(t, prog, "pending 5", "pending 1")
					prog.Do([]string{"wait 5", "fd 5"}[rnd.IntN(2)], "got 5 from ") // the sender may be us
					wantAnswered(t, prog, "pending 5", "pending 0")
				}
				closeSession(t, s)
				wantAnswered(t, prog, "blocked", mask)
				waitsFor(t, prog, unix.SIGTRAP)
				prog.CheckClean()
				wantRight(t, prog)
			})
		}
	}
}

// TestWhoUnblocksSIGTRAPGetsIt: a thread that has blocked SIGTRAP at breakpoints, and does not any more, is killed by one as it would be alone.
func TestWhoUnblocksSIGTRAPGetsIt(t *testing.T) {
	for _, opts := range []kprobes.Options{{}, {NoOptimize: true}} {
		t.Run(fmt.Sprintf("jumps %v", !opts.NoOptimize), func(t *testing.T) {
			prog := start(t, "waitedfor", "trap")
			s := attach(t, prog.PID(), opts)
			register(t, s, &kprobes.Kprobe{SymbolName: "foo"})
			for range 20 {
				wantAnswered(t, prog, "raise 5", "sent")
				prog.Do("wait 5", "got 5 from ")
				wantAnswered(t, prog, "pending 5", "pending 0")
			}
			prog.Do("unblock 5", "unblocked")
			hasGuard := func() bool {
				st, err := procfs.ReadStatus(prog.PID(), 0)
				return err == nil && ptrace.Sigset(st.SigCgt).Has(unix.SIGTRAP)
			}
			for prog.Alive() && !hasGuard() { // put back some milliseconds after the last hit, which has found the signal blocked
				runtime.Gosched()
			}
			register(t, s, &kprobes.Kprobe{SymbolName: "libc.so.6:getppid"}) // behind that
			prog.Send("raise 5")
			if got := prog.Wait(); got.Signal != syscall.SIGTRAP {
				t.Errorf("it ended so: %+v; want a SIGTRAP", got)
			}
			closeSession(t, s)
		})
	}
}

// waitsFor sends sig in every way, and has the program read it in every way.
func waitsFor(t *testing.T, prog *testprog.Prog, sig unix.Signal) {
	t.Helper()
	for _, read := range []string{"fd", "wait"} {
		for _, send := range []string{"send", "raise", "outside", "later"} {
			got := ""
			switch send {
			case "outside":
				ok(t, unix.Kill(prog.PID(), sig))
			case "later":
				prog.Send(fmt.Sprintf("%s %d", read, sig))
				ok(t, unix.Kill(prog.PID(), sig))
				got = prog.Expect("got")
			default:
				prog.Do(fmt.Sprintf("%s %d", send, sig), "sent")
			}
			if send == "raise" {
				wantAnswered(t, prog, fmt.Sprintf("pending %d", sig), "pending 1")
			}
			if got == "" {
				got = prog.Do(fmt.Sprintf("%s %d", read, sig), "got")
			}
			if want := fmt.Sprintf("got %d from ", sig); !strings.HasPrefix(got, want) { // the sender may be us
				t.Errorf("%s, %s: %q", send, read, got)
			}
			wantAnswered(t, prog, fmt.Sprintf("pending %d", sig), "pending 0")
		}
	}
}

func wantAnswered(t *testing.T, prog *testprog.Prog, command, want string) {
	t.Helper()
	word, _, _ := strings.Cut(want, " ")
	if got := prog.Do(command, word); got != want {
		t.Errorf("%s: %q, not %q", command, got, want)
	}
}
