package main

import (
	"errors"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The registers live outside of Go's stacks, which may move during a call.
var regs unix.PtraceRegs

// floor is what a hit costs with stops ptrace stops, one register read and one register
// write, and nothing else.
func floor(bin string, stops int) (perHit time.Duration, err error) {
	t, err := startTarget(bin)
	if err != nil {
		return 0, err
	}
	defer t.end()
	if _, err := t.do("pin 0"); err != nil {
		return 0, err
	}
	seized, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- bareLoop(t.pid(), stops, seized) }()
	select {
	case <-seized:
	case err := <-done:
		return 0, err
	}
	d, err := t.timed("trap %d", hitsARound*stops)
	if err != nil {
		return 0, err
	}
	return d / hitsARound, <-done
}

// bareLoop is the tracer's thread of the floor. The goroutine ends locked, so the thread
// ends too and takes its affinity along.
func bareLoop(pid, stops int, seized chan<- struct{}) error {
	runtime.LockOSThread()
	var cpu unix.CPUSet
	cpu.Set(0)
	if err := unix.SchedSetaffinity(0, &cpu); err != nil {
		return err
	}
	if err := request(unix.PTRACE_SEIZE, pid, 0); err != nil {
		return err
	}
	close(seized)
	return swallow(pid, stops)
}

func swallow(pid, stops int) error {
	left := hitsARound * stops
	for left > 0 {
		var ws unix.WaitStatus
		if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil {
			return err
		}
		if !ws.Stopped() || ws.StopSignal() != unix.SIGTRAP {
			return errors.New("the target stopped for another reason")
		}
		if left%stops == 0 {
			if err := request(unix.PTRACE_GETREGS, pid, uintptr(unsafe.Pointer(&regs))); err != nil {
				return err
			}
			if err := request(unix.PTRACE_SETREGS, pid, uintptr(unsafe.Pointer(&regs))); err != nil {
				return err
			}
		}
		left--
		if err := request(unix.PTRACE_CONT, pid, 0); err != nil {
			return err
		}
	}
	return nil
}

func request(req, pid int, data uintptr) error {
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(req), uintptr(pid), 0, data, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
