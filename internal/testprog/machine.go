package testprog

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// What not every machine has, above all where a hypervisor makes do without the processor's virtualization. Tests
// that need it are skipped with a sentence that says "this processor", which continuous integration lets pass: nothing
// that could be installed brings it.

// CallsTracer reports whether targets can call their tracer on this machine: their programs can read their thread
// pointers (HWCAP2_FSGSBASE, arch/x86/fsgs in the kernel's documentation).
var CallsTracer = sync.OnceValue(func() bool {
	const hwcap2, fsgsbase = 26, 1 << 1
	auxv, err := procfs.Auxv(os.Getpid())
	return err == nil && auxv[hwcap2]&fsgsbase != 0
})

// NeedUpcalls skips a test of upcalls where there are none.
func NeedUpcalls(t testing.TB) {
	t.Helper()
	if !CallsTracer() {
		t.Skip("programs can't read their thread pointers on this processor, so they can't call their tracer")
	}
}

// Calls32Bit reports whether 64-bit programs can make 32-bit system calls (int 0x80).
func Calls32Bit(t testing.TB) bool {
	t.Helper()
	return exec.Command(Build(t, "int80")).Run() == nil
}

// DebugRegistersTrap reports whether an instruction breakpoint in a debug register stops a thread.
var DebugRegistersTrap = sync.OnceValue(func() bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	if cmd.Start() != nil {
		return false
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	pid := cmd.Process.Pid
	var status unix.WaitStatus
	var regs unix.PtraceRegs
	if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil || !status.Stopped() || unix.PtraceGetRegs(pid, &regs) != nil {
		return false
	}
	if host.BreakAt(pid, arch.Addr(regs.PC())) != nil || unix.PtraceCont(pid, 0) != nil {
		return false
	}
	_, err := unix.Wait4(pid, &status, unix.WALL, nil)
	return err == nil && status.Stopped() && status.StopSignal() == unix.SIGTRAP
})
