package ptrace

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// callRegsOf is a thread's registers that was taken out of a system call.
func callRegsOf(nr uint64, result int64, args ...uint64) *host.Regs {
	r := new(host.Regs)
	var six [6]uint64
	copy(six[:], args)
	r.SetSyscall(nr, six, 0x1000)
	r.IntoCall()
	r.SetCallResult(result)
	return r
}

// TestWhatAResultMeans: only those of restarted calls do.
func TestWhatAResultMeans(t *testing.T) {
	for _, c := range []struct {
		name                        string
		nr                          uint64
		result                      int64
		interrupted, block, forgets bool
	}{
		{"ERESTARTSYS", unix.SYS_READ, -512, true, false, false},
		{"ERESTARTNOINTR", unix.SYS_READ, -513, true, false, false},
		{"ERESTARTNOHAND", unix.SYS_PPOLL, -514, true, false, false},
		{"ERESTARTNOHAND, with a timeout", unix.SYS_IO_PGETEVENTS, -514, true, false, true},
		{"ENOIOCTLCMD", unix.SYS_IOCTL, -515, true, false, false},
		{"ERESTART_RESTARTBLOCK", unix.SYS_NANOSLEEP, -516, true, true, false},
		{"none of them", unix.SYS_READ, -517, false, false, false},
		{"EINTR", unix.SYS_READ, -4, false, false, false},
		{"success", unix.SYS_READ, 512, false, false, false},
		{"no call", ^uint64(0), -516, false, false, false},
	} {
		r := callRegsOf(c.nr, c.result)
		if interrupted(r) != c.interrupted || byRestartBlock(r) != c.block || forgetsTime(r) != c.forgets {
			t.Errorf("%s: interrupted %v, by the restart block %v, forgets its time %v", c.name, interrupted(r), byRestartBlock(r), forgetsTime(r))
		}
	}
}

// TestWhatRecvmmsgReturnsInPart: fewer messages than it was to wait for, but some.
func TestWhatRecvmmsgReturnsInPart(t *testing.T) {
	for _, c := range []struct {
		nr, wanted uint64
		result     int64
		part       bool
	}{
		{unix.SYS_RECVMMSG, 8, 3, true}, {unix.SYS_RECVMMSG, 8, 8, false}, {unix.SYS_RECVMMSG, 8, 0, false}, {unix.SYS_RECVMMSG, 8, -4, false},
		{unix.SYS_RECVMMSG, 1<<32 | 2, 2, false}, {unix.SYS_RECVMSG, 8, 3, false},
	} {
		if got := inPart(callRegsOf(c.nr, c.result, 0, 0, c.wanted)); got != c.part {
			t.Errorf("call %d, %d of %d: %v", c.nr, c.result, c.wanted, got)
		}
	}
}

// threadOfOurs makes this process look like a thread that is traced: what is asked of a target's memory and descriptors is answered from here.
func threadOfOurs(t *testing.T) *Thread {
	t.Helper()
	s := newSpace(&Tracer{})
	must(s.enter(os.Getpid()))
	p := &Process{PID: os.Getpid(), tracer: s.tracer, threads: map[int]*Thread{}, pidfd: must2(unix.PidfdOpen(os.Getpid(), 0))}
	s.adopt(p)
	t.Cleanup(func() { unix.Close(p.pidfd); s.leave(p) })
	th := &Thread{TID: os.Getpid(), Proc: p, at: &standing{}}
	p.threads[th.TID] = th
	return th
}

