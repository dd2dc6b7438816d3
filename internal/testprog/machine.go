package testprog

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// What not every machine has, above all where a hypervisor makes do without the processor's virtualization: nothing that
// could be installed brings it. Tests that need it assert what happens without it, or leave out what nobody could judge there.

// CallsTracer reports whether targets can call their tracer on this machine: their programs can read their thread
// pointers (HWCAP2_FSGSBASE, arch/x86/fsgs in the kernel's documentation).
var CallsTracer = sync.OnceValue(func() bool {
	const hwcap2, fsgsbase = 26, 1 << 1
	auxv, err := procfs.Auxv(os.Getpid())
	return err == nil && auxv[hwcap2]&fsgsbase != 0
})

// StartDeaf starts the fixture waits with so many threads, of which one comes to no stop until hears is called: by a
// 32-bit vfork, which lets go at the end of input as well; where a processor runs no 32-bit code, by a freezer.
func StartDeaf(t testing.TB, threads int) (p *Prog, hears func()) {
	t.Helper()
	if exec.Command(Build(t, "int80")).Run() == nil {
		return Start(t, Build(t, "waits"), strconv.Itoa(threads), "deaf"), func() {}
	}
	p = Start(t, Build(t, "waits"), strconv.Itoa(threads), "again")
	thaw, ok := p.Freeze(1)
	if !ok {
		t.Skip("neither 32-bit calls nor a freezer of version 1 are here to make a thread deaf")
	}
	return p, thaw
}

// DebugRegistersTrap reports whether an instruction breakpoint in a debug register stops a thread.
var DebugRegistersTrap = sync.OnceValue(func() bool {
	return onChild(func(pid int, regs *unix.PtraceRegs) bool {
		if host.BreakAt(pid, arch.Addr(regs.PC())) != nil || unix.PtraceCont(pid, 0) != nil {
			return false
		}
		return trapped(pid)
	})
})

// StepsEveryInstruction reports whether a single step ends behind the instruction that was stepped, also if that is one
// which a hypervisor emulates: cpuid. Where it does not, other things that stops do to threads are inexact as well.
var StepsEveryInstruction = sync.OnceValue(func() bool {
	return onChild(func(pid int, regs *unix.PtraceRegs) bool {
		code := []byte{0x0f, 0xa2, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90} // cpuid; nop
		at := regs.PC()
		if _, err := unix.PtracePokeText(pid, uintptr(at), code); err != nil || unix.PtraceSingleStep(pid) != nil || !trapped(pid) {
			return false
		}
		return unix.PtraceGetRegs(pid, regs) == nil && regs.PC() == at+2
	})
})

// StopTime is how long a stop of a traced thread takes, with all that its tracer asks and says: a few microseconds on a
// processor, fifty and more under some hypervisors. Signals that come faster than a tracer can pass them on would be all
// that a program does.
var StopTime = sync.OnceValue(func() (took time.Duration) {
	const steps = 200
	onChild(func(pid int, regs *unix.PtraceRegs) bool {
		begin := time.Now()
		for range steps {
			if unix.PtraceSingleStep(pid) != nil || !trapped(pid) || unix.PtraceGetRegs(pid, regs) != nil {
				return false
			}
		}
		took = time.Since(begin) / steps
		return true
	})
	return took
})

// onChild runs f on a traced child of ours that is stopped at its first instruction.
func onChild(f func(pid int, regs *unix.PtraceRegs) bool) bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	if cmd.Start() != nil {
		return false
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var regs unix.PtraceRegs
	return trapped(cmd.Process.Pid) && unix.PtraceGetRegs(cmd.Process.Pid, &regs) == nil && f(cmd.Process.Pid, &regs)
}

// trapped waits for a stop, and reports whether a SIGTRAP is its reason.
func trapped(pid int) bool {
	var status unix.WaitStatus
	_, err := unix.Wait4(pid, &status, unix.WALL, nil)
	return err == nil && status.Stopped() && status.StopSignal() == unix.SIGTRAP
}
