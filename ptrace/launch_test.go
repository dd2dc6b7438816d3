package ptrace

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// launched is a program that was started by a tracer.
type launched struct {
	*prober
	in  *os.File
	out *bufio.Scanner
}

// launch starts a program, held in front of its first instruction.
func launch(t *testing.T, fixture string, c Command, args ...string) *launched {
	t.Helper()
	theirIn, in, err := os.Pipe()
	must(err)
	out, theirOut, err := os.Pipe()
	must(err)
	t.Cleanup(func() { in.Close(); out.Close() })
	k := newProber(t, fixture)
	k.tr, err = New()
	must(err)
	k.tr.SetHandler(k)
	c.Path, c.Args, c.Files = k.bin, append([]string{fixture}, args...), []*os.File{theirIn, theirOut, os.Stderr}
	if c.Env == nil {
		c.Env = os.Environ()
	}
	k.do(func() (err error) {
		k.p, err = k.tr.Launch(c)
		return err
	})
	t.Cleanup(func() { _ = unix.Kill(k.p.PID, unix.SIGKILL); k.tr.Close() })
	theirIn.Close()
	theirOut.Close()
	return &launched{k, in, bufio.NewScanner(out)}
}

func (l *launched) says(want string) {
	l.t.Helper()
	if l.out.Scan(); l.out.Text() != want {
		l.t.Errorf("the program says %q, want %q", l.out.Text(), want)
	}
}

// finish lets the program end by itself, and awaits what the Handler is told of that.
func (l *launched) finish() {
	l.t.Helper()
	l.in.Close()
	l.says("right")
	testprog.Await(l.t, "its end", func() bool { return l.seen("exited 0") == 1 })
	l.do(func() error {
		if len(l.tr.procs)+len(l.tr.threads) > 0 {
			l.t.Error("a process is left")
		}
		return nil
	})
}

// entry is where a program's file says that it begins.
func (l *launched) entry() arch.Addr {
	f, err := elf.Open(l.bin)
	must(err)
	defer f.Close()
	if f.Type != elf.ET_DYN {
		return arch.Addr(f.Entry)
	}
	i := slices.IndexFunc(must2(l.p.Space.Maps()), func(m procfs.Mapping) bool { return m.Path == l.bin && m.Offset == 0 })
	return must2(l.p.Space.Maps())[i].Range.Start + arch.Addr(f.Entry)
}

// TestALaunchedProgramIsHeldBeforeItsFirstInstruction, seized as an attached one is, with the arguments, the environment, the directory and the descriptors
// that were asked for, and nothing left of how it was stopped.
func TestALaunchedProgramIsHeldBeforeItsFirstInstruction(t *testing.T) {
	dir := t.TempDir()
	l := launch(t, "call", Command{Dir: dir, Env: []string{"ONLY=this"}})
	l.do(func() error {
		th := l.p.Leader()
		regs := must2(th.Regs())
		interpreter := must2(l.p.Space.Auxv())[7] // AT_BASE
		if m := must2(l.p.Space.mapAt(regs.IP())); m == nil || !m.Exec || m.Path == l.bin || regs.IP() < arch.Addr(interpreter) {
			t.Errorf("it stands at %s, in %+v", regs.IP(), m)
		}
		st := must2(procfs.ReadStatus(l.p.PID, 0))
		if st.TracerPid != l.tr.tid || st.State != 't' || st.SigPnd|st.ShdPnd != 0 || th.Stop().Reason != Interrupt || th.job.grouped {
			t.Errorf("the kernel says %+v, the stop is %s", st, th.Stop())
		}
		return nil
	})
	if got := must2(procfs.Cmdline(l.p.PID)); !slices.Equal(got, []string{"call"}) {
		t.Errorf("its arguments are %q", got)
	}
	if got := string(must2(os.ReadFile(fmt.Sprintf("/proc/%d/environ", l.p.PID)))); got != "ONLY=this\x00" {
		t.Errorf("its environment is %q", got)
	}
	if !os.SameFile(must2(os.Stat(fmt.Sprintf("/proc/%d/cwd", l.p.PID))), must2(os.Stat(dir))) {
		t.Errorf("it is in another directory than %s", dir)
	}
	if !os.SameFile(must2(os.Stat(fmt.Sprintf("/proc/%d/fd/0", l.p.PID))), must2(l.in.Stat())) {
		t.Error("its descriptor 0 is not the one that it was to have")
	}
	l.do(func() error { l.tr.Release(l.p.Leader()); return nil })
	l.says("ready")
	fmt.Fprintln(l.in, "go 27")
	l.says("ret 9")
	l.finish()
}