// TestTheTimeoutOfEachCall, read from its registers and the target's memory; absolute times, clocks that stand still and what no kernel takes are none.
func TestTheTimeoutOfEachCall(t *testing.T) {
	th := threadOfOurs(t)
	spec := func(sec, rest uint64) uint64 {
		b := new([2]uint64)
		*b = [2]uint64{sec, rest}
		t.Cleanup(func() { _ = b[0] })
		return uint64(uintptr(unsafe.Pointer(b)))
	}
	at := spec(2, 500)
	ring := new([3]uint64)
	ring[2] = at
	t.Cleanup(func() { _ = ring[0] }) // it lives, and stays where it is
	ringAt := uint64(uintptr(unsafe.Pointer(ring)))
	const long, micro = 2*time.Second + 500, 2*time.Second + 500*time.Microsecond
	minus := uint64(0xffffffff)
	for _, c := range []struct {
		name   string
		regs   *host.Regs
		limit  time.Duration // 0: it has none
		result int64
	}{
		{"poll", callRegsOf(host.SysPoll, 0, 0, 0, 70), 70 * time.Millisecond, 0},
		{"poll without end", callRegsOf(host.SysPoll, 0, 0, 0, minus), 0, 0},
		{"poll that does not wait", callRegsOf(host.SysPoll, 0, 0, 0, 0), 0, 0},
		{"epoll_wait", callRegsOf(host.SysEpollWait, 0, 0, 0, 0, 70), 70 * time.Millisecond, 0},
		{"epoll_pwait", callRegsOf(unix.SYS_EPOLL_PWAIT, 0, 0, 0, 0, 70), 70 * time.Millisecond, 0},
		{"epoll_pwait2", callRegsOf(unix.SYS_EPOLL_PWAIT2, 0, 0, 0, 0, at), long, 0},
		{"nanosleep", callRegsOf(unix.SYS_NANOSLEEP, 0, at), long, 0},
		{"clock_nanosleep", callRegsOf(unix.SYS_CLOCK_NANOSLEEP, 0, unix.CLOCK_MONOTONIC, 0, at), long, 0},
		{"clock_nanosleep until", callRegsOf(unix.SYS_CLOCK_NANOSLEEP, 0, unix.CLOCK_MONOTONIC, 1, at), 0, 0},
		{"clock_nanosleep of a processor's time", callRegsOf(unix.SYS_CLOCK_NANOSLEEP, 0, unix.CLOCK_PROCESS_CPUTIME_ID, 0, at), 0, 0},
		{"futex", callRegsOf(unix.SYS_FUTEX, 0, 0, 128, 0, at), long, -int64(unix.ETIMEDOUT)},
		{"futex until", callRegsOf(unix.SYS_FUTEX, 0, 0, 9, 0, at), 0, 0},
		{"futex without end", callRegsOf(unix.SYS_FUTEX, 0, 0, 0, 0, 0), 0, 0},
		{"ppoll", callRegsOf(unix.SYS_PPOLL, 0, 0, 0, at), long, 0},
		{"select", callRegsOf(host.SysSelect, 0, 0, 0, 0, 0, at), micro, 0},
		{"select, too many microseconds", callRegsOf(host.SysSelect, 0, 0, 0, 0, 0, spec(0, 1e6)), 0, 0},
		{"pselect6", callRegsOf(unix.SYS_PSELECT6, 0, 0, 0, 0, 0, at), long, 0},
		{"io_getevents", callRegsOf(unix.SYS_IO_GETEVENTS, 0, 0, 0, 0, 0, at), long, 0},
		{"io_pgetevents", callRegsOf(unix.SYS_IO_PGETEVENTS, 0, 0, 0, 0, 0, at), long, 0},
		{"semtimedop", callRegsOf(unix.SYS_SEMTIMEDOP, 0, 0, 0, 0, at), long, -int64(unix.EAGAIN)},
		{"rt_sigtimedwait", callRegsOf(unix.SYS_RT_SIGTIMEDWAIT, 0, 0, 0, at), long, -int64(unix.EAGAIN)},
		{"too many nanoseconds", callRegsOf(unix.SYS_NANOSLEEP, 0, spec(0, 1e9)), 0, 0},
		{"as good as for ever", callRegsOf(unix.SYS_NANOSLEEP, 0, spec(1<<40, 0)), 0, 0},
		{"before the beginning", callRegsOf(unix.SYS_NANOSLEEP, 0, spec(1<<63, 0)), 0, 0},
		{"at an address that there is not", callRegsOf(unix.SYS_NANOSLEEP, 0, 8), 0, 0},
		{"io_uring_enter", callRegsOf(unix.SYS_IO_URING_ENTER, 0, 0, 0, 0, 1<<3, ringAt), long, -int64(unix.ETIME)},
		{"io_uring_enter, no argument", callRegsOf(unix.SYS_IO_URING_ENTER, 0, 0, 0, 0, 0, ringAt), 0, 0},
		{"io_uring_enter until", callRegsOf(unix.SYS_IO_URING_ENTER, 0, 0, 0, 0, 1<<3|1<<5, ringAt), 0, 0},
		{"io_uring_enter, no memory", callRegsOf(unix.SYS_IO_URING_ENTER, 0, 0, 0, 0, 1<<3, 8), 0, 0},
		{"getpid", callRegsOf(unix.SYS_GETPID, 0), 0, 0},
	} {
		got, ok := th.timeoutOf(c.regs)
		if ok = ok && got.limit > 0 && got.limit <= longestTimeout; ok != (c.limit != 0) || ok && (got.limit != c.limit || got.result != c.result) {
			t.Errorf("%s: %v %+v, want %v and %d", c.name, ok, got, c.limit, c.result)
		}
	}
}

