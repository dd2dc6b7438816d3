package kprobes_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestADeathWhileAHitInADetourNeedsMemory: a thread stops in a jump's detour, and its hit has it map memory for us: for a new probe, or for where the call returns to. We are killed
// behind that. The thread is in front of the function then, not behind the first byte of the jump.
func TestADeathWhileAHitInADetourNeedsMemory(t *testing.T) {
	for _, how := range []string{"handler", "entry handler"} {
		t.Run(how, func(t *testing.T) {
			prog := start(t, "blocker")
			kill, said := tracerToKill(t, prog, "TestMappingTracer", "GOKPROBE_HOW="+how)
			want := "status 0"
			prog.Send("spawn")
			said("mapped")
			kill()
			if got := prog.Expect("status"); got != want {
				t.Errorf("when the tracer dies: %s", got)
			}
			if got := prog.Do("spawn", "status"); got != want {
				t.Errorf("without a tracer: %s", got)
			}
			prog.Do("foo 6", "called")
			recoverAll(t, prog)
			prog.Do("foo 7", "called")
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestMappingTracer is not a test but the process that TestADeathWhileAHitInADetourNeedsMemory kills: it kills itself.
func TestMappingTracer(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("GOKPROBE_TRACE"))
	if err != nil {
		return
	}
	s, err := kprobes.Attach(context.Background(), pid, kprobes.Options{Log: func(m string) { fmt.Fprintln(os.Stderr, "tracer:", m) }})
	ok(t, err)
	const spawn = "libc.so.6:posix_spawnp"
	var kp *kprobes.Kprobe
	die := func() int {
		b, err := procfs.ReadBlocked(pid, pid)
		ok(t, err)
		if b.PC-kp.Addr <= 1 { // it has, and stands at the function again: else it would be in the detour
			fmt.Println("mapped")
		}
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
	kp = &kprobes.Kprobe{SymbolName: spawn}
	if os.Getenv("GOKPROBE_HOW") == "handler" {
		kp.PreHandler = func(*kprobes.Kprobe, *kprobes.Regs) int {
			ok(t, s.RegisterKprobe(&kprobes.Kprobe{SymbolName: "foo"})) // the first near the program's own code
			return die()
		}
		ok(t, s.RegisterKprobe(kp))
	} else { // the call returns to the program's own code
		rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: spawn}, EntryHandler: func(*kprobes.KretprobeInstance, *kprobes.Regs) int { return die() }}
		ok(t, s.RegisterKretprobe(rp))
		kp = &rp.KP
	}
	ok(t, s.WaitForOptimizer(t.Context()))
	if got := s.Status(kp).Mechanism; got != kprobes.Optimized && testprog.CallsTracer() {
		t.Fatalf("the probe is reached by: %s", got)
	}
	fmt.Println("optimized")
	<-s.Done()
}
