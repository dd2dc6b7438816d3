package ptrace

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// What the action of SIGTRAP tells of a breakpoint. A thread that blocks the signal there resets the action, which is the process's: so it tells of a
// thread only as long as nobody has set it since, and as no other thread may have reset it.

// trapSight is what the action of SIGTRAP tells of a thread's breakpoint: whether the thread had the signal blocked there.
type trapSight uint8

const (
	asks  trapSight = iota // it is to be asked when the thread is handled
	stale                  // nothing: we have set it since
	free                   // the thread had not
)

// trapSets are what calls have set as the action of SIGTRAP: how often, and how often in place of a handler, or of what a breakpoint had left of one.
type trapSets struct{ sets, kept, lost int }

// replaced notes what an action was set in place of, of a process with the actions a.
func (ts *trapSets) replaced(was *sigaction, a *trapAction) {
	switch known := a.stands(); {
	case known != nil && *was == *known && was.handler > sigIgn:
		ts.kept++
	case a.left(was):
		ts.lost++
	}
}

// trapPutBack is called when we have set the action of SIGTRAP. Threads that have come to a breakpoint before that may be handled after it: from the
// action nobody can tell any more whether those block SIGTRAP. They are the ones that are known to have stopped, and those whose stop the kernel has still
// to tell of. What comes to a breakpoint from here on tells it.
//
// What stood there until then tells of them: where it was a handler, none had SIGTRAP blocked, but for those from before an earlier time. Where a breakpoint
// had reset it and there is one such thread, it was that; unless the reset of a thread that was handled before has not been put back yet.
func (t *Tracer) trapPutBack(p *Process, was trapSets) {
	const most = 16       // of those that are asked whether they have stopped
	var open []*trapSight // of threads that nothing has been set for since they came to a breakpoint
	var last *Thread      // of these
	asked := 0
	for _, th := range p.threads {
		sight := &th.at.sight
		matters := th.blocks.trap || th.blocks.inTrapHandler || was.lost > 0
		switch {
		case th.state == stopped:
			comes := th.trapped()
			if !comes && matters && th.comesToTrap() {
				comes, sight = true, &th.guard.next
			}
			if comes && *sight == asks {
				open, last = append(open, sight), th
			}
			*sight = max(*sight, stale)
		case matters:
			asked++
			if asked > most || th.hasTrap() {
				th.guard.next = max(th.guard.next, stale)
				open, last = append(open, nil), th
			}
		}
	}
	switch {
	case was.kept == was.sets:
		for _, sight := range open {
			if sight != nil {
				*sight = free
			}
		}
	case was.lost == was.sets && len(open) == 1 && (p.trap.handled() || !p.trap.regaining && last.unsureAlone()):
		last.blocks.trap = true
	}
}

// trapped tells of a stopped thread that this is for a breakpoint, or for a step of ours, and not handled yet.
func (th *Thread) trapped() bool {
	return (th.at.stop.Reason == Breakpoint || th.at.stop.Reason == SingleStep) && !th.at.judged
}

// comesToTrap tells of a stopped thread that it will be told to be trapped next.
func (th *Thread) comesToTrap() bool { return th.waiting(th.forcesTrap) }

// forcesTrap tells of a signal in the thread's queue that an instruction has raised it, and that it is SIGTRAP. One that somebody sent may stand for
// that too: see coalesced.
func (th *Thread) forcesTrap(s *Siginfo) bool {
	return s.Signo() == unix.SIGTRAP && (s.Code() > 0 || !th.blocksTrap())
}

// resetAlone tells that the thread has reset the action by a breakpoint just now: so it blocked SIGTRAP there.
func (th *Thread) resetAlone() bool {
	if !th.Proc.trap.tellsOfMask() {
		return false
	}
	st, err := procfs.ReadStatus(th.Proc.PID, th.TID)
	return err == nil && !Sigset(st.SigCgt).Has(unix.SIGTRAP) && th.trapsAlone()
}

// trapsAlone tells that the action tells of this thread: no other one of the process may have come to a breakpoint that is not handled yet. Of several
// that have, one blocked SIGTRAP, and nobody can tell which. One that is made to block it though it did not would die of its own next trap.
func (th *Thread) trapsAlone() bool {
	const most = 16 // that are looked at
	if len(th.Proc.threads) > most {
		return false
	}
	for _, o := range th.Proc.threads {
		switch {
		case o == th || o.state == exiting:
		case o.state == stopped && (o.trapped() || o.comesToTrap()), o.state != stopped && o.hasTrap():
			return false
		}
	}
	return th.at.sight == asks
}

// hasTrap tells whether the thread has a SIGTRAP pending, or has stopped for one. The kernel takes the signal from the queue and stops the thread under one lock
// (get_signal in kernel/signal.c), in this order; so it is looked at in this order, by two readings. In between the scheduler or a freezer may hold a thread for long.
func (th *Thread) hasTrap() bool {
	st, err := procfs.ReadStatus(th.Proc.PID, th.TID)
	if err != nil || Sigset(st.SigPnd).Has(unix.SIGTRAP) {
		return true
	}
	st, err = procfs.ReadStatus(th.Proc.PID, th.TID)
	return err != nil || st.State == 't' && (Sigset(st.SigPnd).Has(unix.SIGTRAP) || th.stoppedForTrap())
}

// stoppedForTrap tells of a thread whose stop nobody has waited for yet that it is for a SIGTRAP, and no event's.
func (th *Thread) stoppedForTrap() bool {
	var info Siginfo
	if requestPtr(unix.PTRACE_GETSIGINFO, th.TID, 0, unsafe.Pointer(&info)) != nil {
		return true // or it runs again
	}
	isEvent := info.Code()&0xff == int(unix.SIGTRAP) && info.Code()>>8 != 0 // ptrace_do_notify in kernel/signal.c
	return info.Signo() == unix.SIGTRAP && !isEvent
}
