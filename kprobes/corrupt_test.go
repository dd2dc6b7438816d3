package kprobes_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
)

// TestTargetsThatCorruptAllThatIsOursHarmNobodyElse: programs overwrite, unmap, protect and empty what we have put into them, from
// several threads, and swap descriptors, fork, are executed and end, while they are probed in every way. Whatever becomes of them: nothing
// of ours panics, needs 5 s of processor time or 512 MB, or touches a file; and another session of this process counts exactly.
func TestTargetsThatCorruptAllThatIsOursHarmNobodyElse(t *testing.T) {
	seed, runs := testprog.Seed(t, 13), testsize.Rounds(3, 12, 500)
	file := filepath.Join(openDir(t), "file")
	text := bytes.Repeat([]byte("not yours\n"), 1000)
	ok(t, os.WriteFile(file, text, 0o644))
	honest := startHonest(t)
	ok(t, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)) // the peak begins anew
	for i := range runs {
		t.Run(fmt.Sprint(seed+uint64(i)), func(t *testing.T) {
			fightOnce(t, seed+uint64(i), file)
			honest.check(t)
			if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, text) {
				t.Fatalf("a file that is not the target's was changed: %v", err)
			}
		})
		if t.Failed() {
			break
		}
	}
	const most = 512 << 10
	if peak := statusKB(t, "VmHWM:"); peak > most {
		t.Errorf("%d kB were in use, more than %d", peak, most)
	}
}

// openDir is a directory that other users may enter.
func openDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/tmp", "corrupt")
	ok(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	ok(t, os.Chmod(dir, 0o755))
	return dir
}

func statusKB(t *testing.T, name string) (kB int) {
	b, err := os.ReadFile("/proc/self/status")
	ok(t, err)
	for line := range strings.Lines(string(b)) {
		if v, found := strings.CutPrefix(line, name); found {
			_, err := fmt.Sscan(v, &kB)
			ok(t, err)
		}
	}
	return kB
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// honestSession is one with a program that does nothing but call functions.
type honestSession struct {
	prog   *testprog.Prog
	probes []*kprobes.Kprobe
	calls  uint64
}

func startHonest(t *testing.T) *honestSession {
	h := &honestSession{prog: start(t, "prey")}
	s := attach(t, h.prog.PID(), kprobes.Options{})
	h.probes = []*kprobes.Kprobe{
		{SymbolName: "target"}, // a jump
		{SymbolName: "target", Offset: 0, PostHandler: nil, PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }},
		{SymbolName: "foo", PostHandler: func(*kprobes.Kprobe, *kprobes.Regs, uint64) {}},
	}
	register(t, s, h.probes...)
	return h
}

func (h *honestSession) check(t *testing.T) {
	t.Helper()
	for range 20 {
		h.calls++
		if got := h.prog.Do("call target 30", "ret"); got != "ret 10" {
			t.Errorf("the honest program got %q", got)
		}
		h.prog.Do("call foo 1", "ret")
	}
	for i, kp := range h.probes {
		if kp.Hits() != h.calls {
			t.Errorf("the honest program's probe %d has %d hits of %d", i, kp.Hits(), h.calls)
		}
	}
}

// corrupted is a session with a program that fights it.
type corrupted struct {
	*kprobes.Session
	rnd    *rand.Rand
	probes []*kprobes.Kprobe
	rets   []*kprobes.Kretprobe

	mu  sync.Mutex
	log []string
}

func fightOnce(t *testing.T, seed uint64, file string) {
	c := &corrupted{rnd: rand.New(rand.NewPCG(seed, 0))}
	options := testprog.Options{}
	if os.Geteuid() == 0 && c.rnd.IntN(4) > 0 {
		options.UID = 65534
	}
	prog := testprog.StartWith(t, options, testprog.Build(t, "corrupter"), fmt.Sprint(seed), file)
	defer prog.Kill()
	before := processorTime()
	defer watchProcessor(t, before)()
	began := c.rnd.IntN(3) // before the attach, before the registration, after it
	if began == 0 {
		prog.Send("go")
	}
	s, err := kprobes.Attach(context.Background(), prog.PID(), kprobes.Options{Follow: c.rnd.IntN(2) == 0, NoOptimize: c.rnd.IntN(5) == 0, Log: func(m string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.log = append(c.log, m)
	}})
	if err != nil {
		t.Logf("attaching: %v", err) // it has ended, or can't be attached to any more
		return
	}
	c.Session = s
	if began == 1 {
		prog.Send("go")
	}
	c.register(t)
	if began == 2 {
		prog.Send("go")
	}
	mustEnd(t, "working", c.work)
	mustEnd(t, "closing the session", func() { _ = s.Close() })
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Logf("%d warnings, the program's end: %+v", len(c.log), c.Exit())
	for _, m := range c.log {
		if strings.Contains(m, kprobes.ErrPanic.Error()) {
			t.Error(m)
		}
	}
	for _, kp := range c.probes {
		kp.Hits()
	}
}

