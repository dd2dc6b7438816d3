package ptrace

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestTracerToBeFollowed is not a test but a process that traces until it is killed.
func TestTracerToBeFollowed(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("GOKPROBE_FOLLOWED"))
	if err != nil {
		return
	}
	tr := must2(New())
	must(tr.Do(func() { _, err = tr.Attach(pid) }))
	must(err)
	fmt.Println("attached")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// another has another process trace a program. It lets go when it is killed.
func another(t *testing.T, pid int) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestTracerToBeFollowed$", "-test.timeout=30m")
	cmd.Env = append(os.Environ(), "GOKPROBE_FOLLOWED="+strconv.Itoa(pid))
	_, err := cmd.StdinPipe()
	must(err)
	out := must2(cmd.StdoutPipe())
	must(cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if lines := bufio.NewScanner(out); !lines.Scan() || lines.Text() != "attached" {
		t.Fatalf("the other tracer says %q", lines.Text())
	}
	return cmd
}

// dying is a Patience for a tracer that is killed when it has been in the way so often.
type dying struct {
	cmd   *exec.Cmd
	after int
	dead  bool
}

func (d *dying) over(wait time.Duration) bool {
	if d.after--; d.after <= 0 && !d.dead {
		d.dead = true
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
	}
	if wait > 0 && !d.dead {
		<-time.After(wait)
	}
	return d.dead
}

// TestAProcessIsCaughtWhenItsTracerDies: all of its threads are ours then, asked to stop before anything else, and are the program's again when they are let
// go. Threads of the kernel's own are not asked.
func TestAProcessIsCaughtWhenItsTracerDies(t *testing.T) {
	for _, c := range []struct{ fixture, args, command string }{{"threads", "4", "start"}, {"uring", "", ""}} {
		for _, after := range []int{1, 2, 50} {
			t.Run(fmt.Sprintf("%s-%d", c.fixture, after), func(t *testing.T) {
				prog := testprog.Start(t, testprog.Build(t, c.fixture), c.args)
				if c.command != "" {
					prog.Send(c.command)
				}
				d := &dying{cmd: another(t, prog.PID()), after: after}
				tr := must2(New())
				tr.SetHandler(Nop{})
				defer tr.Close()
				start := must2(procfs.ReadStat(prog.PID(), 0)).StartTime
				whileHeld(t, tr, func() {}, func() error {
					p, err := tr.Catch(prog.PID(), start, d.over)
					if err != nil {
						return err
					}
					return p.Space.Freeze(func(*Frozen) error {
						for _, tid := range tids(t, prog.PID()) {
							st, err := procfs.ReadStat(prog.PID(), tid)
							status, statusErr := procfs.ReadStatus(prog.PID(), tid)
							if err = errors.Join(err, statusErr); err != nil {
								if !procfs.Gone(err) || p.threads[tid] != nil {
									t.Errorf("thread %d: %v", tid, err)
								}
								continue // it has ended: those of the kernel's own do so at any moment
							}
							tracer := status.TracerPid
							if ours := tracer == tr.tid; ours == st.Worker() || tracer != 0 && !ours {
								t.Errorf("thread %d is traced by %d, we are %d; the kernel's own: %v", tid, tracer, tr.tid, st.Worker())
							}
							if th := p.threads[tid]; !st.Worker() && (th == nil || !th.Stopped()) {
								t.Errorf("thread %d runs", tid)
							}
						}
						return tr.Detach(p)
					})
				})
				if !d.dead {
					t.Error("the other tracer lives")
				}
				prog.CheckClean()
				if c.command != "" {
					prog.Do("stop", "calls")
				} else {
					prog.Do("count", "count")
				}
				if got := prog.Quit(); got != "right" {
					t.Errorf("the program says %q, want right", got)
				}
			})
		}
	}
}

// TestAGrabAsksAllThreadsToStop, before any of them is waited for.
func TestAGrabAsksAllThreadsToStop(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "threads"), "4")
	prog.Send("start")
	tr := must2(New())
	defer tr.Close()
	must(tr.Do(func() {
		must(grab(prog.PID(), func(time.Duration) bool { return true }))
		for _, tid := range tids(t, prog.PID()) {
			testprog.Await(t, fmt.Sprintf("a stop of thread %d", tid), func() bool { return must2(procfs.ReadStatus(prog.PID(), tid)).State == 't' })
		}
	}))
	tr.Close()
	prog.CheckClean()
	prog.Do("stop", "calls")
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// TestNobodyElseIsCaught: the number means another process by now, or none.
func TestNobodyElseIsCaught(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "prey"))
	tr := must2(New())
	defer tr.Close()
	start := must2(procfs.ReadStat(prog.PID(), 0)).StartTime
	never := func(time.Duration) bool { t.Error("somebody is waited for"); return true }
	must(tr.Do(func() {
		if p, err := tr.Catch(prog.PID(), start-1, never); p != nil || !errors.Is(err, unix.ESRCH) {
			t.Errorf("another process: %v, %v", p, err)
		}
		if p, err := tr.Catch(1<<30, start, never); p != nil || !errors.Is(err, unix.ESRCH) {
			t.Errorf("no process: %v, %v", p, err)
		}
		if len(tr.procs)+len(tr.threads) > 0 {
			t.Error("a process is held")
		}
	}))
	prog.CheckClean()
}

// TestATracerThatStaysKeepsItsProcess: it said that it would let go, and has not.
func TestATracerThatStaysKeepsItsProcess(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "prey"))
	other := another(t, prog.PID())
	tr := must2(New())
	defer tr.Close()
	start := must2(procfs.ReadStat(prog.PID(), 0)).StartTime
	must(tr.Do(func() {
		p, err := tr.Catch(prog.PID(), start, func(time.Duration) bool { return true })
		refused := (*AttachError)(nil)
		if p != nil || !errors.As(err, &refused) || refused.Cause != CauseTraced || len(tr.procs)+len(tr.threads) > 0 {
			t.Errorf("%v, %v; %d processes", p, err, len(tr.procs))
		}
	}))
	if st := must2(procfs.ReadStatus(prog.PID(), 0)); must2(procfs.ReadStatus(st.TracerPid, 0)).Tgid != other.Process.Pid {
		t.Errorf("it is traced by %d", st.TracerPid)
	}
	must(other.Process.Kill())
	_ = other.Wait()
	prog.CheckClean()
}
