package kprobes_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/guardian"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// guarded has a process that runs this test binary opt in to a guardian. All other tests are without.
const guarded = "GOKPROBE_TEST_GUARDED"

func TestMain(m *testing.M) {
	if guardian.Is() || os.Getenv(guarded) != "" {
		kprobes.GuardianMain()
	}
	found := kprobes.WatchGivenBack()
	code := m.Run()
	if n := found(); n > 0 {
		fmt.Fprintf(os.Stderr, "fatal error: memory was given back %d times that somebody was left in, first:\n%s\n", n, kprobes.FirstGivenBack()) // where all tests have passed, the words are looked for that end a program
		code = max(code, 1)
	}
	os.Exit(code)
}

// guardedTracer is a process that traces and has a guardian.
type guardedTracer struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.Writer
	lines *bufio.Reader
	err   *os.File // its standard error, which its guardian has, too
	dead  sync.Once
}

// startGuarded starts one. It attaches to pid, and says so.
func startGuarded(t *testing.T, pid int, env ...string) *guardedTracer {
	t.Helper()
	return startGuardedWith(t, pid, nil, env...)
}

// startGuardedWith is startGuarded for a tracer that is given files, from descriptor 3 on.
func startGuardedWith(t *testing.T, pid int, files []*os.File, env ...string) *guardedTracer {
	t.Helper()
	r, w, err := os.Pipe()
	ok(t, err)
	g := &guardedTracer{t: t, err: r}
	g.cmd = exec.Command("/proc/self/exe", "-test.run=^TestGuardedTracer$", "-test.timeout=30m")
	g.cmd.Env = append(append(os.Environ(), "GOKPROBE_TRACE="+strconv.Itoa(pid), guarded+"=1"), env...)
	g.cmd.Stderr, g.cmd.ExtraFiles = w, files
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := g.cmd.StdinPipe()
	ok(t, err)
	out, err := g.cmd.StdoutPipe()
	ok(t, err)
	ok(t, g.cmd.Start())
	w.Close()
	g.in, g.lines = in, bufio.NewReader(out)
	t.Cleanup(func() {
		g.kill()
		r.Close()
	})
	if line := g.line(); line != "attaching" {
		t.Fatalf("the tracer says %q", line)
	}
	return g
}

func (g *guardedTracer) line() string {
	line, _ := g.lines.ReadString('\n')
	return strings.TrimSuffix(line, "\n")
}

// ask is the answer to a command.
func (g *guardedTracer) ask(command string) string {
	fmt.Fprintln(g.in, command)
	return g.line()
}

// guardian is its guardian's PID. It asks until there is one, another than not.
func (g *guardedTracer) guardian(not int) int {
	g.t.Helper()
	for {
		pid, err := strconv.Atoi(g.ask("guardian"))
		if err != nil {
			g.t.Fatal(err)
		}
		if pid != 0 && pid != not {
			return pid
		}
	}
}

func (g *guardedTracer) kill() { g.end(syscall.SIGKILL) }

// end sends a signal to the tracer's process group and waits for the tracer's end.
func (g *guardedTracer) end(sig syscall.Signal) {
	g.dead.Do(func() {
		_ = syscall.Kill(-g.cmd.Process.Pid, sig)
		_ = g.cmd.Wait()
	})
}

// said is what tracer and guardian have said, when both have ended, or the guardian has to wait for something longer.
func (g *guardedTracer) said() string {
	b, err := io.ReadAll(g.err)
	ok(g.t, err)
	return string(b)
}

