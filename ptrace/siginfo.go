package ptrace

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// Siginfo is the kernel's siginfo_t, 128 bytes, as sigaction(2) describes it.
type Siginfo [128]byte

// Codes of si_code that tell who sent a signal (asm-generic/siginfo.h).
const (
	siUser    = 0
	siKernel  = 0x80
	siTkill   = -6
	trapBrkpt = 1
	trapTrace = 2

	segvMapErr, segvAccErr = 1, 2
	busAdrAln, busAdrErr   = 1, 2
)

// Signo is si_signo.
func (s *Siginfo) Signo() unix.Signal { return unix.Signal(binary.LittleEndian.Uint32(s[0:])) }

// Code is si_code; above zero the kernel itself raised the signal.
func (s *Siginfo) Code() int { return int(int32(binary.LittleEndian.Uint32(s[8:]))) }

// PID is si_pid, valid for signals sent by kill(2) and its kin.
func (s *Siginfo) PID() int { return int(int32(binary.LittleEndian.Uint32(s[16:]))) }

// Addr is si_addr, valid for faults.
func (s *Siginfo) Addr() arch.Addr { return arch.Addr(binary.LittleEndian.Uint64(s[16:])) }

// SetAddr changes si_addr.
func (s *Siginfo) SetAddr(a arch.Addr) { binary.LittleEndian.PutUint64(s[16:], uint64(a)) }

// Synchronous tells that an instruction of the thread raised the signal.
func (s *Siginfo) Synchronous() bool { return s.Code() > 0 && syncSignals.Has(s.Signo()) }

// Breakpoint tells that a breakpoint instruction raised the signal.
func (s *Siginfo) Breakpoint() bool { return s.breakpoint() }

// SingleStep tells that the processor's single-stepping raised the signal.
func (s *Siginfo) SingleStep() bool { return s.Signo() == unix.SIGTRAP && s.Code() == trapTrace }

// StepOverCall tells that the signal may be of a single step over a system call, whose end the kernel tells at the end of the call
// (user_single_step_report in arch/x86/kernel/ptrace.c). What host.OwnTrap raises looks the same.
func (s *Siginfo) StepOverCall() bool {
	return s.Signo() == unix.SIGTRAP && s.Code() == trapBrkpt && !s.breakpoint()
}

// Marked tells that a tracer has moved the thread to Addr already: see MarkErrno.
func (s *Siginfo) Marked() bool { return binary.LittleEndian.Uint32(s[4:]) == MarkErrno }

// markOwn tells a guard that the program itself has raised the signal.
func (s *Siginfo) markOwn() { binary.LittleEndian.PutUint32(s[4:], arch.GuardOwnCode) }

// unmarkOwn undoes markOwn.
func (s *Siginfo) unmarkOwn() {
	if errno := s[4:8]; binary.LittleEndian.Uint32(errno) == arch.GuardOwnCode {
		clear(errno)
	}
}

// breakpoint tells that a breakpoint instruction raised the signal.
func (s *Siginfo) breakpoint() bool {
	return s.Signo() == unix.SIGTRAP && s.Code() == host.BreakpointCode
}

// fault tells that an instruction has raised the signal which has not been executed, and would raise it again.
func (s *Siginfo) fault() bool {
	switch code := s.Code(); s.Signo() {
	case unix.SIGSEGV:
		return code == segvMapErr || code == segvAccErr
	case unix.SIGBUS:
		return code == busAdrAln || code == busAdrErr
	case unix.SIGILL, unix.SIGFPE:
		return code > 0 && code != siKernel
	}
	return false
}

// Sigset is the kernel's 64-bit signal set.
type Sigset uint64

// Has reports whether sig is in s.
func (s Sigset) Has(sig unix.Signal) bool { return s&sigbit(sig) != 0 }

// Full tells a mask of all signals that a program can block; glibc sets it for a moment
// around the making of threads and processes.
func (s Sigset) Full() bool { return s|unblockable|libcSignals == allSignals }

func sigbit(sig unix.Signal) Sigset { return 1 << (uint(sig) - 1) }

