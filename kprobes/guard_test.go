package kprobes_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

// victim is a program that is at work while its tracer is killed.
type victim struct {
	name    string
	args    []string
	work    string         // a command whose answer is always the same
	answer  string         // the prefix of it
	symbols []string       // of functions, all instructions of which are probed
	signal  syscall.Signal // that it gets all the time
}

var victims = []victim{
	{"prey", nil, "threads 4 40 recurse", "sum", []string{"recurse", "worker", "libc.so.6:pthread_join"}, 0},
	{"prey", nil, "threads 4 300 six", "sum", []string{"six", "sum6", "worker"}, 0},
	{"prey", nil, "threads 2 300 string", "sum", []string{"string", "length", "libc.so.6:write"}, 0},
	{"signals", []string{"unseen"}, "run 100", "ran 100", []string{"foo", "on_alarm", "on_queued", "libc.so.6:sigqueue"}, 0},
	{"gosrv", nil, "threads 4 300", "sum", []string{"main.target", "main.worker"}, 0},
	{"gosrv", nil, "threads 4 300", "sum", []string{"runtime.sighandler", "main.target"}, syscall.SIGURG},
	{"maskwalk", []string{"handle", "3"}, "walk 100", "did", []string{"foo", "on_user", "on_fault"}, 0},
	{"maskwalk", []string{"default", "3"}, "walk 100", "did", []string{"foo", "on_user", "on_fault"}, 0},
}

// harsh: all that Go does at a signal is probed, and its handlers block all signals. One in some 500 of these
// ends in a fault: ARCHITECTURE.md, "What is known not to be covered", tells why.
var harsh = victim{"gosrv", nil, "threads 4 300", "sum", []string{"runtime.sighandler", "runtime.sigtrampgo", "runtime.adjustSignalStack", "main.target"}, syscall.SIGURG}

// TestTheTargetSurvivesAKilledTracer: the tracer is killed while it attaches, registers,
// handles hits, optimizes, or unregisters, and the target is at work all the time. The work's results
// are right, before and after.
func TestTheTargetSurvivesAKilledTracer(t *testing.T) {
	rounds := testsize.Rounds(6, 30, 500)
	victims := victims
	if testsize.Torture() {
		victims = append(slices.Clone(victims), harsh)
	}
	for i := range rounds {
		v := victims[i%len(victims)]
		t.Run(fmt.Sprintf("%d-%s", i, v.symbols[0]), func(t *testing.T) {
			prog := start(t, v.name, v.args...)
			want := v.do(prog)
			stop := v.besiege(prog)
			defer stop()
			kill := startTracer(t, prog.PID(), v.symbols)
			deadline := time.Now().Add(time.Duration(rand.Int64N(int64(200 * time.Millisecond))))
			for time.Now().Before(deadline) {
				v.check(t, prog, want)
			}
			kill()
			for range rand.IntN(3) {
				v.check(t, prog, want)
			}
			recoverBusy(t, prog, &v, want)
			stop()
			prog.CheckClean()
			v.check(t, prog, want)
			wantRight(t, prog)
		})
	}
}

// besiege sends the victim its signal until stop is called.
func (v *victim) besiege(prog *testprog.Prog) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for v.signal != 0 && prog.Signal(v.signal) == nil {
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond / 2):
			}
		}
	}()
	return sync.OnceFunc(func() { close(over); <-done })
}

// recoverBusy recovers the victim while it works.
func recoverBusy(t *testing.T, prog *testprog.Prog, v *victim, want string) {
	t.Helper()
	prog.Send(v.work)
	done, err := kprobes.Recover(context.Background(), prog.PID())
	// Its threads run: handlers return, and vfork(2) does.
	for err == nil && done.Kept > 0 || errors.Is(err, ptrace.ErrNoThread) {
		done, err = kprobes.Recover(context.Background(), prog.PID())
	}
	if err != nil {
		t.Errorf("recover: %v", err)
	}
	t.Logf("recovered: %+v", done)
	if got := prog.Expect(v.answer); got != want && v.name != "signals" {
		t.Errorf("recovered while at work: %q, unprobed %q", got, want)
	}
	if done, err := kprobes.Recover(context.Background(), prog.PID()); err != nil || done.Regions != 0 {
		t.Errorf("recovered once more: %+v, %v", done, err)
	}
}

// do has the victim work and returns what must always be the same.
func (v *victim) do(prog *testprog.Prog) string {
	got := prog.Do(v.work, v.answer)
	if v.name == "signals" {
		return v.answer // followed by what arrived in that time
	}
	return got
}

func (v *victim) check(t *testing.T, prog *testprog.Prog, want string) {
	t.Helper()
	if got := v.do(prog); got != want {
		t.Errorf("%s: %q, unprobed %q", v.work, got, want)
	}
}

