package ptrace_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/ptrace"
)

// TestTracerThatDiesAtAnException is not a test but the process that is killed, by itself, while a thread makes system calls for it that has stopped for an exception.
func TestTracerThatDiesAtAnException(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("GOKPROBE_TRACE"))
	calls, cerr := strconv.Atoi(os.Getenv("GOKPROBE_EXCEPTION"))
	if err != nil || cerr != nil {
		return
	}
	tr, err := ptrace.New()
	if err != nil {
		t.Fatal(err)
	}
	tr.SetHandler(bystander{})
	if err = tr.Do(func() {
		p, err := tr.Attach(pid)
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Println("attached")
		testprog.Await(t, "a stop for the exception", func() bool {
			st, err := procfs.ReadStatus(pid, pid)
			return err != nil || st.State == 't'
		})
		t.Error(p.Space.Freeze(func(*ptrace.Frozen) error {
			return p.Space.Remote(func(r *ptrace.Remote) error {
				for range calls {
					if _, err := r.Syscall(unix.SYS_GETPPID); err != nil {
						t.Error(err)
					}
				}
				return unix.Kill(os.Getpid(), unix.SIGKILL)
			})
		}))
	}); err != nil {
		t.Error(err)
	}
	t.Fatal("it lives")
}

// TestAnExceptionIsRaisedAgain: a thread has stopped for an exception, and makes system calls for its tracer before it gets that. The tracer is killed meanwhile. The program is told
// what the instruction has raised, once, and not of a signal that somebody has sent.
func TestAnExceptionIsRaisedAgain(t *testing.T) {
	for _, c := range []struct{ exception, told string }{
		{"int3", "signal 5 code 128"}, {"ud2", "signal 4 code 2"}, {"read", "signal 11 code 1"},
	} {
		for calls := range 3 {
			t.Run(fmt.Sprintf("%s-%d", c.exception, calls), func(t *testing.T) {
				prog := testprog.Start(t, testprog.Build(t, "excepts"))
				want := fmt.Sprintf("did %s: %s right 1 times 1", c.exception, c.told)
				if got := prog.Do(c.exception, "did"); got != want {
					t.Fatalf("untraced: %q, want %q", got, want)
				}
				cmd := exec.Command("/proc/self/exe", "-test.run=^TestTracerThatDiesAtAnException$", "-test.timeout=30m")
				cmd.Env = append(os.Environ(), "GOKPROBE_TRACE="+strconv.Itoa(prog.PID()), "GOKPROBE_EXCEPTION="+strconv.Itoa(calls))
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewScanner(out)
				if lines.Scan(); lines.Text() != "attached" {
					t.Errorf("the tracer says %q", lines.Text())
				}
				prog.Send(c.exception)
				for lines.Scan() {
					t.Logf("the tracer says %q", lines.Text())
				}
				if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
					t.Errorf("the tracer's end: %v", err)
				}
				if got := prog.Expect("did"); got != want {
					t.Errorf("%q, want %q", got, want)
				}
				prog.CheckClean()
				if got := prog.Quit(); got != "right" {
					t.Errorf("the program says %q", got)
				}
			})
		}
	}
}
