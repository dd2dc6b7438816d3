package ptrace

import (
	"golang.org/x/sys/unix"
)

// dispatch gives a stop its meaning and resumes the thread.
//
// No Freeze resumes it meanwhile, not even one that has met it at that very stop and could not
// give it back: the thread had left the address space by exec before it was asked to stop. The end
// of the next Freeze, in the course of Handler.Execed, would let the new program run while its
// probes are still being placed.
func (t *Tracer) dispatch(th *Thread) {
	th.handled, th.frozen = true, false
	t.handle(th)
	th.handled = false
}

func (t *Tracer) handle(th *Thread) {
	if th.Proc.leaving && th.state == stopped {
		t.detachThread(th)
		return
	}
	if p := th.Proc; p.parent != nil && th.state == stopped {
		t.forked(p, th)
		return
	}
	if th.at.returned && th.state == stopped {
		th.at.returned = false
		at := th.at
		t.handler.Returned(th)
		if t.holds(th, at) && !th.Restarts() {
			t.syscallDone(th)
		}
		if !t.holds(th, at) {
			return
		}
	}
	if th.away() && th.call.late != nil && th.state == stopped && th.at.stop.Reason != Vfork {
		t.recall(th, th.call.late)
		return
	}
	switch th.at.stop.Reason {
	case Exited, Killed:
		t.ended(th)
	case Breakpoint:
		t.breakpoint(th)
	case SingleStep:
		t.singleStepped(th)
	case Signal:
		t.signal(th)
	case GroupStop:
		t.listen(th)
	case SyscallStop:
		t.syscallStop(th)
	case Exec:
		t.execed(th)
	case Exiting:
		t.tellExit(th)
		t.resume(th, 0)
	case Fork, Clone:
		if th.state == stopped {
			t.SettleForks(th.Proc.Space) // the Handler may ask where the parent is
		}
		t.resume(th, 0)
	case VforkDone:
		if th.state == stopped {
			t.afterVfork(th)
		}
		if t.threads[th.TID] == th && th.state == stopped && !th.queued {
			t.dispatchAgain(th) // it may have come out of the call, for us
		}
	default:
		t.resume(th, 0)
	}
}

// resume lets a thread go on, now or after a delay, unless the Handler has let it go already.
func (t *Tracer) resume(th *Thread, sig unix.Signal) {
	if t.threads[th.TID] != th || th.state != stopped {
		return
	}
	th.endDelay() // by a stop of its own, if it was in one: it is killed
	if th.at.wait > 0 && t.park(th, sig) {
		return
	}
	if th.at.moved = false; th.job.grouped {
		_ = th.interrupt()
	}
	th.noteWaiting()
	th.cont(th.request(), sig)
}

func (t *Tracer) syscallStop(th *Thread) {
	if th.at.calls.stands {
		t.atEntry(th)
		return
	}
	t.resume(th, 0)
}

// listen leaves a thread in its group-stop: it stays stopped for everybody, and
// reports when SIGCONT ends that.
func (t *Tracer) listen(th *Thread) {
	_ = th.flush()
	th.state = running
	th.noteLetGo()
	_ = request(unix.PTRACE_LISTEN, th.TID, 0, 0)
	t.resumed(th.TID)
}

// ended forgets a thread that was reaped.
func (t *Tracer) ended(th *Thread) {
	p := th.Proc
	if old := p.oldSpace; old != nil {
		p.oldSpace = nil
		t.handler.Left(p, old)
	}
	t.dropThread(th)
	t.tellGone(th)
	if th.TID == p.PID || p.Status.TID == 0 {
		p.Status = th.at.stop
	}
	t.adoptOrphans(p)
	if len(p.threads) > 0 {
		return
	}
	if (!p.leaving || t.children[p.PID] == p) && p.parent == nil {
		t.handler.Exited(p)
	}
	t.dropProcess(p)
}

// dispatchAgain resumes a thread whose stop changed while it was being handled.
func (t *Tracer) dispatchAgain(th *Thread) {
	if th.at.stop.Reason == GroupStop {
		t.listen(th)
		return
	}
	t.resume(th, 0)
}