const (
	// syncSignals are those that an instruction can raise.
	syncSignals = Sigset(1<<(unix.SIGSEGV-1) | 1<<(unix.SIGBUS-1) | 1<<(unix.SIGFPE-1) |
		1<<(unix.SIGILL-1) | 1<<(unix.SIGTRAP-1) | 1<<(unix.SIGSYS-1))
	// ignoredByDefault are SIGCHLD, SIGCONT, SIGURG and SIGWINCH (signal(7)).
	ignoredByDefault = Sigset(1<<(unix.SIGCHLD-1) | 1<<(unix.SIGCONT-1) | 1<<(unix.SIGURG-1) | 1<<(unix.SIGWINCH-1))

	// stopSignals stop the process unless it does something else with them.
	stopSignals = Sigset(1<<(unix.SIGSTOP-1) | 1<<(unix.SIGTSTP-1) | 1<<(unix.SIGTTIN-1) | 1<<(unix.SIGTTOU-1))

	allSignals = ^Sigset(0)
	// unblockable signals are never in a blocked mask.
	unblockable = Sigset(1<<(unix.SIGKILL-1) | 1<<(unix.SIGSTOP-1))
	// libcSignals (32, 33) are left out by sigfillset(3) of glibc.
	libcSignals = Sigset(3 << 31)
)

// siginfo is that of the signal being delivered, or kept from it. It is read once in a stop.
func (th *Thread) siginfo() (*Siginfo, error) {
	if th.at.kept != nil {
		th.at.info = *th.at.kept
		return &th.at.info, nil
	}
	if !th.at.toldRead {
		if err := requestPtr(unix.PTRACE_GETSIGINFO, th.TID, 0, unsafe.Pointer(&th.at.told)); err != nil {
			return &th.at.info, th.gone(err)
		}
		th.at.toldRead = true
	}
	th.at.info = th.at.told
	return &th.at.info, nil
}

func (th *Thread) setSiginfo(s *Siginfo) error {
	if th.at.kept != nil {
		*th.at.kept = *s
		return nil
	}
	th.at.toldRead = false
	return th.gone(requestPtr(unix.PTRACE_SETSIGINFO, th.TID, 0, unsafe.Pointer(s)))
}

// queueinfo queues a signal with its siginfo (rt_tgsigqueueinfo(2)).
func (th *Thread) queueinfo(s *Siginfo) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(th.Proc.PID), uintptr(th.TID),
		uintptr(s.Signo()), uintptr(unsafe.Pointer(s)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// queueToProcess queues a signal with its siginfo for a process (rt_sigqueueinfo(2)).
func queueToProcess(pid int, s *Siginfo) error {
	_, _, errno := unix.RawSyscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(s.Signo()), uintptr(unsafe.Pointer(s)))
	if errno != 0 {
		return errno
	}
	return nil
}

// sigmask is the thread's blocked signals. The thread must be stopped.
func (th *Thread) sigmask() (m Sigset, err error) {
	if th.state == stopped && th.at.maskRead {
		return th.at.mask, nil
	}
	err = requestPtr(reqGetSigmask, th.TID, 8, unsafe.Pointer(&m))
	th.at.mask, th.at.maskRead = m, err == nil && th.state == stopped
	return m, th.gone(err)
}

func (th *Thread) blocksTrap() bool { return th.blocking(unix.SIGTRAP) }

func (th *Thread) blocking(sig unix.Signal) bool {
	m, err := th.sigmask()
	return err == nil && m.Has(sig)
}

func (th *Thread) setSigmask(m Sigset) error {
	th.at.maskRead = false
	return th.gone(requestPtr(reqSetSigmask, th.TID, 8, unsafe.Pointer(&m)))
}

// BlockedSignals is the signals that the stopped thread blocks.
func (th *Thread) BlockedSignals() (Sigset, error) { return th.sigmask() }

// BlockSignals changes them to just these.
func (th *Thread) BlockSignals(m Sigset) error { return th.setSigmask(m) }

// pendingSynchronous reports whether a signal that an instruction of the thread
// raised waits in its queue, not yet reported. A thread that took a breakpoint
// just before PTRACE_INTERRUPT stops for the latter first (get_signal in
// kernel/signal.c looks at job control before the queue).
func (th *Thread) pendingSynchronous() bool {
	// A SIGTRAP that somebody sent may stand for a breakpoint too: see coalesced.
	return th.waiting(func(s *Siginfo) bool { return s.Synchronous() || s.Signo() == unix.SIGTRAP && !th.blocksTrap() })
}

// waiting tells whether a signal in the thread's own queue is one of those.
func (th *Thread) waiting(is func(*Siginfo) bool) bool {
	var infos [8]Siginfo
	args := struct {
		off   uint64
		flags uint32
		nr    int32
	}{nr: int32(len(infos))}
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, reqPeekSiginfo, uintptr(th.TID),
			uintptr(unsafe.Pointer(&args)), uintptr(unsafe.Pointer(&infos)), 0, 0)
		if errno != 0 {
			return false
		}
		for i := range infos[:n] {
			if is(&infos[i]) {
				return true
			}
		}
		const most = 1 << 10 // a queue may be long (RLIMIT_SIGPENDING)
		if args.off += uint64(n); int(n) < len(infos) || args.off >= most {
			return false
		}
	}
}
