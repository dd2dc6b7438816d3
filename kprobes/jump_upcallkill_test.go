package kprobes_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestUpcallTracer is not a test but the process that TestUpcallsOfAKilledTracer kills: in a
// handler that does not return if GOKPROBE_UPCALL is "stuck", else while it answers.
func TestUpcallTracer(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("GOKPROBE_TRACE"))
	if err != nil {
		return
	}
	s, err := kprobes.Attach(context.Background(), pid, kprobes.Options{Log: func(m string) { fmt.Fprintln(os.Stderr, "tracer:", m) }})
	if err != nil {
		t.Fatal(err)
	}
	told := false
	kp := &kprobes.Kprobe{SymbolName: "foo", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		if told || !byUpcall(r) {
			return 0
		}
		told = true
		fmt.Println("upcall")
		if os.Getenv("GOKPROBE_UPCALL") == "stuck" {
			select {}
		}
		return 0
	}}
	if err := s.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	s.WaitForOptimizer(t.Context())
	s.PollAlways()
	fmt.Println("optimized")
	<-s.Done()
}

// TestUpcallsOfAKilledTracer: threads that wait for an answer go on as if there were no probe,
// and the code can be put back.
func TestUpcallsOfAKilledTracer(t *testing.T) {
	for i := range 6 {
		mode := []string{"stuck", "answering"}[i%2]
		t.Run(fmt.Sprint(i, mode), func(t *testing.T) {
			prog := start(t, "threads", "3")
			kill, said := tracerToKill(t, prog, "TestUpcallTracer", "GOKPROBE_UPCALL="+mode)
			prog.Send("start")
			said("upcall")
			<-time.After(time.Duration(i) * time.Millisecond)
			kill()
			<-time.After(20 * time.Millisecond) // the threads run
			prog.Do("stop", "calls")
			prog.Do("go 200", "went")
			if done, err := kprobes.Recover(context.Background(), prog.PID()); err != nil || done.Kept > 0 {
				t.Errorf("recover: %+v, %v", done, err)
			}
			prog.Do("go 1000", "went")
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// tracerToKill runs a test of this program which traces prog; its probe is optimized when this returns. kill kills it, and said waits for its next line.
func tracerToKill(t *testing.T, prog *testprog.Prog, test, env string) (kill func(), said func(want string)) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+test+"$", "-test.timeout=30m")
	cmd.Env = append(os.Environ(), "GOKPROBE_TRACE="+strconv.Itoa(prog.PID()), env)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	kill = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	t.Cleanup(kill)
	lines := bufio.NewReader(out)
	said = func(want string) {
		t.Helper()
		if line, err := lines.ReadString('\n'); line != want+"\n" {
			t.Fatalf("the tracer says %q, %v, want %q", line, err, want)
		}
	}
	said("optimized")
	return kill, said
}

// TestTracersKilledOneAfterTheOther: each puts right what the one before has left.
func TestTracersKilledOneAfterTheOther(t *testing.T) {
	prog := start(t, "threads", "3")
	for range 4 {
		kill, said := tracerToKill(t, prog, "TestDecidingTracer", "GOKPROBE_DECIDE=going")
		prog.Send("start")
		said("chosen")
		kill()
		prog.Do("stop", "calls")
	}
	if done, err := kprobes.Recover(context.Background(), prog.PID()); err != nil || done.Regions != 1 || done.Kept > 0 {
		t.Errorf("recover: %+v, %v", done, err)
	}
	prog.Do("go 1000", "went")
	prog.CheckClean()
	wantRight(t, prog)
}
