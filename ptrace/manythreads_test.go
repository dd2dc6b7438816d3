package ptrace

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestFewThreadsAreAwayAtOnceDuringAnAttach: of hundreds, no more have stopped, or were asked to, than are dealt with in a moment. All are stopped once.
func TestFewThreadsAreAwayAtOnceDuringAnAttach(t *testing.T) {
	const threads = 300
	prog := testprog.Start(t, testprog.Build(t, "threads"), "299")
	tr, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	most := 0
	tr.OnEvent(func() {
		away := 0
		for _, th := range tr.threads {
			if th.state == stopped || th.asked {
				away++
			}
		}
		most = max(most, away)
	})
	var p *Process
	whileHeld(t, tr, func() {}, func() error {
		p, err = tr.Attach(prog.PID())
		return err
	})
	tr.OnEvent(nil)
	whileHeld(t, tr, func() {}, func() error {
		for _, th := range p.Threads() {
			if !th.seen {
				t.Errorf("thread %d has not stopped", th.TID)
			}
		}
		if len(p.threads) != threads || most == 0 || most > passTogether {
			t.Errorf("of %d threads %d were away at once, want 1 to %d of %d", len(p.threads), most, passTogether, threads)
		}
		return tr.Detach(p)
	})
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// TestWhoRunsIsAwayForTheLeastOfAFreeze: it is asked to stop when those stand that wait in system calls, and is let go before them.
func TestWhoRunsIsAwayForTheLeastOfAFreeze(t *testing.T) {
	k := probe(t, "threads", "3") // three that call, and the main thread, which reads
	k.prog.Send("start")
	freeze := func() { k.do(func() error { return k.p.Space.Freeze(func(*Frozen) error { return nil }) }) }
	testprog.Await(t, "three threads that run", func() bool {
		freeze()
		idle := 0
		k.do(func() error {
			for th := range k.p.Space.all() {
				if th.idle {
					idle++
				}
			}
			return nil
		})
		return idle == 1
	})
	check := func() {
		main := k.p.Leader()
		for th := range k.p.Space.all() {
			if th != main && (th.asked || th.state == stopped) && main.state == running {
				t.Error("a thread that runs is asked to stop, or stands, and one that waits in the kernel is not")
			}
		}
	}
	for range 20 {
		k.do(func() error { k.tr.OnEvent(check); return nil })
		freeze()
		k.do(func() error { k.tr.OnEvent(nil); return nil })
	}
	k.prog.Do("stop", "calls")
	k.end()
}

// TestTheBellRingsWhereItsSignalIsBlocked: who has started us may have blocked it, and programs that we start begin with that.
func TestTheBellRingsWhereItsSignalIsBlocked(t *testing.T) {
	const inner = "GOKPROBE_TEST_BLOCKED_BELL"
	if os.Getenv(inner) != "" {
		tr, err := New()
		if err != nil {
			t.Fatal(err)
		}
		_ = tr.Do(func() {}) // it would wait for ever
		tr.Close()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^"+t.Name()+"$", "-test.timeout=30s")
	cmd.Env = append(os.Environ(), inner+"=1")
	cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	blocked := sigbit(unix.SIGWINCH)
	if _, _, err := waitStatus(pid, 0); err != nil {
		t.Error(err)
	}
	if err := requestPtr(reqSetSigmask, pid, unsafe.Sizeof(blocked), unsafe.Pointer(&blocked)); err != nil {
		t.Error(err)
	}
	if err := request(unix.PTRACE_DETACH, pid, 0, 0); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the program that begins with SIGWINCH blocked: %v", err)
	}
}
