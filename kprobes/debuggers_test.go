package kprobes_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestDebuggersBesideUs: a process that strace or gdb traces is refused, with the tracer's name; they are refused one that we trace, and disturb nothing; a
// breakpoint that a killed gdb has left stays, and a probe at the same place has its hits.
func TestDebuggersBesideUs(t *testing.T) {
	for _, tool := range []string{"strace", "gdb"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	prog := start(t, "prey")
	pid := fmt.Sprint(prog.PID())
	for name, args := range map[string][]string{"strace": {"-f", "-o", os.DevNull, "-p", pid}, "gdb": {"-nx", "-batch", "-p", pid, "-ex", "continue"}} {
		kill := tracedBy(t, prog, name, args...)
		s, err := kprobes.Attach(prog.PID(), kprobes.Options{})
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "("+name+")") {
			t.Errorf("attaching beside %s: %v", name, err)
		}
		kill()
	}
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := &kprobes.Kprobe{SymbolName: "foo"}
	if err := s.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	s.WaitForOptimizer()
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
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	prog.CheckClean()
	prog.Quit()
}

// TestABreakpointThatADebuggerHasLeft stays where it is, and traps into us as long as we are there.
func TestABreakpointThatADebuggerHasLeft(t *testing.T) {
	if _, err := exec.LookPath("gdb"); err != nil {
		t.Skip("gdb is not installed")
	}
	prog := start(t, "prey")
	at := addressOf(t, prog.PID(), "target")
	clean := textAt(t, prog.PID(), at)
	kill := tracedBy(t, prog, "gdb", "-nx", "-batch", "-p", fmt.Sprint(prog.PID()), "-ex", fmt.Sprintf("break *%d", uint64(at)), "-ex", "continue")
	for end := time.Now().Add(time.Minute); bytes.Equal(textAt(t, prog.PID(), at), clean); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("gdb sets no breakpoint")
		}
	}
	kill()
	left := textAt(t, prog.PID(), at)
	s, err := kprobes.Attach(prog.PID(), kprobes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	there, elsewhere := &kprobes.Kprobe{SymbolName: "target"}, &kprobes.Kprobe{SymbolName: "foo"}
	if err := s.RegisterKprobes([]*kprobes.Kprobe{there, elsewhere}); err != nil {
		t.Fatal(err)
	}
	s.WaitForOptimizer()
	for range 5 {
		prog.Do("call target 9", "ret 3")
		prog.Do("call foo 1", "ret 3")
	}
	for _, kp := range []*kprobes.Kprobe{there, elsewhere} {
		if st := s.Status(kp); st.Hits != 5 || st.Mechanism == "optimized" {
			t.Errorf("%s is %s, with %d hits", st.Probe, st.Mechanism, st.Hits)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
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

// tracedBy has a tool trace prog, until kill, which is no way to end for it: nothing is put right.
func tracedBy(t *testing.T, prog *testprog.Prog, name string, args ...string) (kill func()) {
	t.Helper()
	cmd := exec.Command(name, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := false
	kill = func() {
		if done {
			return
		}
		done = true
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for tracer(prog.PID()) != 0 { // the kernel lets it go when the tracer's last thread has ended
			time.Sleep(time.Millisecond)
		}
	}
	t.Cleanup(kill)
	for end := time.Now().Add(time.Minute); tracer(prog.PID()) != cmd.Process.Pid; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not attach", name)
		}
	}
	return kill
}

func tracer(pid int) int {
	st, err := procfs.ReadStatus(pid, 0)
	if err != nil {
		return 0
	}
	return st.TracerPid
}
