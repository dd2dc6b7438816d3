package kprobes_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/guardian"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// wantDefault: the program has no handler of SIGTRAP. So it has given up the guard: what its action would lead to is gone.
func wantDefault(t *testing.T, pid int) {
	t.Helper()
	st, err := procfs.ReadStatus(pid, 0)
	ok(t, err)
	if st.SigCgt.Has(int(unix.SIGTRAP)) {
		t.Errorf("process %d has a handler of SIGTRAP, which is not its own", pid)
	}
}

// recovered recovers a process until nothing is left.
func recovered(t *testing.T, pid int) {
	t.Helper()
	done, err := kprobes.Recover(context.Background(), pid)
	for err == nil && done.Kept > 0 {
		done, err = kprobes.Recover(context.Background(), pid)
	}
	ok(t, err)
}

// TestNoGuardIsLeftInAProgramThatVforks: where sessions end while it is inside vfork(2), in which it can't be made to change an action. The action
// would lead to memory that is gone, and be taken for the program's own by the next session, which would set no guard.
func TestNoGuardIsLeftInAProgramThatVforks(t *testing.T) {
	rounds := testsize.Rounds(3, 12, 300)
	prog := start(t, "family")
	for range rounds {
		s := attach(t, prog.PID(), kprobes.Options{})
		register(t, s, boosted.probe("foo"))
		prog.Send("spawn 200")
		closeSession(t, s)
		if got := prog.Expect("spawned"); got != "spawned 200" {
			t.Error(got)
		}
		prog.CheckClean()
		wantDefault(t, prog.PID())
	}
	wantRight(t, prog)
}

// TestCloseInsideVfork: the child does not end as long as Close waits.
func TestCloseInsideVfork(t *testing.T) {
	prog := start(t, "family")
	s := attach(t, prog.PID(), kprobes.Options{})
	register(t, s, boosted.probe("foo"))
	prog.Do("vfork", "child")
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "inside vfork") {
		t.Errorf("close: %v", err)
	}
	if got := prog.Do("end", "back"); got != "back 56" {
		t.Error(got)
	}
	recovered(t, prog.PID())
	prog.CheckClean()
	wantDefault(t, prog.PID())
	wantRight(t, prog)
}

// TestUnregisterWhileCloseWaits for the end of a vfork(2): it waits as well. It must not end the tracer, which has still to put the code back.
func TestUnregisterWhileCloseWaits(t *testing.T) {
	prog := start(t, "family")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := boosted.probe("foo")
	register(t, s, kp)
	prog.Do("vfork", "child")
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	for !errors.Is(s.Do(func() {}), kprobes.ErrClosed) { // it waits, or is over
		runtime.Gosched()
	}
	if err := s.UnregisterKprobe(kp); !errors.Is(err, kprobes.ErrClosed) {
		t.Errorf("unregister: %v", err)
	}
	if err := <-closed; err == nil || !strings.Contains(err.Error(), "inside vfork") {
		t.Errorf("close: %v", err)
	}
	if got := prog.Do("end", "back"); got != "back 56" {
		t.Error(got)
	}
	recovered(t, prog.PID())
	prog.CheckClean()
	wantDefault(t, prog.PID())
	wantRight(t, prog)
}

// TestRecoverInsideVfork: the tracer is killed, and the program does not come out of vfork(2) for a while. Its guardian waits; and so does whoever
// recovers it.
func TestRecoverInsideVfork(t *testing.T) {
	for _, alone := range []bool{false, true} {
		t.Run(fmt.Sprint("guardian killed: ", alone), func(t *testing.T) {
			prog := start(t, "family")
			g := startGuarded(t, prog.PID(), "GOKPROBE_SYMBOLS=foo")
			pid := g.guardian(0)
			g.ask("armed")
			prog.Do("vfork", "child")
			if alone {
				widow(t, g, pid)
			}
			g.kill()
			if alone {
				done, err := kprobes.Recover(context.Background(), prog.PID())
				ok(t, err)
				if done.Kept != 1 || done.Patches == 0 {
					t.Errorf("recovered: %+v", done)
				}
			}
			if got := prog.Do("end", "back"); got != "back 56" {
				t.Error(got)
			}
			for !alone && !untouched(prog.PID()) {
				prog.Do("spawn 20", "spawned")
			}
			recovered(t, prog.PID())
			prog.CheckClean()
			wantDefault(t, prog.PID())
			wantRight(t, prog)
		})
	}
}

