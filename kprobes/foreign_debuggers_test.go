package kprobes_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// debugger is a program that traces another one.
type debugger struct {
	name string
	args []string
	told string // its input
	says string // what a line of its output has in it when the process that it traces runs on
}

func strace(pid int) debugger {
	return debugger{name: "strace", args: []string{"-f", "-o", os.DevNull, "-p", fmt.Sprint(pid)}, says: "attached"}
}

// gdb has the process run on after commands.
func gdb(pid int, commands ...string) debugger {
	told := strings.Join(append(commands, "continue &", `echo it runs\n`), "\n") + "\n"
	return debugger{name: "gdb", args: []string{"-nx", "-p", fmt.Sprint(pid)}, told: told, says: "it runs"}
}

// TestDebuggersBesideUs: a process that strace or gdb traces is refused, with the tracer's name; they are refused one that we trace, and disturb nothing.
func TestDebuggersBesideUs(t *testing.T) {
	testprog.Need(t, "strace", "gdb")
	prog := start(t, "prey")
	pid := fmt.Sprint(prog.PID())
	for _, d := range []debugger{strace(prog.PID()), gdb(prog.PID())} {
		end := tracedBy(t, prog, d)
		s, err := kprobes.Attach(context.Background(), prog.PID(), kprobes.Options{})
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "("+d.name+")") {
			t.Errorf("attaching beside %s: %v", d.name, err)
		}
		end(syscall.SIGTERM)
	}
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := &kprobes.Kprobe{SymbolName: "foo"}
	if err := s.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	s.WaitForOptimizer(t.Context())
	if out, err := exec.Command("strace", "-p", pid).CombinedOutput(); err == nil {
		t.Errorf("strace attached as well: %s", out)
	}
	if out, _ := exec.Command("gdb", "-nx", "-batch", "-p", pid, "-ex", "break foo").CombinedOutput(); !strings.Contains(string(out), "ptrace: ") {
		t.Errorf("gdb attached as well: %s", out)
	}
	prog.Do("call foo 1", "ret 3")
	if kp.Hits() != 1 {
		t.Errorf("%d hits", kp.Hits())
	}
	closeSession(t, s)
	prog.CheckClean()
	prog.Quit()
}

// TestABreakpointThatADebuggerHasLeft stays where it is, and traps into us as long as we are there.
func TestABreakpointThatADebuggerHasLeft(t *testing.T) {
	testprog.Need(t, "gdb")
	prog := start(t, "prey")
	at := addressOf(t, prog.PID(), "target")
	clean := textAt(t, prog.PID(), at)
	end := tracedBy(t, prog, gdb(prog.PID(), fmt.Sprintf("break *%d", uint64(at))))
	if bytes.Equal(textAt(t, prog.PID(), at), clean) {
		t.Fatal("gdb sets no breakpoint")
	}
	end(syscall.SIGKILL)
	left := textAt(t, prog.PID(), at)
	s, err := kprobes.Attach(context.Background(), prog.PID(), kprobes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	there, elsewhere := &kprobes.Kprobe{SymbolName: "target"}, &kprobes.Kprobe{SymbolName: "foo"}
	if err := s.RegisterKprobes(t.Context(), []*kprobes.Kprobe{there, elsewhere}); err != nil {
		t.Fatal(err)
	}
	s.WaitForOptimizer(t.Context())
	for range 5 {
		prog.Do("call target 9", "ret 3")
		prog.Do("call foo 1", "ret 3")
	}
	for _, kp := range []*kprobes.Kprobe{there, elsewhere} {
		if st := s.Status(kp); st.Hits != 5 || st.Mechanism == kprobes.Optimized {
			t.Errorf("%s is %s, with %d hits", st.Probe, st.Mechanism, st.Hits)
		}
	}
	closeSession(t, s)
	if now := textAt(t, prog.PID(), at); !bytes.Equal(now, left) {
		t.Errorf("there is % x after we have left, and was % x", now, left)
	}
	prog.Do("call foo 1", "ret 3")
	prog.Quit()
}

// textAt is the code of a process at at.
func textAt(t *testing.T, pid int, at arch.Addr) []byte {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 4)
	if _, err := f.ReadAt(b, int64(at)); err != nil {
		t.Fatal(err)
	}
	return b
}

// tracedBy has a debugger trace prog, and waits until it says so. It traces until end sends it a signal: SIGTERM has it put all right first, SIGKILL does not.
func tracedBy(t *testing.T, prog *testprog.Prog, d debugger) (end func(syscall.Signal)) {
	t.Helper()
	r, w, err := os.Pipe()
	ok(t, err)
	cmd := exec.Command(d.name, d.args...)
	cmd.Stdout, cmd.Stderr = w, w
	in, err := cmd.StdinPipe() // open until it is killed: it would end with its input
	ok(t, err)
	err = cmd.Start()
	w.Close()
	ok(t, err)
	var once sync.Once
	end = func(sig syscall.Signal) {
		once.Do(func() {
			_ = cmd.Process.Signal(sig)
			_ = cmd.Wait() // which returns when its last thread has ended, and with that the kernel has let go what it traced
			r.Close()
			if by := tracer(prog.PID()); by != 0 {
				t.Errorf("process %d is traced by %d when %s has ended", prog.PID(), by, d.name)
			}
		})
	}
	t.Cleanup(func() { end(syscall.SIGKILL) })
	_, err = io.WriteString(in, d.told)
	ok(t, err)
	var said []string
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if said = append(said, lines.Text()); strings.Contains(lines.Text(), d.says) {
			return end
		}
	}
	t.Fatalf("%s does not attach, and says\n%s", d.name, strings.Join(said, "\n"))
	return end
}

func tracer(pid int) int {
	st, err := procfs.ReadStatus(pid, 0)
	if err != nil {
		return 0
	}
	return st.TracerPid
}
