package ptrace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// Command is a program to start under the tracer.
type Command struct {
	Path  string // of the executable
	Args  []string
	Env   []string
	Dir   string
	Files []*os.File // become descriptors 0, 1, 2, …
}

// Launch starts a program and holds it before its first instruction, seized like an
// attached one; the caller resumes it with Release. It must be called on the
// tracer's thread.
//
// After PTRACE_TRACEME the child stops at its exec. A tracee made that way can be
// neither interrupted nor listened to. So it is detached with SIGSTOP, which leaves it
// stopped at the same instruction, and seized from there.
func (t *Tracer) Launch(c Command) (*Process, error) {
	files := make([]uintptr, len(c.Files))
	for i, f := range c.Files {
		files[i] = f.Fd()
	}
	pid, err := syscall.ForkExec(c.Path, c.Args, &syscall.ProcAttr{
		Dir: c.Dir, Env: c.Env, Files: files,
		Sys: &syscall.SysProcAttr{Ptrace: true},
	})
	runtime.KeepAlive(c.Files)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Path, err)
	}
	p, err := t.takeOver(pid)
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _, _ = waitStatus(pid, 0)
		return nil, fmt.Errorf("taking over %s: %w", c.Path, err)
	}
	return p, nil
}

func (t *Tracer) takeOver(pid int) (*Process, error) {
	if _, ws, err := waitStatus(pid, 0); err != nil || !ws.Stopped() {
		return nil, fmt.Errorf("it did not stop at its exec (status %#x): %w", int(ws), err)
	}
	if class := exeClass(pid); class != "" {
		return nil, &AttachError{PID: pid, Cause: Cause32Bit, Detail: class, Err: unix.EINVAL}
	}
	if err := request(unix.PTRACE_DETACH, pid, 0, uintptr(unix.SIGSTOP)); err != nil {
		return nil, err
	}
	if _, _, err := waitStatus(pid, unix.WUNTRACED); err != nil {
		return nil, err
	}
	p := t.newProcess(pid, nil)
	t.children[pid] = p
	if err := t.seizeAll(p); err != nil {
		t.abandon(p)
		return nil, diagnose(pid, err)
	}
	th := p.Leader()
	if th == nil {
		return nil, ErrExited
	}
	_ = p.Space.enter(pid)
	if err := t.await(th); err != nil {
		return nil, err
	}
	th.queued = false
	return p, t.endStop(th)
}

// endStop ends the SIGSTOP that takeOver used, with the thread held all the while:
// SIGCONT is reported before it is delivered, and dropped.
func (t *Tracer) endStop(th *Thread) error {
	if err := unix.Kill(th.TID, unix.SIGCONT); err != nil {
		return err
	}
	for {
		th.cont(unix.PTRACE_CONT, 0)
		if err := t.await(th); err != nil {
			return err
		}
		if th.at.stop.Reason == Signal && th.at.stop.Signal == unix.SIGCONT {
			break
		}
	}
	th.queued = false
	return t.suppress(th)
}

// suppress drops the signal being delivered and brings the thread to an Interrupt.
func (t *Tracer) suppress(th *Thread) error {
	for {
		if err := th.interrupt(); err != nil {
			return err
		}
		th.cont(unix.PTRACE_CONT, 0)
		if err := t.await(th); err != nil {
			return err
		}
		if th.at.stop.Reason == Interrupt {
			th.queued = false
			return nil
		}
	}
}