// TestTheTimeoutOfASocketIsThatOfItsCalls: the option for what the call does, and the result that the kernel gives then.
func TestTheTimeoutOfASocketIsThatOfItsCalls(t *testing.T) {
	th := threadOfOurs(t)
	socket := func(domain int) uint64 {
		fd := must2(unix.Socket(domain, unix.SOCK_STREAM, 0))
		t.Cleanup(func() { unix.Close(fd) })
		must(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 3}))
		must(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 5}))
		return uint64(fd)
	}
	pipe := make([]int, 2)
	must(unix.Pipe2(pipe, unix.O_CLOEXEC))
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	inet, local := socket(unix.AF_INET), socket(unix.AF_UNIX)
	again, inProgress := -int64(unix.EAGAIN), -int64(unix.EINPROGRESS)
	const receive, send = 3 * time.Second, 5 * time.Second
	for _, c := range []struct {
		name   string
		regs   *host.Regs
		limit  time.Duration // 0: it has none
		result int64
	}{
		{"read", callRegsOf(unix.SYS_READ, 0, inet), receive, again},
		{"recvmmsg", callRegsOf(unix.SYS_RECVMMSG, 0, local), receive, again},
		{"accept", callRegsOf(unix.SYS_ACCEPT4, 0, inet), receive, again},
		{"write", callRegsOf(unix.SYS_WRITE, 0, inet), send, again},
		{"sendfile", callRegsOf(unix.SYS_SENDFILE, 0, local), send, again},
		{"connect", callRegsOf(unix.SYS_CONNECT, 0, inet), send, inProgress},
		{"connect here", callRegsOf(unix.SYS_CONNECT, 0, local), send, again},
		{"splice from it", callRegsOf(unix.SYS_SPLICE, 0, inet, 0, uint64(pipe[1])), receive, again},
		{"splice to it", callRegsOf(unix.SYS_SPLICE, 0, uint64(pipe[0]), 0, inet), send, again},
		{"read of a pipe", callRegsOf(unix.SYS_READ, 0, uint64(pipe[0])), 0, 0},
		{"read of what is not open", callRegsOf(unix.SYS_READ, 0, 1<<20), 0, 0},
		{"another call", callRegsOf(unix.SYS_FSYNC, 0, inet), 0, 0},
	} {
		got, ok := th.timeoutOf(c.regs)
		if ok != (c.limit != 0) || ok && (got.limit != c.limit || got.result != c.result) {
			t.Errorf("%s: %v %+v, want %v and %d", c.name, ok, got, c.limit, c.result)
		}
		if comes := th.comesBack(c.regs); comes != ok {
			t.Errorf("%s: a stop gets it out at once: %v", c.name, comes)
		}
	}
	for _, nr := range []uint64{unix.SYS_FUTEX, host.SysPoll, unix.SYS_NANOSLEEP, unix.SYS_RT_SIGTIMEDWAIT} {
		if !th.comesBack(callRegsOf(nr, 0)) {
			t.Errorf("call %d waits only", nr)
		}
	}
	for _, nr := range []uint64{unix.SYS_WAIT4, unix.SYS_OPENAT, unix.SYS_FLOCK} {
		if th.comesBack(callRegsOf(nr, 0)) {
			t.Errorf("call %d does not only wait", nr)
		}
	}
}

// TestAnInterruptionIsForgotten: the error that a socket has kept is read, and the next call does not fail with it.
func TestAnInterruptionIsForgotten(t *testing.T) {
	th := threadOfOurs(t)
	listener := must2(unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0))
	defer unix.Close(listener)
	must(unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at := must2(unix.Getsockname(listener))
	fd := must2(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0))
	defer unix.Close(fd)
	must(unix.Connect(fd, at)) // nobody listens there
	must2(unix.Write(fd, []byte("x")))
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLERR}}
	for n := 0; n != 1; n, _ = unix.Poll(poll, -1) {
	}
	th.forgetInterruption(uint64(fd))
	if left := must2(unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)); left != 0 {
		t.Errorf("the socket has the error %d still", left)
	}
	th.forgetInterruption(1 << 20)
}

// TestWhatACallMakes: the flags of each call that makes a process or a thread.
func TestWhatACallMakes(t *testing.T) {
	const thread = unix.CLONE_VM | unix.CLONE_THREAD
	failed := errors.New("not there")
	read := func(at arch.Addr, p []byte) error {
		if at != 0x5000 {
			return failed
		}
		binary.LittleEndian.PutUint64(p, thread)
		return nil
	}
	for _, c := range []struct {
		name string
		regs *host.Regs
		want uint64
		err  error
	}{
		{"fork", callRegsOf(host.SysFork, 0), uint64(unix.SIGCHLD), nil},
		{"vfork", callRegsOf(host.SysVfork, 0), unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD), nil},
		{"clone", callRegsOf(unix.SYS_CLONE, 0, thread), thread, nil},
		{"clone3", callRegsOf(unix.SYS_CLONE3, 0, 0x5000), thread, nil},
		{"clone3 that can't be read", callRegsOf(unix.SYS_CLONE3, 0, 8), 0, failed},
	} {
		if got, err := cloneFlags(c.regs, read); !errors.Is(err, c.err) || err == nil && got != c.want {
			t.Errorf("%s: %#x, %v, want %#x", c.name, got, err, c.want)
		}
	}
}
