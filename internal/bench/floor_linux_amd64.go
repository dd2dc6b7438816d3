package main

import (
	"errors"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The registers live outside of Go's stacks, which may move during a call.
var (
	regs unix.PtraceRegs
	word uint64
)

// work is what a tracer cannot do without: at a call it stops the target hits times, each
// time for stops stops; at a hit it reads and writes the registers once; and to follow a
// call it looks at the stack at both its ends.
type work struct {
	hits, stops int
	stack       bool
}

// floor is what a call costs with this work and nothing else.
func floor(bin string, w work) (perCall time.Duration, err error) {
	t, err := startTarget(bin)
	if err != nil {
		return 0, err
	}
	defer t.end()
	if _, err := t.do("pin 0"); err != nil {
		return 0, err
	}
	seized, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- bareLoop(t.pid(), w, seized) }()
	select {
	case <-seized:
	case err := <-done:
		return 0, err
	}
	d, err := t.timed("trap %d", hitsARound*w.hits*w.stops)
	if err != nil {
		return 0, err
	}
	return d / hitsARound, <-done
}

// bareLoop is the tracer's thread of the floor. The goroutine ends locked, so the thread
// ends too and takes its affinity along.
func bareLoop(pid int, w work, seized chan<- struct{}) error {
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
	return swallow(pid, w)
}

func swallow(pid int, w work) error {
	left := hitsARound * w.hits * w.stops
	for left > 0 {
		var ws unix.WaitStatus
		if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil {
			return err
		}
		if !ws.Stopped() || ws.StopSignal() != unix.SIGTRAP {
			return errors.New("the target stopped for another reason")
		}
		if left%w.stops == 0 {
			if err := request(unix.PTRACE_GETREGS, pid, uintptr(unsafe.Pointer(&regs))); err != nil {
				return err
			}
			if err := w.look(pid); err != nil {
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

// look reads a word of the stack if the work wants that.
func (w work) look(pid int) error {
	if !w.stack {
		return nil
	}
	local := []unix.Iovec{{Base: (*byte)(unsafe.Pointer(&word)), Len: 8}}
	remote := []unix.RemoteIovec{{Base: uintptr(regs.Rsp), Len: 8}}
	_, err := unix.ProcessVMReadv(pid, local, remote, 0)
	return err
}

func request(req, pid int, data uintptr) error {
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(req), uintptr(pid), 0, data, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
