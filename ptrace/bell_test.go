package ptrace

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// bellKiller kills the bell at the first signal of the target and collects its end.
type bellKiller struct {
	Nop
	t      *Tracer
	once   *sync.Once
	killed chan struct{}
}

func (k bellKiller) Signal(*Thread, *Siginfo) (Delivery, Verdict) {
	k.once.Do(func() {
		_ = unix.Kill(k.t.bell.pid, unix.SIGKILL)
		for !k.t.deaf {
			k.t.drain()
		}
		close(k.killed)
	})
	return Deliver, AsTold()
}

// TestBellKilledWhileDraining: somebody kills the bell, and its end is collected among
// other stops, not by the wait for the next one. Do still wakes the tracer.
func TestBellKilledWhileDraining(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "prey"))
	tr, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	k := bellKiller{t: tr, once: new(sync.Once), killed: make(chan struct{})}
	tr.SetHandler(k)
	var p *Process
	if err := tr.Do(func() { p, err = tr.Attach(prog.PID()) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := prog.Signal(unix.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	<-k.killed
	waitInWaitid(t, tr.tid)
	if derr := tr.Do(func() { err = tr.Detach(p) }); derr != nil || err != nil {
		t.Error(derr, err)
	}
	prog.CheckClean()
}

// waitInWaitid reads /proc until our thread tid is blocked in wait4(2).
func waitInWaitid(t *testing.T, tid int) {
	t.Helper()
	testprog.Await(t, fmt.Sprintf("thread %d waiting", tid), func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/syscall", tid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.HasPrefix(string(b), fmt.Sprintf("%d ", unix.SYS_WAITID))
	})
}

// TestTheBellRingsWhateverIsBlocked: who starts us may have blocked any signal, and the bell's process inherits that.
func TestTheBellRingsWhateverIsBlocked(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		t.Fatal(err)
	}
	b, err := newBell()
	if restored := unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil); err != nil || restored != nil {
		t.Fatal(err, restored)
	}
	defer b.close()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.pid))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(status), "\nSigBlk:\t0000000000000000\n") {
		t.Fatalf("it blocks signals:\n%s", status)
	}
	b.ring()
	if _, ws, err := waitStatus(b.pid, 0); err != nil || !ws.Stopped() {
		t.Errorf("it has not stopped, but %#x: %v", ws, err)
	}
}
