package kprobes_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

// TestADeathAtAnEvent is not a test but the process that dieAt starts: it kills itself before the n-th look for a stop, wherever that comes from. One that
// leaves counts those of its Close alone.
func TestADeathAtAnEvent(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("GOKPROBE_TRACE"))
	n, nerr := strconv.Atoi(os.Getenv("GOKPROBE_DIE_AT"))
	if err != nil || nerr != nil {
		return
	}
	var events atomic.Int64
	defer kprobes.AtEvents(func() {
		if events.Add(1) == int64(n) || n < 0 && holdsSignals(pid) {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		}
	}, func(*ptrace.Tracer) {})()
	switch os.Getenv("GOKPROBE_DOES") {
	case "hold":
		s, err := kprobes.Attach(context.Background(), pid, kprobes.Options{})
		ok(t, err)
		register(t, s, stepped.probe("foo"))
		fmt.Println("armed")
		<-s.Done()
	case "recover":
		_, err = kprobes.Recover(context.Background(), pid)
		ok(t, err)
	case "leave":
		events.Store(math.MinInt32) // what comes before is not of interest
		s, err := kprobes.Attach(context.Background(), pid, kprobes.Options{})
		ok(t, err)
		register(t, s, boosted.probe("foo"), stepped.probe("six"), stepped.probe("worker"), &kprobes.Kprobe{SymbolName: "sum6"})
		s.WaitForOptimizer(t.Context())
		fmt.Println("armed")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		events.Store(0)
		ok(t, s.Close())
	case "follow":
		events.Store(math.MinInt32)
		s, err := kprobes.Attach(context.Background(), pid, kprobes.Options{Follow: true})
		ok(t, err)
		for i := range 20 {
			register(t, s, &kprobes.Kprobe{SymbolName: fmt.Sprintf("fn_%03d", i)})
		}
		s.WaitForOptimizer(t.Context())
		events.Store(0)
		fmt.Println("armed")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		ok(t, s.Close())
	default:
		s, err := kprobes.Attach(context.Background(), pid, kprobes.Options{})
		ok(t, err)
		register(t, s, boosted.probe("foo"), stepped.probe("six"), &kprobes.Kprobe{SymbolName: "sum6"})
		s.WaitForOptimizer(t.Context())
		ok(t, s.Close())
	}
	fmt.Printf("events %d\n", events.Load())
}

// dieAt has a process probe pid, recover it, or leave it, and die at event n, or never if that is 0. It returns how many there were, or 0 if it has died.
// before is called when one that is to leave is about to.
func dieAt(t *testing.T, pid, n int, does string, before func()) (events int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestADeathAtAnEvent$", "-test.timeout=30m")
	cmd.Env = append(os.Environ(), "GOKPROBE_TRACE="+strconv.Itoa(pid), "GOKPROBE_DIE_AT="+strconv.Itoa(n), "GOKPROBE_DOES="+does)
	in, err := cmd.StdinPipe()
	ok(t, err)
	r, w, err := os.Pipe()
	ok(t, err)
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	ok(t, cmd.Start())
	w.Close()
	lines := bufio.NewReader(r)
	if does != "probe" && does != "recover" {
		if line, err := lines.ReadString('\n'); line != "armed\n" {
			t.Errorf("the tracer says %q, then %v", line, err)
		}
		before()
		fmt.Fprintln(in)
	}
	out, rerr := io.ReadAll(lines)
	ok(t, rerr)
	err = cmd.Wait()
	if _, after, said := strings.Cut(string(out), "events "); said {
		if _, err := fmt.Sscan(after, &events); err != nil {
			t.Fatal(err)
		}
		return events
	}
	if st, is := cmd.ProcessState.Sys().(interface{ Signaled() bool }); !is || !st.Signaled() {
		t.Fatalf("to %s, and die at event %d: %v\n%s", does, n, err, out)
	}
	return 0
}