// widow kills a tracer and its guardian.
func widow(t *testing.T, g *guardedTracer, pid int) {
	t.Helper()
	end := guardian.Watch(pid)
	defer end.Close()
	_ = unix.Kill(pid, unix.SIGKILL)
	_ = unix.Kill(g.cmd.Process.Pid, unix.SIGKILL)
	g.kill()
	for !end.Ended(time.Hour) {
	}
	g.said() // another one may have been started in between
}

// TestNoCodeIsPatchedInsideVforkWithoutAGuard: what a program's thread or its vfork child came to would be a breakpoint that kills it, were the tracer killed.
func TestNoCodeIsPatchedInsideVforkWithoutAGuard(t *testing.T) {
	rounds := testsize.Rounds(3, 12, 300)
	prog := start(t, "family")
	for range rounds {
		prog.Send("spawn 300")
		s := attach(t, prog.PID(), kprobes.Options{Log: testprog.NoWarnings(t)})
		register(t, s, boosted.probe("foo"))
		wantGuard(t, prog.PID())
		closeSession(t, s)
		if got := prog.Expect("spawned"); got != "spawned 300" {
			t.Error(got)
		}
		prog.CheckClean()
	}
	wantRight(t, prog)
}

// TestAProbeInALongVfork: the child does not end as long as we wait. The guard comes as soon as it has.
func TestAProbeInALongVfork(t *testing.T) {
	prog := start(t, "family")
	prog.Do("vfork", "child")
	s := attach(t, prog.PID(), kprobes.Options{})
	kp := boosted.probe("foo")
	register(t, s, kp)
	if got := prog.Do("end", "back"); got != "back 56" {
		t.Error(got)
	}
	testprog.Await(t, "a guard", func() bool { return hasGuard(t, prog.PID()) })
	if n := kp.Hits(); n != 2 { // the child's call, too
		t.Errorf("counted %d calls, want 2", n)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantDefault(t, prog.PID())
	wantRight(t, prog)
}

// wantGuard: the program itself has no handler of SIGTRAP.
func wantGuard(t *testing.T, pid int) {
	t.Helper()
	if !hasGuard(t, pid) {
		t.Errorf("process %d has probes and no guard", pid)
	}
}

func hasGuard(t *testing.T, pid int) bool {
	t.Helper()
	st, err := procfs.ReadStatus(pid, 0)
	ok(t, err)
	return st.SigCgt.Has(int(unix.SIGTRAP))
}

// TestFollowedChildrenAreForgotten when they have ended: what is known of them does not stay, whatever followed them.
func TestFollowedChildrenAreForgotten(t *testing.T) {
	prog := start(t, "lives", "fork")
	s := attach(t, prog.PID(), kprobes.Options{Follow: true})
	returned := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "app_work"}, Handler: func(*kprobes.KretprobeInstance, *kprobes.Regs) int { return 0 }}
	counted := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "app_outer"}}
	for _, rp := range []*kprobes.Kretprobe{returned, counted} {
		ok(t, s.RegisterKretprobe(rp))
	}
	register(t, s, &kprobes.Kprobe{SymbolName: "libc.so.6:_exit"}, stepped.probe("libc.so.6:getpid"), boosted.probe("libc.so.6:write"),
		recording(t, "libc.so.6:malloc", func(*kprobes.Kprobe, *kprobes.HitRecord) {}))
	for _, by := range ways {
		registerSyscall(t, s, &kprobes.SyscallProbe{Numbers: []int{unix.SYS_WAIT4, unix.SYS_WRITE}, By: by, Exit: func(*kprobes.SyscallProbe, *kprobes.Regs) {}})
	}
	s.WaitForOptimizer(t.Context())
	used := func() (bytes uint64) {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	prog.Do("run fork 10", "ran")
	before := used()
	prog.Do("run fork 20", "ran")
	const most = 4 << 20
	if now := used(); now > before+most {
		t.Errorf("20 rounds of children have left %d kB", (now-before)>>10)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}
