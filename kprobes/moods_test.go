package kprobes_test

import (
	"context"
	"errors"
	"math/rand"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

// TestProgramsThatChangeWhatTheyAre: while it is probed in all ways, a program changes at random moments what the kernel lets us do
// to it, or what its registers hold; and judges its own results.
func TestProgramsThatChangeWhatTheyAre(t *testing.T) {
	for _, m := range []struct{ moods, threads string }{
		{"d", "2"}, {"gfs", "2"}, {"n", "2"}, {"c", "2"}, {"x", "0"}, {"x", "2"}, {"u", "2"}, {"U", "0"}, {"U", "2"}, {"dgfsncxuU", "2"},
	} {
		t.Run(m.moods+m.threads, func(t *testing.T) { moody(t, m.moods, m.threads) })
	}
}

// TestProgramsThatChangeWhatTheyAreWithoutPrivilege: the same by a tracer that may not look at what is not dumpable.
func TestProgramsThatChangeWhatTheyAreWithoutPrivilege(t *testing.T) {
	if asNobody(t) {
		return
	}
	for _, m := range []struct{ moods, threads string }{
		{"d", "0"}, {"d", "2"}, {"gfs", "2"}, {"c", "2"}, {"x", "2"}, {"dx", "2"}, {"dU", "0"}, {"dgfscxuU", "2"},
	} {
		t.Run(m.moods+m.threads, func(t *testing.T) { moody(t, m.moods, m.threads) })
	}
}

// asNobody runs the test that calls it once more as another user, if it runs as root, and reports that it did.
func asNobody(t *testing.T) bool {
	const mark = "GOKPROBE_TEST_NOBODY"
	if os.Geteuid() != 0 || os.Getenv(mark) != "" {
		return false
	}
	dir := publicDir(t)
	again := exec.Command(publicCopy(t), "-test.run", "^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), mark+"=1", "TMPDIR="+dir)
	again.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	again.Dir = "/"
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("as user %d: %v\n%s", nobody, err, out)
	}
	return true
}

// publicDir is a directory of the user's.
func publicDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "gokprobe-nobody-")
	if err == nil {
		err = os.Chown(dir, nobody, nobody)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func moody(t *testing.T, moods, threads string) {
	attaches := testsize.Rounds(1, 4, 100)
	rng := rand.New(rand.NewSource(7))
	prog := start(t, "moods", strconv.Itoa(rng.Intn(1<<20)), threads, moods)
	for i := range attaches {
		moodyRound(t, prog, rng, i, strings.Contains(moods, "x"))
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
	prog.Do("show", "shown")
	prog.CheckClean()
	prog.Do("go", "going")
	wantRight(t, prog)
}

func moodyRound(t *testing.T, prog *testprog.Prog, rng *rand.Rand, i int, executes bool) {
	opts := kprobes.Options{
		NoOptimize: rng.Intn(3) == 0, NoBoost: rng.Intn(3) == 0, Follow: rng.Intn(2) == 0,
		Log: func(m string) { t.Logf("session warns: %s", m) },
	}
	s, err := kprobes.Attach(context.Background(), prog.PID(), opts)
	testprog.Await(t, "an attach that is not refused for now", func() bool {
		again := refusedForNow(err)
		if again {
			s, err = kprobes.Attach(context.Background(), prog.PID(), opts)
		}
		return !again
	})
	if err != nil {
		t.Errorf("attach: %v", err)
		return
	}
	defer closeSession(t, s)
	nothing := func(*kprobes.KretprobeInstance, *kprobes.Regs) int { return 0 }
	registers := []func() error{
		func() error { return s.RegisterKprobe(modes[i%2].probe("foo")) },
		func() error { return s.RegisterKprobe(modes[rng.Intn(2)].probe("quiet")) },
		func() error { return s.RegisterKprobe(modes[rng.Intn(2)].probe("quiet+0x5")) }, // the call
		func() error { return s.RegisterKprobe(modes[rng.Intn(2)].probe("inner")) },
		func() error { return s.RegisterKprobe(&kprobes.Kprobe{SymbolName: "check"}) },
		func() error {
			return s.RegisterKretprobe(&kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "deep"}, Handler: nothing})
		},
		func() error {
			return s.RegisterKretprobe(&kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "writes"}})
		},
	}
	for _, register := range registers {
		if err := register(); err != nil && !executes { // it may have executed itself just then
			t.Errorf("register: %v", err)
		}
	}
	for began := rounds(t, prog); rounds(t, prog) < began+uint64(rng.Intn(20)); {
	}
}

// refusedForNow tells of an attach that it met the program when it was not dumpable. That of one in a user namespace of its own is up to that
// of the tracer; where it can be seen by its capabilities alone, since the rest has changed again, they are the reason.
func refusedForNow(err error) bool {
	refused := new(ptrace.AttachError)
	return errors.As(err, &refused) && slices.Contains([]ptrace.Cause{ptrace.CauseNotDumpable, ptrace.CauseUserNamespace, ptrace.CauseCapability}, refused.Cause)
}

// TestACopyThatCannotBeResumed: what a copied call has pushed can't be put right. The thread is put back in front of the instruction, which
// it then executes itself.
func TestACopyThatCannotBeResumed(t *testing.T) {
	prog := start(t, "moods", "1", "2", "")
	warned := make(chan string, 100)
	s := attach(t, prog.PID(), kprobes.Options{NoOptimize: true, Log: testprog.ButUprobes(func(m string) { warned <- m })})
	kp := stepped.probe("quiet+0x5")
	register(t, s, kp)
	s.BreakResume(kp, syscall.EPERM)
	if m := <-warned; !strings.Contains(m, "its probes are disabled now") {
		t.Errorf("the session warns: %s", m)
	}
	for began := rounds(t, prog); rounds(t, prog) < began+20; {
	}
	if kp.Flags&kprobes.FlagDisabled == 0 {
		t.Error("the probe is not disabled")
	}
	closeSession(t, s)
	wantRight(t, prog)
}
