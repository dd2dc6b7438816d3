package bench

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
)

// The registers live outside of Go's stacks, which may move during a call.
var (
	regs host.Regs
	word uint64
)

// work is what a tracer cannot do without: at a call it stops the target Hits times, each
// time for Stops stops; at a hit it reads and writes the registers once; and to follow a
// call it looks at the stack at both its ends.
type work struct {
	Hits, Stops int
	Stack       bool
}

func (w work) stops() int { return w.Hits * w.Stops }

func (w work) String() string {
	s := "1 ptrace stop"
	if n := w.stops(); n > 1 {
		s = fmt.Sprintf("%d ptrace stops", n)
	}
	if w.Stack {
		return s + ", registers, stack"
	}
	return s + ", registers"
}

// ptraceLoop is what a call costs with this work and nothing else.
func (j job) ptraceLoop(w work) (perCall float64, err error) {
	// A tracer of gokprobe's own keeps SIGCHLD quiet for this one too.
	quiet, err := ptrace.New()
	if err != nil {
		return 0, err
	}
	defer quiet.Close()
	t, err := j.target()
	if err != nil {
		return 0, err
	}
	defer t.end()
	traps := portions * j.Measure.portion() * w.stops()
	seized, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- bareLoop(t.tid, j.CPUs[0], w, traps, seized) }()
	select {
	case <-seized:
	case err := <-done:
		return 0, err
	}
	ns, err := portionwise(func() (float64, error) { return t.timed("trap %d", traps/portions) })
	if err != nil {
		return 0, err
	}
	return ns * float64(w.stops()), <-done
}

// bareLoop is the tracer's thread of the floor. The goroutine ends locked, so the thread
// ends too and takes its affinity along.
func bareLoop(tid, processor int, w work, traps int, seized chan<- struct{}) error {
	runtime.LockOSThread()
	var cpu unix.CPUSet
	cpu.Set(processor)
	if err := unix.SchedSetaffinity(0, &cpu); err != nil {
		return err
	}
	if err := request(unix.PTRACE_SEIZE, tid, 0); err != nil {
		return err
	}
	close(seized)
	// The program's first thread does not end with its goroutine, and would keep a target that has ended.
	return errors.Join(swallow(tid, w, traps), request(unix.PTRACE_DETACH, tid, 0))
}

// swallow is the loop: all that a tracer with nothing to do does at so many breakpoints. The target
// is left stopped at the last.
func swallow(tid int, w work, traps int) error {
	for left := traps; ; left-- {
		var ws unix.WaitStatus
		if _, err := unix.Wait4(tid, &ws, unix.WALL, nil); err != nil {
			return err
		}
		if !ws.Stopped() || ws.StopSignal() != unix.SIGTRAP {
			return errors.New("the target stopped for another reason")
		}
		if left%w.Stops == 0 {
			if err := host.ReadRegs(tid, &regs); err != nil {
				return err
			}
			if err := w.look(tid); err != nil {
				return err
			}
			if err := host.WriteAllRegs(tid, &regs); err != nil {
				return err
			}
		}
		if left == 1 {
			return nil
		}
		if err := request(unix.PTRACE_CONT, tid, 0); err != nil {
			return err
		}
	}
}

// look reads a word of the stack if the work wants that.
func (w work) look(tid int) error {
	if !w.Stack {
		return nil
	}
	local := []unix.Iovec{{Base: (*byte)(unsafe.Pointer(&word)), Len: 8}}
	remote := []unix.RemoteIovec{{Base: uintptr(regs.SP()), Len: 8}}
	_, err := unix.ProcessVMReadv(tid, local, remote, 0)
	return err
}

func request(req, tid int, data uintptr) error {
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(req), uintptr(tid), 0, data, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