// TestGuardedTracer is not a test but the process that startGuarded starts. It probes all the time until it is asked for something.
func TestGuardedTracer(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("GOKPROBE_TRACE"))
	if err != nil || os.Getenv(guarded) == "" {
		return
	}
	fmt.Println("attaching")
	asked := make(chan string)
	go func() {
		defer close(asked)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			asked <- in.Text()
		}
	}()
	s, err := kprobes.Attach(context.Background(), pid, kprobes.Options{Follow: os.Getenv("GOKPROBE_FOLLOW") != "", Log: func(m string) { fmt.Fprintln(os.Stderr, "tracer:", m) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for {
		var kps []*kprobes.Kprobe
		for _, symbol := range strings.Fields(os.Getenv("GOKPROBE_SYMBOLS")) {
			kps = append(kps, everywhere(s, symbol)...)
		}
		for _, symbol := range strings.Fields(os.Getenv("GOKPROBE_COUNTED")) {
			kps = append(kps, &kprobes.Kprobe{SymbolName: symbol})
			ok(t, s.RegisterKprobe(kps[len(kps)-1]))
		}
		select {
		case command, more := <-asked:
			switch {
			case !more || command == "close":
				return
			case command == "guardian":
				fmt.Println(guardian.Current())
			case command == "armed":
				ok(t, s.WaitForOptimizer(t.Context()))
				fmt.Println(len(kps))
				select {} // to be killed
			}
		case <-s.Done():
			return
		case <-time.After(time.Duration(rand.Int64N(int64(60 * time.Millisecond)))):
		}
		if err := s.UnregisterKprobes(kps); err != nil {
			t.Fatal(err)
		}
	}
}

// untouched tells whether nothing of ours is in the process and nobody traces it.
func untouched(pid int) bool {
	return !hasMemory(pid) && !traced(pid) // in this order: who puts it right unmaps the memory before it detaches
}

func traced(pid int) bool {
	tids, err := procfs.Tasks(pid)
	return err != nil || slices.ContainsFunc(tids, func(tid int) bool {
		st, err := procfs.ReadStatus(pid, tid)
		return err == nil && st.TracerPid != 0
	})
}

// hasMemory tells whether a process has memory of ours, also if that can't be read.
func hasMemory(pid int) bool {
	tids, err := procfs.Tasks(pid)
	if err != nil {
		return true
	}
	for _, tid := range tids {
		maps, err := procfs.Maps(tid)
		if err == nil && len(maps) == 0 {
			continue // a leader that has ended
		}
		return err != nil || slices.ContainsFunc(maps, func(m procfs.Mapping) bool { return strings.Contains(m.Path, "memfd:gokprobe") })
	}
	return true
}

var wards = append(slices.Clone(victims),
	victim{"forker", nil, "run 5", "ran 20", []string{"foo"}, 0})

// TestAGuardianPutsTheTargetRight: the tracer is killed at any moment, and nobody else does anything.
func TestAGuardianPutsTheTargetRight(t *testing.T) {
	rounds := testsize.Rounds(7, 42, 700)
	for i := range rounds {
		v := wards[i%len(wards)]
		t.Run(fmt.Sprintf("%d-%s-%s", i, v.name, v.symbols[0]), func(t *testing.T) {
			prog := start(t, v.name, v.args...)
			want := v.do(prog)
			stop := v.besiege(prog)
			defer stop()
			env := []string{"GOKPROBE_SYMBOLS=" + strings.Join(v.symbols, " ")}
			if i/len(wards)%2 == 0 {
				env = append(env, "GOKPROBE_FOLLOW=1")
			}
			g := startGuarded(t, prog.PID(), env...)
			deadline := time.Now().Add(time.Duration(rand.Int64N(int64(200 * time.Millisecond))))
			for time.Now().Before(deadline) {
				v.check(t, prog, want)
			}
			g.kill()
			said := g.said()
			for first := true; first || !untouched(prog.PID()); first = false {
				v.check(t, prog, want)
			}
			t.Logf("said: %q", said)
			stop()
			prog.CheckClean()
			v.check(t, prog, want)
			wantRight(t, prog)
		})
	}
}

// TestAGuardianPutsAForkedChildRight: one that was born just now, of which the tracer knew little but that there was one. What it counts has hurt nobody.
func TestAGuardianPutsAForkedChildRight(t *testing.T) {
	const want = "sum 1499500"
	prog := start(t, "thousand")
	symbols := make([]string, 40)
	for i := range symbols {
		symbols[i] = fmt.Sprintf("fn_%03d", 7*i)
	}
	for range testsize.Rounds(3, 10, 100) {
		g := startGuarded(t, prog.PID(), "GOKPROBE_FOLLOW=1", "GOKPROBE_COUNTED="+strings.Join(symbols, " "))
		g.guardian(0)
		if n := g.ask("armed"); n != "40" {
			t.Fatalf("%s probes", n)
		}
		wantResult(t, prog.Do("mine", "mine"), "mine 1499500", "follow", 0)
		child := forked(t, prog)
		wantResult(t, prog.Do("call", "sum"), want, "follow", 0)
		g.kill()
		for first := true; first || !untouched(prog.PID()) || !untouched(child); first = false {
			wantResult(t, prog.Do("call", "sum"), want, "killed", 0)
		}
		t.Logf("said: %q", g.said())
		testprog.CheckClean(t, child)
		prog.Do("end", "ended")
		prog.CheckClean()
	}
	wantRight(t, prog)
}

// TestAGuardianEndsWhereSomethingIsNotItsOwn: beside what the tracer has left lies what only looks like it. That is told, and not waited for.
func TestAGuardianEndsWhereSomethingIsNotItsOwn(t *testing.T) {
	const version = "9999"
	prog := start(t, "forgedowner", "1", "1", "1", version)
	g := startGuarded(t, prog.PID(), "GOKPROBE_SYMBOLS=main")
	end := guardian.Watch(g.guardian(0))
	defer end.Close()
	g.ask("armed")
	g.kill()
	if said := g.said(); !strings.Contains(said, "layout version "+version) {
		t.Errorf("said %q", said)
	}
	for !end.Ended(time.Hour) {
	}
	wantRight(t, prog)
}

// TestAGuardianIsReplaced: it is killed, several times, and each time there is another one, which knows all.
func TestAGuardianIsReplaced(t *testing.T) {
	prog := start(t, "threads", "3")
	prog.Send("start")
	g := startGuarded(t, prog.PID(), "GOKPROBE_SYMBOLS=foo")
	pid := 0
	for range 3 {
		if pid = g.guardian(pid); unix.Kill(pid, unix.SIGKILL) != nil {
			t.Fatal("there is no such process")
		}
	}
	last := g.guardian(pid)
	end := guardian.Watch(last)
	defer end.Close()
	g.ask("armed")
	g.kill()
	if said, want := g.said(), fmt.Sprintf("its guardian has put process %d right\n", prog.PID()); !strings.HasSuffix(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
	for !end.Ended(time.Hour) {
	}
	prog.CheckClean()
	prog.Do("stop", "calls")
	wantRight(t, prog)
}

// TestGuardianAndTracerAreKilledTogether: what is left is as if there had been no guardian.
func TestGuardianAndTracerAreKilledTogether(t *testing.T) {
	for i := range 8 {
		first := []string{"guardian", "tracer"}[i%2]
		t.Run(fmt.Sprint(i, first), func(t *testing.T) {
			prog := start(t, "threads", "3")
			prog.Send("start")
			g := startGuarded(t, prog.PID(), "GOKPROBE_SYMBOLS=foo")
			pid := g.guardian(0)
			end := guardian.Watch(pid)
			defer end.Close()
			g.ask("armed")
			both := []int{pid, g.cmd.Process.Pid}
			if first == "tracer" {
				slices.Reverse(both)
			}
			for _, pid := range both {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			g.kill()
			for !end.Ended(time.Hour) {
			}
			g.said() // another one may have been started in between
			if _, err := kprobes.Recover(context.Background(), prog.PID()); err != nil {
				t.Error(err)
			}
			prog.CheckClean()
			prog.Do("stop", "calls")
			wantRight(t, prog)
		})
	}
}

// TestAGuardianIsNoMemberOfTheTracersProcessGroup: the terminal's signals end the tracer alone.
func TestAGuardianIsNoMemberOfTheTracersProcessGroup(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGQUIT} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			caught := make(chan os.Signal, 1) // what is caught is the default in a program that is executed, also under nohup(1)
			ignored := signal.Ignored(sig)
			signal.Notify(caught, sig)
			defer func() {
				signal.Stop(caught)
				if ignored { // which Notify has forgotten
					signal.Ignore(sig)
				}
			}()
			prog := start(t, "threads", "3")
			prog.Send("start")
			g := startGuarded(t, prog.PID(), "GOKPROBE_SYMBOLS=foo")
			pid := g.guardian(0)
			g.ask("armed")
			for ignores := false; !ignores; { // it has just been started
				st, err := procfs.ReadStatus(pid, 0)
				ok(t, err)
				ignores = st.SigIgn.Has(int(sig))
			}
			_ = unix.Kill(pid, sig) // to it as well
			g.end(sig)
			t.Logf("said: %q", g.said())
			for !untouched(prog.PID()) {
				prog.Do("stop", "calls")
				prog.Send("start")
			}
			prog.CheckClean()
			prog.Do("stop", "calls")
			wantRight(t, prog)
		})
	}
}

