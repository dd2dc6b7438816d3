package kprobes_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestBpftraceBesideUs: its uprobe and uretprobe come to a function that we probe, calls and returns, before or after us, and go before or after us.
func TestBpftraceBesideUs(t *testing.T) {
	testprog.NeedUprobes(t)
	testprog.Need(t, "bpftrace")
	bin := ownCopy(t, "prey")
	for _, jumps := range []bool{true, false} {
		for _, first := range []bool{true, false} {
			for _, last := range []bool{true, false} {
				t.Run(fmt.Sprintf("jumps %v, it comes first %v, goes last %v", jumps, first, last), func(t *testing.T) {
					besideBpftrace(t, testprog.Start(t, bin), bin, kprobes.Options{NoOptimize: !jumps}, first, last)
				})
			}
		}
	}
}

func besideBpftrace(t *testing.T, prog *testprog.Prog, bin string, opts kprobes.Options, first, last bool) {
	t.Helper()
	var leave func()
	if first {
		leave = bpftrace(t, prog, bin)
	}
	s, err := kprobes.Attach(context.Background(), prog.PID(), opts)
	if err != nil {
		t.Fatal(err)
	}
	kp, rp := &kprobes.Kprobe{SymbolName: "foo"}, &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "target"}}
	register(t, s, kp)
	if err := s.RegisterKretprobe(rp); err != nil {
		t.Fatal(err)
	}
	if s.WaitForOptimizer(t.Context()); !first {
		prog.Do("call foo 1", "ret 3")
		wantHits(t, kp, 1)
		leave = bpftrace(t, prog, bin)
	}
	prog.Do("call target 9", "ret 3")
	if !last {
		leave()
		wantHitsAgain(t, prog, kp, "call foo 1", "ret 3")
	}
	closeSession(t, s)
	prog.Do("call foo 1", "ret 3")
	prog.Do("call target 9", "ret 3")
	if last {
		leave()
	}
	prog.CheckClean()
	wantRight(t, prog)
}

// bpftrace has it probe foo and target. It has come when it tells of a hit; leave ends it. A signal that it gets in front of its epoll_wait(2) it sees
// with the next hit only.
func bpftrace(t *testing.T, prog *testprog.Prog, bin string) (leave func()) {
	t.Helper()
	probes := fmt.Sprintf(`uprobe:%s:foo { printf("hit\n"); } uretprobe:%s:foo,uretprobe:%s:target { @++; }`, bin, bin, bin)
	cmd := exec.Command("bpftrace", "-B", "line", "-p", fmt.Sprint(prog.PID()), "-e", probes)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hit, over := make(chan bool, 1), make(chan bool)
	go func() {
		defer close(over)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if lines.Text() == "hit" && len(hit) == 0 {
				hit <- true
			}
		}
	}()
	leave = func() {
		_ = cmd.Process.Signal(os.Interrupt)
		for {
			prog.Do("call foo 1", "ret 3")
			select {
			case <-over:
				_ = cmd.Wait()
				return
			default:
			}
		}
	}
	for {
		prog.Do("call foo 1", "ret 3")
		select {
		case <-hit:
			return leave
		case <-over:
			_ = cmd.Wait()
			t.Skip("bpftrace can't make uprobes here")
		default:
		}
	}
}
