package door

import (
	"bytes"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// traced runs a script in dir in a shell that this process traces.
func traced(t *testing.T, dir, script string) string {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var out bytes.Buffer
	cmd := in(dir, script)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err != nil {
		t.Fatal(err)
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACEFORK|unix.PTRACE_O_TRACEVFORK|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACEEXEC); err != nil {
		t.Fatal(err)
	}
	if err := unix.PtraceCont(pid, 0); err != nil {
		t.Fatal(err)
	}
	for {
		var ws unix.WaitStatus
		child, err := unix.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case err != nil:
			t.Fatal(err)
		case child == pid && (ws.Exited() || ws.Signaled()):
			_ = cmd.Wait() // copies the output
			return out.String()
		case ws.Stopped():
			sig := int(ws.StopSignal())
			if sig == int(unix.SIGTRAP) || sig == int(unix.SIGSTOP) {
				sig = 0
			}
			_ = unix.PtraceCont(child, sig)
		}
	}
}

// TestAThreadThatWaitsForAFileCanBeStopped as the probes' freezing does, while what it waits for waits for that.
func TestAThreadThatWaitsForAFileCanBeStopped(t *testing.T) {
	for _, asks := range []int{0, 1, 2} { // of Stat, by lookup and getattr, and of Open, how many are answered
		tree, dir := mounted(t)
		trap := tree.setTrap()
		cmd := in(dir, `exec cat list`)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for range asks {
			<-trap.came
			trap.goOn <- struct{}{}
		}
		<-trap.came
		stopped(t, cmd.Process.Pid, dir)
		close(trap.goOn)
		_ = cmd.Wait() // it may have been told EINTR
	}
}

// stopped stops a process that is to wait in the kernel for our answer, as a debugger would, and lets it go on.
func stopped(t *testing.T, pid int, dir string) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(pid); err != nil {
		t.Fatal(err)
	}
	if err := unix.PtraceInterrupt(pid); err != nil {
		t.Fatal(err)
	}
	testprog.Await(t, "a stop of a thread that waits for a file in "+dir, func() bool {
		got, err := unix.Wait4(pid, nil, unix.WALL|unix.WNOHANG, nil)
		return got == pid || err != nil
	})
	if err := unix.PtraceDetach(pid); err != nil {
		t.Error(err)
	}
}

// TestASignalDoesNotFailWhoeverOpensAFile though FUSE could.
func TestASignalDoesNotFailWhoeverOpensAFile(t *testing.T) {
	tree, dir := mounted(t)
	trap := tree.setTrap()
	cmd := in(dir, `trap : USR1; read -r line < list && echo "$line"`)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-trap.came
	if err := cmd.Process.Signal(unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	trap.goOn <- struct{}{}
	<-trap.came
	if err := cmd.Process.Signal(unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	close(trap.goOn)
	if err := cmd.Wait(); err != nil || out.String() != "0000000000401000  k  main+0x0\n" {
		t.Errorf("%q %v", out.String(), err)
	}
}
