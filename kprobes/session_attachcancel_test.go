package kprobes_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

type hold struct {
	name    string
	threads int
	args    string
	hold    func(*testing.T, *testprog.Prog) (undo func())
	never   bool // no attach is ever done
}

// holds are ways in which a program keeps an attach waiting, or changes under it: what is done to one that has started, and how it is undone.
var holds = []hold{
	{name: "threads", threads: 300},
	{name: "storm", threads: 12, args: "storm"},
	{name: "signals", threads: 12, args: "signals"},
	{name: "stopped", threads: 12, args: "again", hold: stopped},
	{name: "vfork", threads: 12, args: "vfork"},
	{name: "deaf", threads: 12, never: true},
	{name: "leader", threads: 12, args: "leader"},
	{name: "frozen", threads: 12, args: "again", hold: frozen},
	{name: "frozen2", threads: 12, args: "again", hold: frozen2},
}

// start starts the program, and holds it.
func (h hold) start(t *testing.T, threads int) (p *testprog.Prog, undo func()) {
	t.Helper()
	if h.name == "deaf" {
		return testprog.StartDeaf(t, threads)
	}
	p, undo = testprog.Start(t, testprog.Build(t, "waits"), strconv.Itoa(threads), h.args), func() {}
	if h.hold != nil {
		undo = h.hold(t, p)
	}
	return p, undo
}

// TestAnAttachThatIsGivenUpLeavesTheProgramAlone: at random moments, which are counted in what the tracer does and not in time, in programs
// that keep an attach waiting in all the ways that there are. None of their threads is traced then, and none has seen anything: the programs
// are full of calls which a stop may end with EINTR.
func TestAnAttachThatIsGivenUpLeavesTheProgramAlone(t *testing.T) {
	for _, h := range holds {
		t.Run(h.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(testprog.Seed(t, 7), 1))
			threads, rounds := h.threads, testsize.Rounds(3, 12, 200)
			if testsize.Torture() && h.name == "threads" {
				threads, rounds = 5000, 20
			}
			p, undo := h.start(t, threads)
			usual := events(t, p.PID(), 3*threads+20)
			for i := range rounds {
				n := 1 + rng.IntN(usual)
				done := giveUpAt(t, p.PID(), n)
				if done && h.never {
					t.Errorf("round %d: the attach was done", i)
				}
				p.CheckClean()
				if t.Failed() {
					t.Fatalf("round %d: given up at event %d of about %d", i, n, usual)
				}
			}
			undo()
			answersRight(t, p)
		})
	}
}

// events is how many there are in an attach, at most limit.
func events(t *testing.T, pid, limit int) int {
	t.Helper()
	_, n := attachUntil(t, pid, limit)
	return n
}

// giveUpAt attaches, and gives that up at the n-th event. It reports whether the attach was done before.
func giveUpAt(t *testing.T, pid, n int) bool {
	t.Helper()
	done, _ := attachUntil(t, pid, n)
	return done
}

func attachUntil(t *testing.T, pid, n int) (done bool, events int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var count atomic.Int64
	over := make(chan struct{})
	defer close(over)
	defer kprobes.AtEvents(func() {
		if count.Add(1) >= int64(n) {
			cancel()
		}
	}, func(tr *ptrace.Tracer) { go prod(tr, &count, over) })()
	s, err := kprobes.Attach(ctx, pid, kprobes.Options{Log: func(w string) { t.Logf("warning: %s", w) }})
	switch {
	case err == nil:
		events = int(count.Load())
		if err := s.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
		return true, min(events, n)
	case !errors.Is(err, kprobes.ErrGivenUp) || !errors.Is(err, context.Canceled):
		t.Errorf("the attach failed: %v", err)
	}
	return false, n
}

// answersRight has the program answer, all its threads go on, and judge what they saw.
func answersRight(t *testing.T, p *testprog.Prog) {
	t.Helper()
	p.Do("call 4", "ret 117")
	wantRight(t, p)
}

