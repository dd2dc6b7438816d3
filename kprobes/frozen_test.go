package kprobes_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestAFrozenProgram is left, or its tracer is killed, while a cgroup has it frozen: it is put right when it is thawed.
func TestAFrozenProgram(t *testing.T) {
	for version := 1; version <= 2; version++ {
		t.Run(fmt.Sprintf("version %d, left", version), func(t *testing.T) {
			prog := start(t, "prey")
			s, _ := sessionWith(t, prog, "foo", kprobes.Options{})
			prog.Do("call foo 1", "ret 3")
			thaw := frozenBy(t, prog, version)
			over := make(chan error)
			go func() { over <- s.Close() }()
			prog.Send("call foo 1")
			thaw()
			if err := <-over; err != nil {
				t.Error(err)
			}
			prog.Expect("ret 3")
			prog.CheckClean()
			wantRight(t, prog)
		})
		t.Run(fmt.Sprintf("version %d, killed", version), func(t *testing.T) {
			prog := start(t, "prey")
			g := startGuarded(t, prog.PID(), "GOKPROBE_SYMBOLS=foo target")
			g.guardian(0)
			if n := g.ask("armed"); n == "" || n == "0" {
				t.Fatalf("it has %q probes", n)
			}
			thaw := frozenBy(t, prog, version)
			g.kill()
			prog.Send("call foo 1")
			thaw()
			prog.Expect("ret 3")
			for !untouched(prog.PID()) {
				prog.Do("call foo 1", "ret 3")
			}
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

func frozenBy(t *testing.T, prog *testprog.Prog, version int) (thaw func()) {
	t.Helper()
	thaw, ok := prog.Freeze(version)
	if !ok {
		t.Skipf("no cgroup of version %d can be made here", version)
	}
	return thaw
}

// TestWhoDumpsAProcessIsRefused while we trace it, says so, and leaves it as it is: gdb's generate-core-file and checkpoint.
func TestWhoDumpsAProcessIsRefused(t *testing.T) {
	testprog.Need(t, "gdb")
	prog := start(t, "prey")
	s, kp := sessionWith(t, prog, "foo", kprobes.Options{})
	core := t.TempDir() + "/core"
	out, _ := exec.Command("gdb", "-nx", "-batch", "-p", fmt.Sprint(prog.PID()), "-ex", "checkpoint", "-ex", "generate-core-file "+core).CombinedOutput()
	if !strings.Contains(string(out), "ptrace: ") || strings.Contains(string(out), "Saved corefile") {
		t.Errorf("gdb says %s", out)
	}
	prog.Do("call foo 1", "ret 3")
	wantHits(t, kp, 1)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}
