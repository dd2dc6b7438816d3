package ptrace

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// Results that the kernel acts on before the program sees them (include/linux/errno.h).
const (
	restartNoHand = int64(-514) // the call is made again, unless a handler runs
	restartBlock  = int64(-516) // by restart_syscall(2)
)

// interrupted reports whether the thread was taken out of a system call that the
// kernel will restart (its result is -ERESTARTSYS … -ERESTART_RESTARTBLOCK).
func interrupted(r *host.Regs) bool {
	v := r.CallResult()
	return r.InCall() && v <= -512 && v >= restartBlock
}

func byRestartBlock(r *host.Regs) bool {
	return r.InCall() && r.CallResult() == restartBlock
}

// forgetsTime tells of a call that the kernel is going to make again, with its whole timeout.
func forgetsTime(r *host.Regs) bool {
	return r.CallNumber() == unix.SYS_IO_PGETEVENTS && r.CallResult() == restartNoHand
}

// endSo are the calls that a stop of ours may end with EINTR, and that are over then: the descriptor is closed, a program has run in the
// kernel (BPF_PROG_TEST_RUN). Of ioctl(2) it is up to the command.
var endSo = map[uint64]bool{unix.SYS_CLOSE: true, unix.SYS_BPF: true, unix.SYS_IOCTL: true}

// Commands of ioctl(2) that have done nothing when they fail with EINTR: TCSBRK as
// tcdrain(3) calls it (drivers/tty/tty_io.c), the supervisor's of seccomp
// (linux/seccomp.h), and KVM_RUN, which goes on where the virtual processor was.
// Commands that are not listed may have had an effect: a USB transfer may have been
// done in part.
const (
	ioctlDrain      = 0x5409 // if the argument is not 0, else it sends a break
	ioctlNotifRecv  = 0xc0502100
	ioctlNotifSend  = 0xc0182101
	ioctlRunMachine = 0xae80
)

// undone tells of the call that the registers are in, or in front of, that it has done
// nothing if it fails with EINTR. All others do. signal(7), "Interruption of system
// calls and library functions by stop signals", lists most of them. Others are
// fallocate(2) in memory, all calls on sockets with a timeout of the socket's
// (sock_intr_errno in include/net/sock.h), and select and its kin if the kernel can't
// note the rest of the time in the target's memory (poll_select_finish in fs/select.c).
// What some other did is in its result, which is then not EINTR.
func undone(r *host.Regs) bool {
	if r.CallNumber() != unix.SYS_IOCTL {
		return r.InCall() && !endSo[r.CallNumber()]
	}
	switch uint32(r.CallArg(1)) {
	case ioctlDrain:
		return r.CallArg(2) != 0
	case ioctlNotifRecv, ioctlNotifSend, ioctlRunMachine:
		return true
	}
	return false
}

// waitsOnly lists the calls that only wait, for time or for events. They fail with
// EINTR, or restart_syscall(2) restarts them.
var waitsOnly = map[uint64]bool{
	host.SysEpollWait: true, unix.SYS_EPOLL_PWAIT: true, unix.SYS_EPOLL_PWAIT2: true, unix.SYS_SEMOP: true, unix.SYS_SEMTIMEDOP: true,
	unix.SYS_RT_SIGTIMEDWAIT: true, unix.SYS_IO_GETEVENTS: true, unix.SYS_IO_PGETEVENTS: true, host.SysSelect: true, unix.SYS_PSELECT6: true,
	unix.SYS_PPOLL: true, host.SysPoll: true, unix.SYS_NANOSLEEP: true, unix.SYS_CLOCK_NANOSLEEP: true, unix.SYS_FUTEX: true,
}

// comesBack tells of the call that a thread stands in front of that a stop gets it out of there at once.
func (th *Thread) comesBack(r *host.Regs) bool {
	if waitsOnly[r.CallNumber()] {
		return true
	}
	t, ok := th.socketCallTimeout(r)
	return ok && t.limit > 0
}

// failsAlone reports whether a call fails with EINTR after a mere stop of its thread,
// without a signal, and can be made again.
func (th *Thread) failsAlone(r *host.Regs) bool {
	return r.CallResult() == -int64(unix.EINTR) && undone(r) && th.native()
}

// inPart tells of recvmmsg(2) that it returns fewer messages than it was to wait for.
func inPart(r *host.Regs) bool {
	n := r.CallResult()
	return r.CallNumber() == unix.SYS_RECVMMSG && n > 0 && n < int64(uint32(r.CallArg(2)))
}

// callRegs identifies a system call: its number, arguments, place and frame.
type callRegs struct {
	nr     uint64
	args   [6]uint64
	ip, sp arch.Addr
}

func callOf(r *host.Regs) callRegs {
	c := callRegs{nr: r.CallNumber(), ip: r.IP(), sp: r.SP()}
	for n := range c.args {
		c.args[n] = r.CallArg(n)
	}
	return c
}

// atEntry tells of a thread in a syscall-stop that it is the one in front of the call.
func atEntry(r *host.Regs) bool {
	return r.InCall() && r.CallResult() == -int64(unix.ENOSYS)
}

// Results of timeouts.
const (
	resultNone       = int64(0)
	resultAgain      = -int64(unix.EAGAIN)
	resultTimedOut   = -int64(unix.ETIMEDOUT)
	resultTime       = -int64(unix.ETIME)
	resultInProgress = -int64(unix.EINPROGRESS)
)