// startTracer starts a process that attaches to pid; kill ends it.
func startTracer(t *testing.T, pid int, symbols []string) (kill func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestTracer$", "-test.timeout=30m")
	cmd.Env = append(os.Environ(), "GOKPROBE_TRACE="+strconv.Itoa(pid), "GOKPROBE_SYMBOLS="+strings.Join(symbols, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(kill)
	lines := bufio.NewReader(out)
	for _, want := range []string{"attaching\n", "armed\n"} {
		if line, err := lines.ReadString('\n'); line != want {
			t.Fatalf("the tracer says %q, then %v", line, err)
		}
		if os.Getenv("GOKPROBE_REMOTE") == "" {
			break
		}
	}
	return kill
}

// TestTracer is not a test but the process that startTracer starts.
func TestTracer(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("GOKPROBE_TRACE"))
	if err != nil {
		return
	}
	fmt.Println("attaching")
	s, err := kprobes.Attach(context.Background(), pid, kprobes.Options{Log: func(m string) { fmt.Fprintln(os.Stderr, "tracer:", m) }})
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("GOKPROBE_REMOTE") != "" {
		callForEver(t, s)
		return
	}
	for {
		var kps []*kprobes.Kprobe
		for _, symbol := range strings.Fields(os.Getenv("GOKPROBE_SYMBOLS")) {
			kps = append(kps, everywhere(s, symbol)...)
		}
		select {
		case <-s.Done():
			return
		case <-time.After(time.Duration(rand.Int64N(int64(60 * time.Millisecond)))):
		}
		if err := s.UnregisterKprobes(kps); err != nil {
			t.Fatal(err)
		}
	}
}

// callForEver has the target make system calls, but if GOKPROBE_REMOTE says none or jump.
func callForEver(t *testing.T, s *kprobes.Session) {
	mode := os.Getenv("GOKPROBE_REMOTE")
	switch mode {
	case "bare":
	case "jump":
		register(t, s, &kprobes.Kprobe{SymbolName: os.Getenv("GOKPROBE_SYMBOLS")})
		s.WaitForOptimizer(t.Context())
	case "none":
		for _, symbol := range strings.Fields(os.Getenv("GOKPROBE_SYMBOLS")) {
			everywhere(s, symbol)
		}
	default:
		everywhere(s, "foo")
	}
	fmt.Println("armed")
	if mode == "none" || mode == "jump" {
		<-s.Done()
		return
	}
	for {
		at, err := s.Alloc(4096)
		if err == nil {
			err = s.Free(at, 4096)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheTargetSurvivesAKillDuringItsSystemCalls: the tracer has a thread of the target make
// system calls all the time, with a guard and without.
func TestTheTargetSurvivesAKillDuringItsSystemCalls(t *testing.T) {
	rounds := testsize.Rounds(4, 20, 200)
	for i := range rounds {
		for _, v := range []victim{
			{name: "prey", work: "threads 2 50 six", answer: "sum"},
			{name: "gosrv", work: "threads 2 50", answer: "sum"},
		} {
			mode := []string{"guard", "bare"}[i%2]
			t.Run(fmt.Sprintf("%d-%s-%s", i, v.name, mode), func(t *testing.T) {
				t.Setenv("GOKPROBE_REMOTE", mode)
				prog := start(t, v.name)
				want := v.do(prog)
				kill := startTracer(t, prog.PID(), nil)
				deadline := time.Now().Add(time.Duration(rand.Int64N(int64(20 * time.Millisecond))))
				for first := true; first || time.Now().Before(deadline); first = false {
					v.check(t, prog, want)
				}
				kill()
				v.check(t, prog, want)
				if _, err := kprobes.Recover(context.Background(), prog.PID()); err != nil {
					t.Error(err)
				}
				v.check(t, prog, want)
				prog.CheckClean()
				wantRight(t, prog)
			})
		}
	}
}

// everywhere probes all instructions of a function that can be, in random ways.
func everywhere(s *kprobes.Session, symbol string) (kps []*kprobes.Kprobe) {
	only := rand.IntN(3) == 0 // the first one, so that it may be optimized
	for off := range uint64(120) {
		kp := &kprobes.Kprobe{SymbolName: symbol, Offset: off}
		if rand.IntN(2) == 0 {
			kp.PreHandler = func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }
		}
		if rand.IntN(4) == 0 && !only {
			kp.PostHandler = func(*kprobes.Kprobe, *kprobes.Regs, uint64) {}
		}
		if s.RegisterKprobe(kp) == nil {
			kps = append(kps, kp)
			if only {
				break
			}
		}
	}
	return kps
}