// TestADeathAtEachEventOfASession: who probes a program, leaves it, or puts right what a killed one has left there, dies itself at any point of that. The program works
// on, at work or waiting, whether or not there is untouched stack for a thread's frame; and what is left can be undone.
func TestADeathAtEachEventOfASession(t *testing.T) {
	const work = "threads 3 200 six"
	for _, does := range []string{"probe", "recover", "leave"} {
		for _, first := range []string{"", "call recurse 7000"} { // touches the initial stack's lowest pages
			for _, busy := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s-%t-%t", does, first != "", busy), func(t *testing.T) {
					r := rand.New(rand.NewPCG(testprog.Seed(t, 3), 0))
					prog := start(t, "prey")
					if first != "" {
						prog.Do(first, "ret")
					}
					want := prog.Do(work, "sum")
					events := 1 // at least
					for round := range deaths() {
						if does == "recover" {
							leaveProbed(t, prog.PID())
						}
						if busy && does != "leave" {
							prog.Send(work)
						}
						n := 1 + r.IntN(2*events)
						if round == 0 {
							n = 0
						}
						got := dieAt(t, prog.PID(), n, does, func() {
							if busy {
								prog.Send(work)
							}
						})
						if got > 0 {
							events = got
						}
						if busy {
							wantResult(t, prog.Expect("sum"), want, does, n)
						}
						wantResult(t, prog.Do(work, "sum"), want, does, n)
						recovered(t, prog.PID())
						wantResult(t, prog.Do(work, "sum"), want, does, n)
						prog.CheckClean()
					}
					wantRight(t, prog)
				})
			}
		}
	}
}

// TestADeathAtEachEventOfAFork: who follows a program dies while that forks, while the child calls what is probed, or while both are left. The child works on, and
// what is left in either can be undone.
func TestADeathAtEachEventOfAFork(t *testing.T) {
	const want = "sum 1499500"
	r := rand.New(rand.NewPCG(testprog.Seed(t, 7), 0))
	prog := start(t, "thousand")
	events := 1 // at least
	for round := range 4 * deaths() {
		n := 1 + r.IntN(2*events)
		if round == 0 {
			n = 0
		}
		child := 0
		got := dieAt(t, prog.PID(), n, "follow", func() {
			child = forked(t, prog)
			wantResult(t, prog.Do("call", "sum"), want, "follow", n)
		})
		if got > 0 {
			events = got
		}
		wantResult(t, prog.Do("call", "sum"), want, "follow", n)
		recovered(t, prog.PID())
		recovered(t, child)
		wantResult(t, prog.Do("call", "sum"), want, "follow", n)
		testprog.CheckClean(t, child)
		if st, err := procfs.ReadStatus(child, 0); err != nil || st.SigCgt != 0 {
			t.Fatalf("died at event %d: the child handles signals %#x, %v", n, st.SigCgt, err)
		}
		prog.Do("end", "ended")
		prog.CheckClean()
	}
	wantRight(t, prog)
}

// forked has the program fork a child.
func forked(t *testing.T, prog *testprog.Prog) (child int) {
	t.Helper()
	child, err := strconv.Atoi(strings.TrimPrefix(prog.Do("fork", "child"), "child "))
	ok(t, err)
	return child
}

func deaths() int { return testsize.Rounds(2, 8, 300) }

func wantResult(t *testing.T, got, want, does string, n int) {
	t.Helper()
	if got != want {
		t.Errorf("%s, died at event %d: %q, unprobed %q", does, n, got, want)
	}
}

// leaveProbed kills a tracer that has probes in the process.
func leaveProbed(t *testing.T, pid int) {
	t.Helper()
	t.Setenv("GOKPROBE_REMOTE", "guard")
	startTracer(t, pid, []string{"foo", "six", "sum6"})()
}

// holdsSignals tells of a process with one thread that its tracer holds signals back: it blocks all but those that instructions raise.
func holdsSignals(pid int) bool {
	st, err := procfs.ReadStatus(pid, 0)
	return err == nil && st.SigBlk.Has(int(unix.SIGUSR2)) && !st.SigBlk.Has(int(unix.SIGSEGV))
}

// TestMasksOfThreadsThatSignalsAreHeldForComeBack: the tracer is killed while a thread is in a copy, with signals held back. It gets those, and whoever recovers the process
// has it block what it blocked before.
func TestMasksOfThreadsThatSignalsAreHeldForComeBack(t *testing.T) {
	const work = "run 3000"
	prog := start(t, "signals", "alarms")
	alarms := func() (n int) {
		said := prog.Do(work, "ran")
		if _, err := fmt.Sscanf(said, "ran 3000 alarms %d", &n); err != nil {
			t.Fatalf("%q: %v", said, err)
		}
		return n
	}
	for range 4 {
		dieAt(t, prog.PID(), -1, "hold", func() {
			for died := false; !died; died = untraced(t, prog.PID()) {
				prog.Do(work, "ran")
			}
		})
		recovered(t, prog.PID())
		if holdsSignals(prog.PID()) {
			t.Fatal("recovered, the thread blocks signals that were held")
		}
		prog.CheckClean()
		for before := alarms(); alarms() <= before; {
		}
	}
	wantRight(t, prog)
}

// untraced tells that the process's tracer is dead.
func untraced(t *testing.T, pid int) bool {
	st, err := procfs.ReadStatus(pid, 0)
	ok(t, err)
	return st.TracerPid == 0
}
