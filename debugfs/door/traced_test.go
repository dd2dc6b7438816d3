package door

import (
	"bytes"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
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