// TestAProgramThatCannotBeLaunchedLeavesNoProcess.
func TestAProgramThatCannotBeLaunchedLeavesNoProcess(t *testing.T) {
	tr := must2(New())
	defer tr.Close()
	must(tr.Do(func() {
		for _, path := range []string{"/nonexistent", "/dev/null", t.TempDir()} {
			if p, err := tr.Launch(Command{Path: path, Args: []string{"x"}}); err == nil || p != nil || len(tr.children)+len(tr.procs) > 0 {
				t.Errorf("%s: %v, %v", path, p, err)
			}
		}
		children := must2(procfs.Children(os.Getpid(), tr.tid))
		if len(children) != 1 || children[0] != tr.bell.pid {
			t.Errorf("children are left: %v, the bell is %d", children, tr.bell.pid)
		}
	}))
}

// TestRunToStopsWhereItIsToldTo, before that instruction, with the text as it was; also where a breakpoint of somebody's stands there already, which stays.
func TestRunToStopsWhereItIsToldTo(t *testing.T) {
	for _, beside := range []bool{false, true} {
		t.Run(fmt.Sprintf("beside another breakpoint %v", beside), func(t *testing.T) {
			l := launch(t, "call", Command{})
			trap := host.Arch.Breakpoint()
			l.do(func() error {
				at, text := l.entry(), l.p.Space.Text()
				before, after := make([]byte, 16), make([]byte, 16)
				must(text.ReadMemory(at, before))
				if beside {
					must(text.WriteMemory(at, trap))
				}
				th := l.p.Leader()
				if got := must2(l.tr.RunTo(th, at)); got != at {
					t.Errorf("it came to %s, not %s", got, at)
				}
				if ip := must2(th.Regs()).IP(); ip != at || th.Stop().Reason != Breakpoint || th.queued {
					t.Errorf("it stands at %s, not %s, for %s", ip, at, th.Stop())
				}
				if must(text.ReadMemory(at, after)); beside {
					if !bytes.HasPrefix(after, trap) {
						t.Error("the other breakpoint has gone")
					}
					must(text.WriteMemory(at, before[:len(trap)]))
					must(text.ReadMemory(at, after))
				}
				if !bytes.Equal(before, after) {
					t.Errorf("the text is % x, was % x", after, before)
				}
				l.tr.Release(th)
				return nil
			})
			l.says("ready")
			fmt.Fprintln(l.in, "many 100")
			l.says("did 100")
			l.do(func() error { return l.tr.Detach(l.p) })
			testprog.CheckClean(t, l.p.PID)
			l.in.Close()
			l.says("right")
		})
	}
}

// TestTheEndOfALaunchedProcessIsToldAfterItWasLetGo, since it is a child of the tracer's.
func TestTheEndOfALaunchedProcessIsToldAfterItWasLetGo(t *testing.T) {
	l := launch(t, "call", Command{})
	l.do(func() error { return l.tr.Detach(l.p) })
	l.says("ready")
	testprog.CheckClean(t, l.p.PID)
	must(unix.Kill(l.p.PID, unix.SIGTERM))
	testprog.Await(t, "its end", func() bool { return l.seen("exited 143") == 1 })
}

// TestASignalOnTheWayToAPlaceIsTheProgramsOwn: one that is sent while the program runs to a place is told of, and has its effect.
func TestASignalOnTheWayToAPlaceIsTheProgramsOwn(t *testing.T) {
	l := launch(t, "call", Command{})
	told := 0
	l.onSignal = func(_ *Thread, info *Siginfo) (Delivery, Verdict) {
		told += int(info.Signo() / unix.SIGTERM)
		return Drop, AsTold()
	}
	l.do(func() error {
		th := l.p.Leader()
		must(unix.Tgkill(l.p.PID, th.TID, unix.SIGTERM))
		must2(l.tr.RunTo(th, l.entry()))
		l.tr.Release(th)
		return nil
	})
	l.says("ready")
	if told != 1 {
		t.Errorf("told of %d", told)
	}
	l.finish()
}
