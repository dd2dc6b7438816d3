package kprobes_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestIoUringGoesOnUnderProbes: the kernel's own threads in a program work for it all the while, and nobody seizes, stops or
// changes them. What they do for the program ends as it does without us, and so does what its own threads wait for.
func TestIoUringGoesOnUnderProbes(t *testing.T) {
	attaches := testsize.Rounds(2, 6, 100)
	for _, leader := range []string{"stays", "leader"} {
		t.Run(leader, func(t *testing.T) {
			prog := start(t, "uring", leader)
			for i := range attaches / 2 {
				s := attach(t, prog.PID(), kprobes.Options{NoOptimize: i%3 == 0})
				wantWorkersUntraced(t, prog)
				kp := modes[i%2].probe("foo")
				ret := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "one"}, Handler: func(*kprobes.KretprobeInstance, *kprobes.Regs) int { return 0 }}
				register(t, s, kp)
				if err := s.RegisterKretprobe(ret); err != nil {
					t.Fatal(err)
				}
				began := rounds(t, prog)
				for rounds(t, prog) < began+20 { // the kernel makes and ends workers meanwhile
				}
				wantWorkersUntraced(t, prog)
				if kp.Hits() == 0 {
					t.Error("no hits")
				}
				closeSession(t, s)
				prog.CheckClean()
			}
			wantRight(t, prog)
		})
	}
}

// TestIoUringOutlivesItsTracer: nor does the guardian seize those threads.
func TestIoUringOutlivesItsTracer(t *testing.T) {
	for _, leader := range []string{"stays", "leader"} {
		t.Run(leader, func(t *testing.T) {
			prog := start(t, "uring", leader)
			for range 3 {
				g := startGuarded(t, prog.PID(), "GOKPROBE_SYMBOLS=foo one")
				g.guardian(0)
				if n := g.ask("armed"); n == "" || n == "0" {
					t.Fatalf("it has %q probes", n)
				}
				g.kill()
				for !untouched(prog.PID()) {
					rounds(t, prog)
				}
				began := rounds(t, prog)
				for rounds(t, prog) < began+20 {
				}
				wantWorkersUntraced(t, prog)
				prog.CheckClean()
			}
			wantRight(t, prog)
		})
	}
}

func rounds(t *testing.T, prog *testprog.Prog) uint64 {
	t.Helper()
	return number(t, prog.Do("count", "count"), "count")
}

// wantWorkersUntraced looks at the kernel's own threads in a program, and waits until there are some.
func wantWorkersUntraced(t *testing.T, prog *testprog.Prog) {
	t.Helper()
	testprog.Await(t, "a thread of the kernel's in the program", func() bool { return workersUntraced(t, prog) > 0 })
}

func workersUntraced(t *testing.T, prog *testprog.Prog) (seen int) {
	t.Helper()
	names, _ := filepath.Glob("/proc/" + strconv.Itoa(prog.PID()) + "/task/*/status")
	for _, name := range names {
		b, err := os.ReadFile(name)
		st, perr := procfs.ParseStatus(strings.NewReader(string(b)))
		if err != nil || perr != nil || !strings.HasPrefix(st.Name, "iou-") {
			continue
		}
		seen++
		const all = ^procfs.SigSet(1<<8 | 1<<18) // but SIGKILL and SIGSTOP, as create_io_thread leaves it
		if st.TracerPid != 0 || st.SigBlk != all {
			t.Errorf("%s (%d) is traced by %d, with signals %x blocked", st.Name, st.Pid, st.TracerPid, st.SigBlk)
		}
	}
	return seen
}

// TestTheKernelsOwnThreadIsTheLast: all threads of the program have ended, but the one by which the kernel polls a ring. Nobody is
// left who could be probed, or hurt.
func TestTheKernelsOwnThreadIsTheLast(t *testing.T) {
	t.Run("before the attach", func(t *testing.T) {
		prog := start(t, "uring", "spent")
		prog.Do("end", "ending")
		for {
			if st, err := procfs.ReadStat(prog.PID(), 0); err != nil || st.State == 'Z' {
				break
			}
		}
		if s, err := kprobes.Attach(context.Background(), prog.PID(), kprobes.Options{}); err == nil {
			t.Error("attached")
			closeSession(t, s)
		} else if !strings.Contains(err.Error(), "it has exited") {
			t.Errorf("attach says %v", err)
		}
	})
	t.Run("under probes", func(t *testing.T) {
		prog := start(t, "uring", "spent")
		s := attach(t, prog.PID(), kprobes.Options{})
		kp := boosted.probe("foo")
		register(t, s, kp)
		prog.Do("end", "ending")
		for {
			if st, err := procfs.ReadStat(prog.PID(), 0); err != nil || st.State == 'Z' {
				break
			}
		}
		if err := s.RegisterKprobe(boosted.probe("main")); err == nil {
			t.Error("registered where nobody runs")
		}
		wantHits(t, kp, 1)
		closeSession(t, s)
		prog.Kill() // nobody is left who could unmap anything, nor be hurt by it
	})
}
