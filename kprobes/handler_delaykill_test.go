package kprobes_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestDelayingTracer is not a test but the process that TestDelaysOfAKilledTracer kills while it delays a thread for
// the reason that GOKPROBE_DELAY gives, at a symbol.
func TestDelayingTracer(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("GOKPROBE_TRACE"))
	how, symbol, _ := strings.Cut(os.Getenv("GOKPROBE_DELAY"), " ")
	if err != nil || how == "" {
		return
	}
	s, err := kprobes.Attach(context.Background(), pid, kprobes.Options{Log: func(m string) { fmt.Fprintln(os.Stderr, "tracer:", m) }})
	ok(t, err)
	told := make(chan bool, 1000)
	delay := func(r *kprobes.Regs) { r.Delay(forever); told <- true }
	kp := &kprobes.Kprobe{SymbolName: symbol}
	switch how {
	case "pre", "optimized":
		kp.PreHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs) int { delay(r); return 0 }
	case "post":
		kp.PostHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs, _ uint64) { delay(r) }
	case "now":
		kp.PreHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs) int { delay(r); ok(t, r.ReturnNow(10)); return 1 }
	case "return":
		rp := &kprobes.Kretprobe{Handler: func(_ *kprobes.KretprobeInstance, r *kprobes.Regs) int { delay(r); return 0 }}
		rp.KP.SymbolName = symbol
		ok(t, s.RegisterKretprobe(rp))
		kp = nil
	}
	if kp != nil {
		ok(t, s.RegisterKprobe(kp))
	}
	if how == "optimized" {
		s.WaitForOptimizer(t.Context())
		s.PollAlways()
	}
	fmt.Println("armed")
	<-told
	toggle(t, s, boosted.probe("main"), 2) // the thread makes system calls for us
	fmt.Println("delayed")
	<-s.Done()
}

// TestDelaysOfAKilledTracer: the thread goes on as if its delay were over.
func TestDelaysOfAKilledTracer(t *testing.T) {
	for _, c := range []struct{ program, command, how, symbol, want string }{
		{"effects", "worker 30", "pre", "probed", "ret 10"},
		{"effects", "worker 30", "optimized", "probed", "ret 10"},
		{"effects", "worker 30", "post", "probed", "ret 10"},
		{"effects", "worker 60", "now", "probed", "ret 10"}, // its result is ours
		{"effects", "worker 30", "return", "probed", "ret 10"},
		{"interrupts", "calls", "pre", "raw_getpid_insn", ""},
		{"interrupts", "calls", "post", "raw_getpid_insn", ""},
		{"interrupts", "calls", "pre", "raw_getpid_insn+2", ""},
		{"interrupts", "calls", "post", "raw_getpid_insn+2", ""},
	} {
		t.Run(fmt.Sprint(c.how, " ", c.symbol), func(t *testing.T) {
			prog := start(t, c.program)
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestDelayingTracer$", "-test.timeout=30m")
			cmd.Env = append(os.Environ(), "GOKPROBE_TRACE="+strconv.Itoa(prog.PID()), "GOKPROBE_DELAY="+c.how+" "+c.symbol)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			ok(t, err)
			ok(t, cmd.Start())
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			lines := bufio.NewReader(out)
			says := func(want string) {
				t.Helper()
				if line, err := lines.ReadString('\n'); line != want+"\n" {
					t.Fatalf("the tracer says %q, %v, want %q", line, err, want)
				}
			}
			says("armed")
			prog.Send(c.command)
			says("delayed")
			ok(t, cmd.Process.Kill())
			_ = cmd.Wait()
			recoverDelayed(t, prog, c.want)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

func recoverDelayed(t *testing.T, prog *testprog.Prog, want string) {
	t.Helper()
	if want == "" {
		prog.Send("hello")
		prog.Expect("did")
		prog.Expect("did")
	} else {
		prog.Expect(want)
	}
	if done, err := kprobes.Recover(context.Background(), prog.PID()); err != nil || done.Kept > 0 {
		t.Errorf("recover: %+v, %v", done, err)
	}
}