// TestAnOrderlyEndLeavesNoGuardian: it ends by itself and says nothing.
func TestAnOrderlyEndLeavesNoGuardian(t *testing.T) {
	prog := start(t, "threads", "3")
	g := startGuarded(t, prog.PID(), "GOKPROBE_SYMBOLS=foo")
	end := guardian.Watch(g.guardian(0))
	defer end.Close()
	fmt.Fprintln(g.in, "close")
	_ = g.cmd.Wait()
	for !end.Ended(time.Hour) {
	}
	if said := g.said(); said != "" {
		t.Errorf("said %q", said)
	}
	prog.CheckClean()
	wantRight(t, prog)
}

// TestAGuardianKeepsNothingOpenForTheTracer: what the tracer has open, and passes on to what it executes, is closed in the guardian: files that others wait for the end of.
func TestAGuardianKeepsNothingOpenForTheTracer(t *testing.T) {
	prog := start(t, "threads", "3")
	var passed []*os.File
	for range 8 {
		r, w, err := os.Pipe()
		ok(t, err)
		defer r.Close()
		passed = append(passed, w)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	ok(t, err)
	passed = append(passed, null, null)
	names := map[string]bool{}
	for _, f := range passed {
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		ok(t, err)
		names[name] = true
	}
	g := startGuardedWith(t, prog.PID(), passed, "GOKPROBE_SYMBOLS=foo")
	for _, w := range passed[:8] {
		w.Close()
	}
	pid := g.guardian(0)
	for named := false; !named; { // it is, when all is closed
		name, err := procfs.Comm(pid, pid)
		ok(t, err)
		named = name == "gokprobe-guard"
	}
	for fd := 3 + 2; fd < 3+len(passed); fd++ { // the others' places are taken by what it is given
		if file, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd)); err == nil && names[file] {
			t.Errorf("it has descriptor %d open: %s", fd, file)
		}
	}
	null.Close()
	fmt.Fprintln(g.in, "close")
	_ = g.cmd.Wait()
	prog.CheckClean()
	wantRight(t, prog)
}