// watchProcessor tells where everybody is when 5 s of processor time are used up.
func watchProcessor(t *testing.T, before time.Duration) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(50 * time.Millisecond):
			}
			if used := processorTime() - before; used > 5*time.Second {
				stacks := make([]byte, 1<<20)
				t.Errorf("%v of processor time\n%s", used, stacks[:runtime.Stack(stacks, true)])
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

// mustEnd fails the test if f does not end. It asserts no time: it ends tests that hang.
func mustEnd(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(testprog.Patience):
		fmt.Fprintf(os.Stderr, "%s: %s hangs\n%s", t.Name(), what, tracees())
		_ = unix.Kill(os.Getpid(), syscall.SIGQUIT) // where does it hang?
		t.Fatalf("%s hangs", what)
	}
}

// tracees tells what the threads that this process traces do.
func tracees() string {
	var all strings.Builder
	tasks, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	for _, task := range tasks {
		status, _ := os.ReadFile(task + "/status")
		_, tracer, _ := strings.Cut(string(status), "TracerPid:\t")
		tracer, _, _ = strings.Cut(tracer, "\n")
		if _, err := os.Stat("/proc/self/task/" + tracer); tracer == "" || err != nil {
			continue
		}
		for _, name := range []string{"wchan", "syscall", "stat", "status", "stack"} {
			b, _ := os.ReadFile(task + "/" + name)
			fmt.Fprintf(&all, "%s/%s: %s\n", task, name, b)
		}
	}
	return all.String()
}

func (c *corrupted) register(t *testing.T) {
	nothing := func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }
	c.probes = []*kprobes.Kprobe{
		{SymbolName: "counted"},
		recording(t, "recorded", func(_ *kprobes.Kprobe, r *kprobes.HitRecord) {}),
		{SymbolName: "handled", PreHandler: nothing},
		{SymbolName: "handled", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int { _, _, _ = r.XMM(0); return 0 }},
		deciding(t, "chosen", program.Cond{}, nothing),
		{SymbolName: "stepped", PostHandler: func(*kprobes.Kprobe, *kprobes.Regs, uint64) {}},
	}
	c.rets = []*kprobes.Kretprobe{
		{KP: kprobes.Kprobe{SymbolName: "returning"}},
		{KP: kprobes.Kprobe{SymbolName: "returned"}, Handler: func(*kprobes.KretprobeInstance, *kprobes.Regs) int { return 0 }},
	}
	mustEnd(t, "registering", func() {
		for _, kp := range c.probes {
			_ = c.RegisterKprobe(kp)
		}
		_ = c.RegisterKretprobes(t.Context(), c.rets)
	})
}

// work does what a session does, until the program ends or for a while.
func (c *corrupted) work() {
	rounds := c.rnd.IntN(60)
	for range rounds {
		kp := c.probes[c.rnd.IntN(len(c.probes))]
		switch c.rnd.IntN(8) {
		case 0:
			c.WaitForOptimizer(context.Background())
		case 1:
			_ = c.DisableKprobe(kp)
		case 2:
			_ = c.EnableKprobe(kp)
		case 3:
			_ = c.UnregisterKprobe(kp)
			_ = c.RegisterKprobe(kp)
		case 4:
			c.FlushRecords()
		case 5:
			kp.Hits()
			_ = kp.Values(0)
			c.rets[0].Hits()
		case 6:
			_ = c.SetOptimization(c.rnd.IntN(3) > 0)
		case 7:
			select {
			case <-c.Done():
			case <-time.After(time.Duration(c.rnd.IntN(5)) * time.Millisecond):
			}
		}
	}
	if c.rnd.IntN(2) == 0 {
		select {
		case <-c.Done():
		case <-time.After(300 * time.Millisecond): // enough is enough
		}
	}
}
