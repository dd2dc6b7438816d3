package kprobes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

const (
	ofLibc  = uint64(1)<<31 | 1<<32 // glibc lets nobody block its own signals
	never   = uint64(1)<<(unix.SIGKILL-1) | 1<<(unix.SIGSTOP-1)
	ofTraps = uint64(1)<<(unix.SIGTRAP-1) | 1<<(unix.SIGILL-1)
	all     = ^uint64(0) &^ ofLibc &^ never
)

// TestThreadsThatBlockAllSignalsDoNotBlockThoseOfBreakpoints: as long as library functions are probed, however that is done. The masks of others are
// as the program says, before and after all are.
func TestThreadsThatBlockAllSignalsDoNotBlockThoseOfBreakpoints(t *testing.T) {
	for _, opts := range []kprobes.Options{{}, {NoOptimize: true}} {
		t.Run(fmt.Sprintf("%+v", opts.NoOptimize), func(t *testing.T) {
			prog := start(t, "blocker")
			const few = uint64(1)<<(unix.SIGTRAP-1) | 1<<(unix.SIGUSR1-1)
			look := func(probed bool) {
				t.Helper()
				for _, c := range []struct {
					command string
					want    uint64
				}{
					{"set 0", 0}, {"set ffffffffffffffff", all}, {"set 0", 0}, {"block fffffffe7fffffff", all}, {"set 0", 0},
					{fmt.Sprintf("set %x", few), few}, {"set 0", 0}, {fmt.Sprintf("block %x", all&^ofTraps), all &^ ofTraps}, {"set 0", 0},
				} {
					if probed && c.want == all {
						c.want &^= ofTraps
					}
					got := prog.Do(c.command, "blocked")
					if want := fmt.Sprintf("blocked %x", c.want); got != want {
						t.Errorf("probed %v, %s: %s, want %s", probed, c.command, got, want)
					}
					if of := mask(t, prog.PID()); of != c.want {
						t.Errorf("probed %v, %s: the kernel says %x, want %x", probed, c.command, of, c.want)
					}
				}
			}
			look(false)
			prog.Do("set ffffffffffffffff", "blocked")
			s := attach(t, prog.PID(), opts)
			register(t, s, &kprobes.Kprobe{SymbolName: "libc.so.6:getpid"})
			if of := mask(t, prog.PID()); of != all&^ofTraps {
				t.Errorf("blocked before the probe came: %x", of)
			}
			look(true)
			for range 2 {
				if got := prog.Do("action", "action"); got != "action default" { // its own
					t.Errorf("with a guard: %s", got)
				}
				if st, err := procfs.ReadStatus(prog.PID(), 0); err != nil || !st.SigCgt.Has(int(unix.SIGTRAP)) {
					t.Errorf("the guard has gone: %v", err)
				}
			}
			prog.Do("set ffffffffffffffff", "blocked")
			closeSession(t, s)
			if of := mask(t, prog.PID()); of != all {
				t.Errorf("blocked when we left: %x, want %x", of, all)
			}
			if got := prog.Do("action", "action"); got != "action default" {
				t.Errorf("after us: %s", got)
			}
			look(false)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestASetOfOwnMakingIsBlockedAsItWas: a set that is nearly all signals, and that a thread blocks when we come.
func TestASetOfOwnMakingIsBlockedAsItWas(t *testing.T) {
	prog := start(t, "blocker")
	const own = all &^ (1<<(unix.SIGINT-1) | 1<<(unix.SIGSEGV-1))
	set := fmt.Sprintf("set %x", own)
	prog.Do(set, "blocked")
	s := attach(t, prog.PID(), kprobes.Options{})
	register(t, s, &kprobes.Kprobe{SymbolName: "libc.so.6:getpid"})
	for range 2 {
		if of := mask(t, prog.PID()); of != own&^ofTraps {
			t.Errorf("with a guard: %x, want %x", of, own&^ofTraps)
		}
		prog.Do("set 0", "blocked")
		prog.Do(set, "blocked")
	}
	closeSession(t, s)
	if of := mask(t, prog.PID()); of != own {
		t.Errorf("when we left: %x, want %x", of, own)
	}
	prog.CheckClean()
	wantRight(t, prog)
}

// TestSetsThatAreMadeLater: a program blocks nearly all signals by sets that it did not have when we came, as SWI-Prolog does. Sets with few are
// blocked as they are; and so are those that come when there is no room for more.
func TestSetsThatAreMadeLater(t *testing.T) {
	for _, opts := range []kprobes.Options{{}, {NoOptimize: true}} {
		t.Run(fmt.Sprintf("%+v", opts.NoOptimize), func(t *testing.T) {
			prog := start(t, "blocker")
			s := attach(t, prog.PID(), opts)
			register(t, s, &kprobes.Kprobe{SymbolName: "libc.so.6:getpid"})
			const few = ofTraps | 1<<(unix.SIGUSR1-1)
			kept := 0
			for i := range 40 {
				own := all &^ (1<<(unix.SIGINT-1) | uint64(i)<<40)
				for range 2 {
					prog.Do("set 0", "blocked")
					prog.Do(fmt.Sprintf("set %x", own), "blocked")
					switch of := mask(t, prog.PID()); {
					case of == own && i > 10:
						kept++
					case of != own&^ofTraps:
						t.Errorf("set %d: %x, want %x", i, of, own&^ofTraps)
					}
				}
				prog.Do(fmt.Sprintf("set %x", few), "blocked")
				if of := mask(t, prog.PID()); of != few {
					t.Errorf("few signals: %x, want %x", of, few)
				}
			}
			if kept == 0 || kept%2 != 0 {
				t.Errorf("there was no room %d times", kept)
			}
			own := all &^ (1 << (unix.SIGINT - 1))
			prog.Do("set 0", "blocked")
			prog.Do(fmt.Sprintf("set %x", own), "blocked")
			closeSession(t, s)
			if of := mask(t, prog.PID()); of != own {
				t.Errorf("when we left: %x, want %x", of, own)
			}
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestSetsThatAreMadeAfterOurDeath, and passed for the first time then: the thread does not block SIGTRAP, and lives through the breakpoints that it comes to. The
// price is told in SECURITY.md: its set has changed.
func TestSetsThatAreMadeAfterOurDeath(t *testing.T) {
	for _, how := range []string{"count", "breakpoints", "returns"} {
		t.Run(how, func(t *testing.T) {
			prog := start(t, "blocker")
			want := prog.Do("threads 3", "joined")
			kill, _ := tracerToKill(t, prog, "TestLibraryTracer", "GOKPROBE_HOW="+how)
			kill()
			for i := range uint64(30) { // more than the table has room for
				own := all &^ (1<<(unix.SIGINT-1) | i<<40)
				less := own &^ ofTraps
				if got, want := prog.Do(fmt.Sprintf("pass %x", own), "passed"), fmt.Sprintf("passed %x %x", less, less); got != want {
					t.Errorf("%q, want %q", got, want)
				}
				if got := prog.Do("threads 3", "joined"); got != want {
					t.Errorf("threads: %s, unprobed %s", got, want)
				}
			}
			recoverAll(t, prog)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestSetsComeBackWhenAKilledTracersProgramIsPutRight: a thread has passed several sets. In the end it blocks what it has passed last.
func TestSetsComeBackWhenAKilledTracersProgramIsPutRight(t *testing.T) {
	for _, how := range []string{"count", "breakpoints"} {
		for _, n := range []uint64{1, 8, 14, 18} {
			t.Run(fmt.Sprintf("%s, %d sets", how, n), func(t *testing.T) {
				prog := start(t, "blocker")
				kill, _ := tracerToKill(t, prog, "TestLibraryTracer", "GOKPROBE_HOW="+how)
				want := uint64(0)
				for i := range n {
					prog.Do(fmt.Sprintf("set %x", all&^(1<<(unix.SIGINT-1)|i<<40)), "blocked")
					want = all &^ (1<<(unix.SIGINT-1) | i<<40 | 1<<(unix.SIGKILL-1) | 1<<(unix.SIGSTOP-1))
				}
				kill()
				recoverAll(t, prog)
				if got := mask(t, prog.PID()); got&^notForPrograms != want&^notForPrograms {
					t.Errorf("it blocks %#x, want %#x", got, want)
				}
				prog.CheckClean()
				wantRight(t, prog)
			})
		}
	}
}

// notForPrograms are the signals that the C library takes out of each set.
const notForPrograms = 1<<31 | 1<<32

func mask(t *testing.T, pid int) uint64 {
	t.Helper()
	st, err := procfs.ReadStatus(pid, pid)
	ok(t, err)
	return uint64(st.SigBlk)
}

// TestThreadsAndProcessesAreMadeAfterOurDeath: nearly all functions of the C library are probed, in three ways, when the tracer is killed; the program makes threads, and
// processes by posix_spawn, all the time. Neither it nor any of those dies.
func TestThreadsAndProcessesAreMadeAfterOurDeath(t *testing.T) {
	rounds := testsize.Rounds(3, 6, 300)
	for i := range rounds {
		how := []string{"count", "breakpoints", "returns"}[i%3]
		work := [][2]string{{"threads 20", "joined"}, {"spawn", "status"}}[i/3%2]
		t.Run(fmt.Sprintf("%d %s %s", i, how, work[0]), func(t *testing.T) {
			prog := start(t, "blocker")
			want := prog.Do(work[0], work[1])
			kill, _ := tracerToKill(t, prog, "TestLibraryTracer", "GOKPROBE_HOW="+how)
			check := func() {
				t.Helper()
				if got := prog.Do(work[0], work[1]); got != want {
					t.Fatalf("%s: %s, unprobed %s", work[0], got, want)
				}
			}
			for range rand.IntN(5) {
				check()
			}
			<-time.After(time.Duration(rand.IntN(60)) * time.Millisecond)
			prog.Send(work[0])
			kill()
			if got := prog.Expect(work[1]); got != want {
				t.Fatalf("%s while the tracer dies: %s, unprobed %s", work[0], got, want)
			}
			for range 5 {
				check()
			}
			recoverAll(t, prog)
			check()
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestADeathDuringAStepOverASystemCall: the kernel ends the step with a SIGTRAP when the call ends, though who has asked for it, as a guardian does that takes
// threads out of our code, has died meanwhile.
func TestADeathDuringAStepOverASystemCall(t *testing.T) {
	const stepping = "GOKPROBE_STEPS"
	if pid, err := strconv.Atoi(os.Getenv(stepping)); err == nil {
		stepAndDie(t, pid)
	}
	prog := start(t, "blocker")
	kill, _ := tracerToKill(t, prog, "TestLibraryTracer", "GOKPROBE_HOW=breakpoints")
	kill()
	for range 3 {
		steps := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
		steps.Env = append(os.Environ(), fmt.Sprintf("%s=%d", stepping, prog.PID()))
		if out, err := steps.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		prog.Do("set 0", "blocked")
	}
	recoverAll(t, prog)
	prog.CheckClean()
	wantRight(t, prog)
}

// stepAndDie steps a process that waits in read(2), and ends when it is in there again.
func stepAndDie(t *testing.T, pid int) {
	runtime.LockOSThread()
	waits := func() {
		for {
			if b, err := procfs.ReadBlocked(pid, pid); err == nil && b.Number == unix.SYS_READ {
				return
			}
		}
	}
	waits()
	ok(t, unix.PtraceSeize(pid))
	ok(t, unix.PtraceInterrupt(pid))
	_, err := unix.Wait4(pid, nil, unix.WALL, nil)
	ok(t, err)
	ok(t, unix.PtraceSingleStep(pid))
	for st, err := procfs.ReadStat(pid, pid); err == nil && st.State != 'S'; st, err = procfs.ReadStat(pid, pid) {
	}
	os.Exit(0)
}

func recoverAll(t *testing.T, prog *testprog.Prog) {
	t.Helper()
	_, err := kprobes.Recover(context.Background(), prog.PID())
	ok(t, err)
}

// TestLibraryTracer is not a test but the process that TestThreadsAndProcessesAreMadeAfterOurDeath kills.
func TestLibraryTracer(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("GOKPROBE_TRACE"))
	if err != nil {
		return
	}
	how := os.Getenv("GOKPROBE_HOW")
	s, err := kprobes.Attach(context.Background(), pid, kprobes.Options{NoOptimize: how == "breakpoints", Log: func(m string) { fmt.Fprintln(os.Stderr, "tracer:", m) }})
	ok(t, err)
	for _, part := range []string{"pthread", "spawn", "sig", "alloc", "free", "map", "clone", "getpagesize", "madvise", "mprotect", "exec"} {
		for _, sym := range s.Symbols().Symbols("libc.so.6:*" + part + "*") {
			if how == "returns" {
				_ = s.RegisterKretprobe(&kprobes.Kretprobe{KP: kprobes.Kprobe{Addr: sym.Addr}})
			} else {
				_ = s.RegisterKprobe(&kprobes.Kprobe{Addr: sym.Addr}) // what can't be probed is left
			}
		}
	}
	fmt.Println("optimized") // or about to be
	<-s.Done()
}
