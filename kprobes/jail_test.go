package kprobes_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestTightPlaces: targets that can't have a memfd, or are killed for asking; or whose first
// mapping is not the program's.
func TestTightPlaces(t *testing.T) {
	for _, place := range []string{"filter", "nofile", "below"} {
		for _, m := range modes {
			t.Run(place+"/"+string(m), func(t *testing.T) {
				if place == "filter" && os.Geteuid() != 0 {
					t.Skip("only root may suspend a seccomp filter")
				}
				prog := start(t, "rev_jail", place)
				s := attach(t, prog.PID(), kprobes.Options{})
				kp := m.probe("foo")
				register(t, s, kp)
				prog.Do("foo 100", "did")
				wantHits(t, kp, 100)
				closeSession(t, s)
				wantRight(t, prog)
			})
		}
	}
}

// TestAttachesBesideSeccomp come and go, while the program makes calls that a stop has restarted by restart_syscall(2), which its filter ends it for.
func TestAttachesBesideSeccomp(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may suspend a seccomp filter")
	}
	attaches := testsize.Rounds(1, 4, 100)
	for _, kind := range []string{"strict", "process", "thread", "trap", "errno", "notify", "list"} {
		t.Run(kind, func(t *testing.T) {
			fixture, command := "timeouts", "events 3"
			if kind == "strict" {
				fixture, command = "rev_jail", "foo 30"
			}
			prog := start(t, fixture, kind)
			for i := range attaches {
				prog.Send(command)
				s := attach(t, prog.PID(), kprobes.Options{NoOptimize: i%2 == 1})
				register(t, s, modes[i%2].probe("foo"))
				prog.Expect("did")
				prog.Send(command)
				closeSession(t, s)
				prog.Expect("did")
			}
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

const nobody = 65534

// TestSeccompWithoutPrivilege: a tracer that can't suspend the filter makes no system call
// in the target; the copies lie in padding of its code. The tracer is this test once more,
// as another user.
func TestSeccompWithoutPrivilege(t *testing.T) {
	if pid := os.Getenv("GOKPROBE_TEST_JAIL"); pid != "" {
		traceJail(t, pid)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	prog := testprog.StartWith(t, testprog.Options{UID: nobody}, testprog.Build(t, "rev_jail"), "filter")
	tracer := exec.Command(publicCopy(t), "-test.run", "^"+t.Name()+"$", "-test.v")
	tracer.Env = append(os.Environ(), fmt.Sprintf("GOKPROBE_TEST_JAIL=%d", prog.PID()))
	tracer.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	tracer.Dir, tracer.Stderr = "/", os.Stderr
	in, err := tracer.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := tracer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tracer.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	said := ""
	for lines.Scan() && lines.Text() != "armed" {
		said += lines.Text() + "\n"
	}
	prog.Do("foo 100", "did")
	in.Close()
	for lines.Scan() {
		said += lines.Text() + "\n"
	}
	if err := tracer.Wait(); err != nil {
		t.Errorf("the tracer: %v\n%s", err, said)
	}
	if !strings.Contains(said, "hits 100 100\n") {
		t.Errorf("the tracer says:\n%s", said)
	}
	prog.CheckClean()
	wantRight(t, prog)
}

// publicCopy is this test's program where another user may run it.
func publicCopy(t *testing.T) string {
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "gokprobe-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	bin := filepath.Join(dir, "test")
	if err := os.WriteFile(bin, b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return bin
}

func traceJail(t *testing.T, arg string) {
	pid, err := strconv.Atoi(arg)
	if err != nil {
		t.Fatal(err)
	}
	warned := 0
	s, err := kprobes.Attach(context.Background(), pid, kprobes.Options{Log: testprog.ButUprobes(func(string) { warned++ })})
	if err != nil {
		t.Fatal(err)
	}
	a, b := boosted.probe("foo"), boosted.probe("on_queued")
	c := stepped.probe("foo")
	if err := s.RegisterKprobes(t.Context(), []*kprobes.Kprobe{a, b, c}); err != nil {
		t.Error(err)
	}
	fmt.Println("armed")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	fmt.Println("hits", a.Hits(), c.Hits())
	if warned == 0 {
		t.Error("nobody was told that padding serves as slots")
	}
}

// TestQueuedSignalsKeepTheirOrder: real-time signals arrive with their values, once each
// and in order, while the thread that takes them is in and out of slots, and while
// sessions come and go.
func TestQueuedSignalsKeepTheirOrder(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "rev_jail")
			s := attach(t, prog.PID(), kprobes.Options{})
			register(t, s, m.probe("foo"))
			prog.Do("queue 3000", "did")
			prog.Send("queue 3000")
			for range 30 {
				closeSession(t, s)
				s = attach(t, prog.PID(), kprobes.Options{})
				register(t, s, m.probe("foo"))
			}
			prog.Expect("did")
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}