// TestAProgramThatDoesNotAskForItHasNoGuardian: this one does not.
func TestAProgramThatDoesNotAskForItHasNoGuardian(t *testing.T) {
	prog := start(t, "threads", "3")
	s := attach(t, prog.PID(), kprobes.Options{})
	register(t, s, boosted.probe("foo"))
	tids, err := procfs.Tasks(os.Getpid())
	ok(t, err)
	for _, tid := range tids {
		children, err := procfs.Children(os.Getpid(), tid)
		if err != nil && !procfs.Gone(err) {
			t.Fatal(err)
		}
		for _, pid := range children {
			if args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.HasPrefix(string(args), guardian.Name) {
				t.Errorf("process %d is a guardian", pid)
			}
		}
	}
	if guardian.Opted() || guardian.Current() != 0 {
		t.Error("there is a guardian")
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestHowLongTheTargetIsLeftAlone is a measurement: from the tracer's death to the guardian's word that all is right.
func TestHowLongTheTargetIsLeftAlone(t *testing.T) {
	rounds := testsize.Rounds(1, 3, 200)
	var times []time.Duration
	for range rounds {
		prog := testprog.Start(t, testprog.Build(t, "threads"), "4")
		prog.Send("start")
		g := startGuarded(t, prog.PID(), "GOKPROBE_SYMBOLS=foo")
		g.guardian(0)
		g.ask("armed")
		began := time.Now()
		_ = syscall.Kill(g.cmd.Process.Pid, syscall.SIGKILL)
		line, err := bufio.NewReader(g.err).ReadString('\n')
		times = append(times, time.Since(began))
		if err != nil || !strings.Contains(line, "its guardian has put") {
			t.Fatalf("said %q, %v", line, err)
		}
		prog.CheckClean()
		prog.Do("stop", "calls")
		wantRight(t, prog)
	}
	slices.Sort(times)
	t.Logf("%d kills: min %v, median %v, max %v", rounds, times[0], times[rounds/2], times[rounds-1])
}
