package kprobes_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestUpcallTracer is not a test but the process that TestUpcallsOfAKilledTracer kills: in a
// handler that does not return if GOKPROBE_UPCALL is "stuck", else while it answers.
func TestUpcallTracer(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("GOKPROBE_TRACE"))
	if err != nil {
		return
	}
	s, err := kprobes.Attach(pid, kprobes.Options{Log: func(m string) { fmt.Fprintln(os.Stderr, "tracer:", m) }})
	if err != nil {
		t.Fatal(err)
	}
	told := false
	kp := &kprobes.Kprobe{SymbolName: "foo", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		if told || !kprobes.InUpcall(r) {
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
	s.WaitForOptimizer()
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
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestUpcallTracer$", "-test.timeout=1m")
			cmd.Env = append(os.Environ(), "GOKPROBE_TRACE="+strconv.Itoa(prog.PID()), "GOKPROBE_UPCALL="+mode)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			ok(t, err)
			ok(t, cmd.Start())
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			lines := bufio.NewReader(out)
			if line, err := lines.ReadString('\n'); line != "optimized\n" {
				t.Fatalf("the tracer says %q, %v", line, err)
			}
			prog.Send("start")
			if line, err := lines.ReadString('\n'); line != "upcall\n" {
				t.Fatalf("the tracer says %q, %v", line, err)
			}
			<-time.After(time.Duration(i) * time.Millisecond)
			ok(t, cmd.Process.Kill())
			_ = cmd.Wait()
			<-time.After(20 * time.Millisecond) // the threads run
			prog.Do("stop", "calls")
			prog.Do("go 200", "went")
			if done, err := kprobes.Recover(prog.PID()); err != nil || done.Kept > 0 {
				t.Errorf("recover: %+v, %v", done, err)
			}
			prog.Do("go 1000", "went")
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}