// RunTo lets a stopped, single-threaded process run until it reaches one of ats, which it returns, and leaves
// it stopped there. One that stands there already does not run. Other stops on the way are dispatched
// as usual. The text is as before when it returns, that of children which it has forked as well. If the process ends on the way, the error is ErrExited.
//
// It stops there by breakpoints. Where one stands already, such as a uprobe's on the target's file, only the uprobe gets its hits: there it
// stops by a debug register.
func (t *Tracer) RunTo(th *Thread, ats ...arch.Addr) (at arch.Addr, err error) {
	space := th.Proc.Space
	text, trap := space.Text(), host.Arch.Breakpoint()
	var taken []arch.Addr
	for _, at := range ats {
		old := make([]byte, len(trap))
		if err := text.ReadMemory(at, old); err != nil {
			return 0, err
		}
		if bytes.Equal(old, trap) {
			taken = append(taken, at)
		}
	}
	if len(taken) > 0 {
		if err := host.BreakAt(th.TID, taken...); err != nil {
			return 0, fmt.Errorf("a breakpoint stands at %s already, and no debug register is free: %w", taken[0], err)
		}
	}
	defer func() {
		t.SettleForks(space) // as long as it is known what they lack
		if err = errors.Join(err, space.endWay()); len(taken) > 0 && err == nil {
			err = host.BreakNowhere(th.TID)
		}
	}()
	for _, at := range ats {
		if slices.Contains(taken, at) {
			continue
		}
		if err := space.beginWay(at); err != nil {
			return 0, err
		}
	}
	if at, err = t.runToAny(th, ats); err != nil {
		return 0, err
	}
	regs, err := th.hostRegs()
	if err != nil {
		return 0, err
	}
	regs.SetIP(at)
	return at, nil
}

// onWay is a breakpoint of RunTo's, and the code in its place.
type onWay struct {
	at  arch.Addr
	old []byte
}

func (s *Space) beginWay(at arch.Addr) error {
	w := onWay{at, make([]byte, len(host.Arch.Breakpoint()))}
	if err := s.Text().ReadMemory(at, w.old); err != nil {
		return err
	}
	s.way = append(s.way, w)
	return s.Text().WriteMemory(at, host.Arch.Breakpoint())
}

// endWay puts the code back. What is gone needs it no more.
func (s *Space) endWay() error {
	way := s.way
	s.way = nil
	for _, w := range way {
		if err := s.Text().WriteMemory(w.at, w.old); err != nil && len(s.procs) > 0 {
			return err
		}
	}
	return nil
}

// leaveWay gives a forked child the code in the place of its parent's breakpoints: nobody waits for the child there.
func (s *Space) leaveWay(parent *Space) {
	if s == parent {
		return
	}
	for _, w := range parent.way {
		_ = s.Text().WriteMemory(w.at, w.old) // it has no such page, or has ended
	}
}

// runToAny lets th run until it has stopped for one of ats.
func (t *Tracer) runToAny(th *Thread, ats []arch.Addr) (arch.Addr, error) {
	for {
		t.dispatchAgain(th)
		if err := t.await(th); err != nil {
			return 0, err
		}
		th.queued = false
		for _, at := range ats {
			if th.at.stop.Reason == Breakpoint && th.ip() == at.Add(int64(host.Arch.BreakpointAdvance())) {
				return at, nil
			}
			if th.atRegister(at) {
				th.at.stop.Reason = Breakpoint // whose signal is never delivered
				return at, nil
			}
		}
		if th.at.stop.Reason != Interrupt && th.at.stop.Reason != GroupStop {
			t.dispatch(th)
		}
	}
}

// trapHardware is the si_code of a debug register's SIGTRAP, TRAP_HWBKPT.
const trapHardware = 4

// atRegister tells whether th has stopped at at for what host.BreakAt has asked for.
func (th *Thread) atRegister(at arch.Addr) bool {
	if th.state != stopped || th.at.stop.Reason != Signal || th.at.stop.Signal != unix.SIGTRAP || th.ip() != at {
		return false
	}
	info, err := th.Siginfo()
	return err == nil && info.Code() == trapHardware
}

// Release resumes a thread that Launch or RunTo left stopped. It must be called on
// the tracer's thread.
func (t *Tracer) Release(th *Thread) { t.resume(th, 0) }

// ExitStatus is how the process ended, as a shell reports it: the exit status, or
// 128 plus the number of the signal that killed it.
func (p *Process) ExitStatus() int {
	if p.Status.Reason == Killed {
		return 128 + int(p.Status.Signal)
	}
	return p.Status.Code
}
