package ptrace_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/ptrace"
)

// bystander leaves all to the target.
type bystander struct{ ptrace.Nop }

func (bystander) Execed(*ptrace.Process, *ptrace.Space) ptrace.Fate { return ptrace.LetGo }

// TestDyingTracer is not a test but the process that is killed, by itself, after some system calls of the target's
// and before it has put the thread's registers back.
func TestDyingTracer(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("GOKPROBE_TRACE"))
	if err != nil {
		return
	}
	calls, _ := strconv.Atoi(os.Getenv("GOKPROBE_CALLS"))
	tr, err := ptrace.New()
	if err != nil {
		t.Fatal(err)
	}
	tr.SetHandler(bystander{})
	err = tr.Do(func() {
		p, err := tr.Attach(pid)
		if err != nil {
			t.Error(err)
			return
		}
		_ = p.Space.Remote(func(r *ptrace.Remote) error {
			for range calls {
				if _, err := r.Syscall(unix.SYS_GETPPID); err != nil {
					t.Error(err)
				}
			}
			return unix.Kill(os.Getpid(), unix.SIGKILL)
		})
	})
	t.Fatalf("it lives: %v", err)
}

// TestAKillBetweenSystemCallsForUs: the thread goes on as if nothing had been, wherever it was: in a system call that
// waits, or at work.
func TestAKillBetweenSystemCallsForUs(t *testing.T) {
	const deep = "call recurse 7000" // touches the initial stack's lowest pages
	for _, c := range []struct{ prog, first, work string }{{"prey", "", "threads 4 3000 six"}, {"prey", deep, "threads 4 3000 six"}, {"gosrv", "", "threads 4 200000"}} {
		for _, busy := range []bool{false, true} {
			for calls := range 3 {
				t.Run(fmt.Sprintf("%s-%t-%t-%d", c.prog, c.first != "", busy, calls), func(t *testing.T) {
					prog := testprog.Start(t, testprog.Build(t, c.prog))
					if c.first != "" {
						prog.Do(c.first, "ret")
					}
					want := prog.Do(c.work, "sum")
					for range 3 {
						if busy {
							prog.Send(c.work)
						}
						dieTracing(t, prog.PID(), calls)
						if busy {
							if got := prog.Expect("sum"); got != want {
								t.Errorf("at work: %q, want %q", got, want)
							}
						}
						if got := prog.Do(c.work, "sum"); got != want {
							t.Errorf("afterwards: %q, want %q", got, want)
						}
					}
					prog.CheckClean()
					if got := prog.Quit(); got != "right" {
						t.Errorf("the program says %q", got)
					}
				})
			}
		}
	}
}

func dieTracing(t *testing.T, pid, calls int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestDyingTracer$", "-test.timeout=30m")
	cmd.Env = append(os.Environ(), "GOKPROBE_TRACE="+strconv.Itoa(pid), "GOKPROBE_CALLS="+strconv.Itoa(calls))
	out, err := cmd.CombinedOutput()
	if st, ok := cmd.ProcessState.Sys().(interface{ Signaled() bool }); err == nil || !ok || !st.Signaled() {
		t.Fatalf("the tracer was not killed: %v\n%s", err, out)
	}
}