// timeoutOf is the relative timeout of the call that the thread was taken out of; ok is false if it has none.
func (th *Thread) timeoutOf(r *host.Regs) (t callTimeout, ok bool) {
	const futexCommand, futexWait, timerAbsolute = 0x7f, 0, 1
	switch r.CallNumber() {
	case host.SysPoll:
		return millis(r.CallArg(2))
	case host.SysEpollWait, unix.SYS_EPOLL_PWAIT:
		return millis(r.CallArg(3))
	case unix.SYS_NANOSLEEP:
		return th.timeoutAt(r.CallArg(0), resultNone)
	case unix.SYS_CLOCK_NANOSLEEP:
		if r.CallArg(1)&timerAbsolute != 0 || !ofTheWall(r.CallArg(0)) {
			return t, false
		}
		return th.timeoutAt(r.CallArg(2), resultNone)
	case unix.SYS_FUTEX:
		if r.CallArg(1)&futexCommand != futexWait { // others have a time, not a timeout
			return t, false
		}
		return th.timeoutAt(r.CallArg(3), resultTimedOut)
	case unix.SYS_PPOLL:
		return th.timeoutAt(r.CallArg(2), resultNone)
	case host.SysSelect:
		t.limit, ok = th.timespec(r.CallArg(4), time.Microsecond)
		return t, ok
	case unix.SYS_PSELECT6, unix.SYS_IO_GETEVENTS, unix.SYS_IO_PGETEVENTS:
		return th.timeoutAt(r.CallArg(4), resultNone)
	case unix.SYS_EPOLL_PWAIT2:
		return th.timeoutAt(r.CallArg(3), resultNone)
	case unix.SYS_SEMTIMEDOP:
		return th.timeoutAt(r.CallArg(3), resultAgain)
	case unix.SYS_RT_SIGTIMEDWAIT:
		return th.timeoutAt(r.CallArg(2), resultAgain)
	case unix.SYS_IO_URING_ENTER:
		return th.ringTimeout(r)
	}
	return th.socketCallTimeout(r)
}

func (th *Thread) socketCallTimeout(r *host.Regs) (t callTimeout, ok bool) {
	option := unix.SO_RCVTIMEO
	t.result = resultAgain
	switch r.CallNumber() {
	case unix.SYS_ACCEPT, unix.SYS_ACCEPT4, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG, unix.SYS_READ, unix.SYS_READV, unix.SYS_PREADV2:
	case unix.SYS_SPLICE: // one of the two is a pipe
		if limit, _, ok := th.socketTimeout(r.CallArg(0), option); ok {
			t.limit = limit
			return t, true
		}
		t.limit, _, ok = th.socketTimeout(r.CallArg(2), unix.SO_SNDTIMEO)
		return t, ok
	case unix.SYS_CONNECT:
		option, t.result = unix.SO_SNDTIMEO, resultInProgress
	case unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_PWRITEV2, unix.SYS_SENDFILE:
		option = unix.SO_SNDTIMEO
	default:
		return t, false
	}
	limit, domain, ok := th.socketTimeout(r.CallArg(0), option)
	if t.limit = limit; domain == unix.AF_UNIX {
		t.result = resultAgain // also of connect(2)
	}
	return t, ok
}

// ringTimeout is that of io_uring_enter(2), in its struct io_uring_getevents_arg.
func (th *Thread) ringTimeout(r *host.Regs) (t callTimeout, ok bool) {
	const extArg, absTimer, extArgReg = 1 << 3, 1 << 5, 1 << 6
	if r.CallArg(3)&extArg == 0 || r.CallArg(3)&(absTimer|extArgReg) != 0 {
		return t, false
	}
	arg, ok := th.words(r.CallArg(4), 3)
	if !ok {
		return t, false
	}
	return th.timeoutAt(arg[2], resultTime)
}

func (th *Thread) timeoutAt(at uint64, result int64) (t callTimeout, ok bool) {
	t.result = result
	t.limit, ok = th.timespec(at, 1)
	return t, ok
}

func millis(v uint64) (t callTimeout, ok bool) {
	t.limit = time.Duration(int32(v)) * time.Millisecond
	return t, t.limit > 0
}

// ofTheWall tells of a clock that it runs on while the program does nothing.
func ofTheWall(clock uint64) bool {
	switch clock {
	case unix.CLOCK_REALTIME, unix.CLOCK_MONOTONIC, unix.CLOCK_BOOTTIME, unix.CLOCK_TAI:
		return true
	}
	return false
}

func littleWords(b []byte) []uint64 {
	words := make([]uint64, len(b)/8)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return words
}

// cloneFlags are the flags of the clone, clone3, fork or vfork call that the
// thread is in. read fetches target memory.
func cloneFlags(r *host.Regs, read func(arch.Addr, []byte) error) (uint64, error) {
	switch r.CallNumber() {
	case host.SysFork:
		return uint64(unix.SIGCHLD), nil
	case host.SysVfork:
		return unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD), nil
	case unix.SYS_CLONE3:
		var flags [8]byte
		err := read(arch.Addr(r.CallArg(0)), flags[:])
		return binary.LittleEndian.Uint64(flags[:]), err
	}
	return r.CallArg(0), nil
}

// nativeCall tells of a call that its number is one of this architecture's own ABI.
func nativeCall(info *syscallInfo) bool { return info.arch == host.AuditArch }

// resultless reports whether the thread has returned by rt_sigreturn: then no register
// holds a result.
func resultless(r *host.Regs) bool { return !r.InCall() }
