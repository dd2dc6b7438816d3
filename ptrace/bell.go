package ptrace

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/host"
)

// A bell is a traced child whose only use is to be signalled: the signal stops it,
// and that stop wakes the tracer out of wait4. It is this program's own executable,
// stopped at its exec before its first instruction and then sent into pause(2); it
// never runs any of its code, and PTRACE_O_EXITKILL ends it with us.
type bell struct{ pid int }

// newBell must run on the tracer's thread, which becomes the child's tracer.
func newBell() (*bell, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("starting the helper process: %w", err)
	}
	defer null.Close()
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"gokprobe-bell"}, &syscall.ProcAttr{
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd()},
		// Until it has PTRACE_O_EXITKILL: else, if we die just when it asks to be
		// traced, its new parent would be its tracer, and it would stop for ever.
		Sys: &syscall.SysProcAttr{Ptrace: true, Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return nil, fmt.Errorf("starting the helper process: %w", err)
	}
	b := &bell{pid}
	if err := b.prepare(); err != nil {
		b.close()
		return nil, fmt.Errorf("preparing the helper process: %w", err)
	}
	return b, nil
}

func (b *bell) prepare() error {
	if _, _, err := waitStatus(b.pid, 0); err != nil {
		return err
	}
	if err := request(unix.PTRACE_SETOPTIONS, b.pid, 0, unix.PTRACE_O_EXITKILL); err != nil {
		return err
	}
	var r host.Regs
	if err := host.ReadRegs(b.pid, &r); err != nil {
		return err
	}
	if err := pokeText(b.pid, r.IP(), host.PauseLoop); err != nil {
		return err
	}
	// Whoever has started us may have blocked the signal (perf record does), and the bell would never ring.
	var none uint64
	if err := requestPtr(reqSetSigmask, b.pid, unsafe.Sizeof(none), unsafe.Pointer(&none)); err != nil {
		return err
	}
	return request(unix.PTRACE_CONT, b.pid, 0, 0)
}

// ring makes the tracer's wait4 return. Safe for concurrent use.
func (b *bell) ring() { _ = unix.Kill(b.pid, unix.SIGWINCH) }

// rearm lets the bell pause again. It reports whether the bell still lives.
func (b *bell) rearm(ws unix.WaitStatus) bool {
	if !ws.Stopped() {
		return false
	}
	return request(unix.PTRACE_CONT, b.pid, 0, 0) == nil
}

func (b *bell) close() {
	_ = unix.Kill(b.pid, unix.SIGKILL)
	for {
		_, ws, err := waitStatus(b.pid, 0)
		if err != nil || ws.Exited() || ws.Signaled() {
			return
		}
	}
}
