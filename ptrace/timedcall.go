package ptrace

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// Timeouts of system calls that are made again. The kernel gives such a call its whole
// timeout once more; where stops come more often than that is long, it would never end.
// We can't pass the rest of the time: it is in the target's registers and memory, which
// are not ours to change, or an option of the socket. So the call is made as it was. At
// its true end we stop the thread once more, and the call returns the result of that
// moment.
//
//	first stop     due = now + timeout; the thread stops at its system calls from now on
//	entry          of the same call, from the same place: it is the one that was made again
//	exit           interrupted once more, or over: then it stops at no more calls
//	at due         a stop; the result is the timeout's
//
// The call may return by itself at any moment, and the program make another like it
// from the same place. Of that the exit tells, so no result is ever given to another
// call. Data that came just when the time was over is left for the next call, as if it
// had come a moment later. For others, the thread waits in its call, and no longer than
// it should.
//
// How long a thread had waited when it was seen first, nobody tells. So due is late by
// that, once for each call. A call that waits when we detach or are killed begins its
// time anew.

// timedCall is a system call with a timeout that is made again. Each field but timer is of the first time that it was interrupted.
type timedCall struct {
	regs          callRegs
	due           time.Time
	result        int64
	entered, left bool // since it was last restarted
	restarts      bool // left, and the kernel makes it again by itself
	timer         *time.Timer
}

// callTimeout is how long a call waits at most, and its result then.
type callTimeout struct {
	limit  time.Duration
	result int64
}

// longestTimeout is one that is as good as none.
const longestTimeout = 100 * 24 * time.Hour

// overdueAgain is how long after due it is looked again whether the call has ended.
const overdueAgain = 5 * time.Millisecond

// timeIsOver is called for a call that is about to be made again. late tells that it is over instead, with that result.
func (th *Thread) timeIsOver(regs *host.Regs) (result int64, late bool) {
	now := time.Now()
	c := th.timed
	if c == nil || !c.left || c.regs != callOf(regs) {
		th.endTimed()
		timeout, ok := th.timeoutOf(regs)
		if !ok || timeout.limit <= 0 || timeout.limit > longestTimeout {
			return 0, false
		}
		c = &timedCall{regs: callOf(regs), due: now.Add(timeout.limit), result: timeout.result}
		th.timed = c
		th.wakeAt(c, timeout.limit)
	}
	if !now.Before(c.due) {
		th.endTimed()
		return c.result, true
	}
	c.entered, c.left, c.restarts = false, false, false
	return 0, false
}

// again tells of a call that is interrupted that it is about to be made again: at its exit, one stop before.
func (c *timedCall) again(regs *host.Regs) bool {
	return c != nil && !c.entered && c.regs == callOf(regs)
}

// wakeAt stops the thread after d, if it still is in that call then.
func (th *Thread) wakeAt(c *timedCall, d time.Duration) {
	t := th.Proc.tracer
	c.timer = time.AfterFunc(d, func() {
		_ = t.Do(func() {
			if th.timed != c || t.threads[th.TID] != th {
				return
			}
			if th.state == running && c.entered && !c.left {
				_ = th.interrupt()
			}
			th.wakeAt(c, overdueAgain)
		})
	})
}

// endTimed: the call has returned, or the thread is let go.
func (th *Thread) endTimed() {
	if th.timed != nil {
		th.timed.timer.Stop()
		th.timed = nil
	}
}

// noteTimed looks at a syscall-stop of a thread that may be in such a call, and tells whether that was interrupted again.
func (th *Thread) noteTimed() (again bool) {
	c := th.timed
	if c == nil {
		return false
	}
	regs, err := th.hostRegs()
	switch {
	case err != nil:
	case atEntry(regs) && (!c.entered || c.restarts) && c.regs == callOf(regs):
		c.entered, c.left, c.restarts = true, false, false
	case c.entered && !c.left && (interrupted(regs) || regs.CallResult() == -int64(unix.EINTR)):
		c.left = true                  // if it is not restarted, the thread's next entry tells
		c.restarts = interrupted(regs) // splice(2), for one: with ERESTARTSYS as long as it waits for the pipe's lock, then with EINTR
		return true
	default:
		th.endTimed()
	}
	return false
}

// socketTimeout is the time that a call waits on a socket, by one of its options, and the socket's domain.
func (th *Thread) socketTimeout(fd uint64, option int) (limit time.Duration, domain int, ok bool) {
	own, ok := th.getfd(fd)
	if !ok {
		return 0, 0, false
	}
	defer unix.Close(own)
	tv, err := unix.GetsockoptTimeval(own, unix.SOL_SOCKET, option)
	if err != nil {
		return 0, 0, false
	}
	domain, err = unix.GetsockoptInt(own, unix.SOL_SOCKET, unix.SO_DOMAIN)
	return time.Duration(tv.Nano()), domain, err == nil
}

// getfd is a descriptor of ours for what the program has open as fd. It is to be closed.
func (th *Thread) getfd(fd uint64) (own int, ok bool) {
	if th.Proc.pidfd < 0 {
		return -1, false
	}
	own, err := unix.PidfdGetfd(th.Proc.pidfd, int(int32(fd)), 0)
	return own, err == nil
}

// forgetInterruption is called when a stop has ended recvmmsg(2) on a socket with part of the messages. The kernel notes the reason as the socket's error
// (do_recvmmsg in net/socket.c), and the next call there, of whatever kind, would fail with it: EINTR, or ERESTARTSYS, which no program knows. Reading the error takes it away; one
// of the network's that comes just then is lost with it.
func (th *Thread) forgetInterruption(fd uint64) {
	if own, ok := th.getfd(fd); ok {
		_, _ = unix.GetsockoptInt(own, unix.SOL_SOCKET, unix.SO_ERROR)
		unix.Close(own)
	}
}

// timespec reads a struct timespec of the target, in nanoseconds; unit is that of its
// second word.
func (th *Thread) timespec(at uint64, unit time.Duration) (time.Duration, bool) {
	words, ok := th.words(at, 2)
	if !ok || words[0] > uint64(longestTimeout/time.Second) || words[1] >= uint64(time.Second/unit) {
		return 0, false
	}
	return time.Duration(words[0])*time.Second + time.Duration(words[1])*unit, true
}

// words reads so many of the program's memory; there is none at 0.
func (th *Thread) words(at uint64, n int) ([]uint64, bool) {
	b := make([]byte, 8*n)
	if at == 0 || th.Proc.Space.ReadMemory(arch.Addr(at), b) != nil {
		return nil, false
	}
	return littleWords(b), true
}