// prod makes an event where there is none: in an attach that waits, for nothing that would come. How often it does so decides which moments
// are tried, and nothing else.
func prod(tr *ptrace.Tracer, count *atomic.Int64, over chan struct{}) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for last := int64(0); ; {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		if now := count.Load(); now == last {
			tr.Wake()
		} else {
			last = now
		}
	}
}

func stopped(t *testing.T, p *testprog.Prog) func() {
	t.Helper()
	stands := func() bool {
		st, err := procfs.ReadStat(p.PID(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return st.State == 'T'
	}
	ok(t, syscall.Kill(p.PID(), syscall.SIGSTOP))
	testprog.Await(t, "a program that stands still", stands)
	return func() {
		testprog.Await(t, "a program that stands still again", stands) // who was let go has to run to stop
		ok(t, syscall.Kill(p.PID(), syscall.SIGCONT))
		testprog.Await(t, "a program that goes on", func() bool { return !stands() })
	}
}

// frozen: threads do not come to their stops. Where there is no such freezer, deaf stands for it.
func frozen(_ *testing.T, p *testprog.Prog) (undo func()) { undo, _ = p.Freeze(1); return undo }

// frozen2: threads stop, and run on when they are made to.
func frozen2(_ *testing.T, p *testprog.Prog) (undo func()) { undo, _ = p.Freeze(2); return undo }

// TestARecoveryThatIsGivenUpCanBeDoneLater: and the program, which has a killed tracer's breakpoints, lives on with them until then.
func TestARecoveryThatIsGivenUpCanBeDoneLater(t *testing.T) {
	rng := rand.New(rand.NewPCG(testprog.Seed(t, 7), 2))
	p := testprog.Start(t, testprog.Build(t, "waits"), "8")
	t.Setenv("GOKPROBE_REMOTE", "guard")
	startTracer(t, p.PID(), nil)()
	for n := 1; ; n += 1 + rng.IntN(9) {
		done, err := recoverUntil(p.PID(), n)
		p.Do("call 4", "ret 117")
		if errors.Is(err, kprobes.ErrGivenUp) && done.Regions == 0 {
			continue
		}
		if err != nil || done.Regions == 0 {
			t.Errorf("recovered, at event %d: %+v, %v", n, done, err)
		}
		break
	}
	p.CheckClean()
	answersRight(t, p)
}

func recoverUntil(pid, n int) (*kprobes.Recovered, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var count atomic.Int64
	defer kprobes.AtEvents(func() {
		if count.Add(1) >= int64(n) {
			cancel()
		}
	}, func(*ptrace.Tracer) {})()
	r, err := kprobes.Recover(ctx, pid)
	if r == nil {
		r = new(kprobes.Recovered)
	}
	return r, err
}

// TestALaunchThatIsGivenUpEndsTheProgram: an auditor's library (rtld-audit(7)) keeps it from loading what it is linked with, for good.
func TestALaunchThatIsGivenUpEndsTheProgram(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	said := make(chan string)
	go func() {
		line, _ := bufio.NewReader(r).ReadString('\n')
		cancel()
		rest, _ := io.ReadAll(r) // ends when the program has
		said <- line + string(rest)
	}()
	s, err := kprobes.Launch(ctx, kprobes.Command{
		Path: testprog.Build(t, "prey"), Args: []string{"prey"},
		Env:   append(os.Environ(), "LD_AUDIT="+testprog.Build(t, "libstuck.so", "-shared", "-fPIC")),
		Files: []*os.File{os.Stdin, w, os.Stderr},
	}, kprobes.Options{})
	w.Close()
	if s != nil || !errors.Is(err, kprobes.ErrGivenUp) {
		t.Errorf("the launch ends with %v, %v", s, err)
	}
	if got := <-said; got != "loading\n" {
		t.Errorf("the program says %q", got)
	}
}
