package ptrace

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// record does the bookkeeping of a stop, whatever else is going on: it never
// resumes a thread and asks nobody what the stop means. It returns the thread to
// dispatch, or nil if the stop belongs to a thread not known yet: a child's first
// stop may come before the parent's event that introduces it.
func (t *Tracer) record(s Stop) *Thread {
	if s.Reason == Exec {
		return t.recordExec(s)
	}
	th := t.threads[s.TID]
	if th == nil {
		return t.recordEarly(s)
	}
	th.stop, th.regsValid, th.injectable = s, false, false
	if s.Ended() {
		th.state = exiting
		return th
	}
	th.state, th.seen = stopped, true
	switch s.Reason {
	case Signal:
		th.injectable = true
		switch {
		case th.substitute(): // the target's
		case th.singleStepped():
			th.stop.Reason = SingleStep
		case th.atBreakpoint():
			th.stop.Reason = Breakpoint
		}
	case Interrupt:
		th.noteMask()
		if th.asked || !th.wasStopped {
			th.restartCall() // SIGCONT causes such a stop in a process that runs, too
			th.wasStopped = false
		}
		th.asked = false
		th.noteRestart()
	case GroupStop:
		th.asked, th.wasStopped = false, true
		th.noteRestart()
	case SyscallStop:
		t.recordSyscall(th)
	case Clone, Fork, Vfork:
		t.adoptChild(th)
	}
	return th
}

// atBreakpoint tells whether a breakpoint instruction raised the signal being delivered.
// The address alone can't tell: behind a one-byte instruction a kill(2) may find the
// thread at the same place.
func (th *Thread) atBreakpoint() bool {
	expected := th.trapAt
	th.trapAt = 0
	if th.stop.Signal != unix.SIGTRAP {
		return false
	}
	if expected != 0 && !th.trapBlocked && th.at() == expected {
		return true // one that blocks SIGTRAP may have had another pending: see coalesced
	}
	info, err := th.siginfo()
	return err == nil && (info.breakpoint() || info.Code() <= 0 && th.coalesced(info))
}

// singleStepped tells whether the signal being delivered is the trap that SingleStep asked
// for. A SIGTRAP that somebody sent and that the thread blocks swallows it, as it does a
// breakpoint's: see coalesced.
func (th *Thread) singleStepped() bool {
	if th.next != nextStep || th.stop.Signal != unix.SIGTRAP {
		return false
	}
	info, err := th.siginfo()
	if err != nil || info.Code() != trapTrace && th.at() == th.stepFrom {
		return false
	}
	if info.Code() != trapTrace {
		sent := *info
		th.sentTrap, th.trapBlocked = &sent, true
	}
	th.next = nextAny
	return true
}

// recordSyscall tells the Handler of a system call at once, since whatever resumes the
// thread makes it go on into the call. A return it is told of by dispatch.
func (t *Tracer) recordSyscall(th *Thread) {
	if th.remoting {
		return
	}
	next := th.next
	th.next = nextAny
	switch next {
	case nextEntry:
		th.restoreDispatch()
		t.handler.Entered(th)
		th.resendHeld()
	case nextReturn:
		th.returned = true
		if th.asked {
			th.restartCall()
		}
		th.noteRestart()
	}
}

// known asks the Handler about the breakpoint that the thread's IP is past.
func (th *Thread) known() (ours bool, length int) {
	h := th.Proc.tracer.handler
	if h == nil {
		return false, 0
	}
	return h.Known(th, th.at().Add(int64(-Host.BreakpointAdvance())))
}

// coalesced tells whether a SIGTRAP that somebody sent stands for a breakpoint too. The
// kernel keeps one instance of it: while one is pending, that of the breakpoint is lost
// with its siginfo (legacy_queue in kernel/signal.c). No thread is ever past the first
// byte of a longer instruction but by the breakpoint there, and one that blocks SIGTRAP
// is not sent any. That the other signal was pending while the thread ran means that the
// thread blocks it; it is kept, to be queued again.
func (th *Thread) coalesced(info *Siginfo) bool {
	ours, length := th.known()
	if !ours || length == 1 && !th.trapBlocked {
		return false
	}
	sent := *info
	th.sentTrap, th.trapBlocked = &sent, true
	return true
}

// recordEarly keeps the first stop of a thread that nobody introduced yet. It stays
// stopped until its parent's event does, which is on its way.
func (t *Tracer) recordEarly(s Stop) *Thread {
	if !s.Ended() {
		t.early[s.TID] = s
		return nil
	}
	delete(t.early, s.TID)
	if p := t.children[s.TID]; p != nil {
		p.Status = s
		t.handler.Exited(p)
	}
	return nil
}

// eventMsg is the value that belongs to an event stop: the new thread's ID, or the
// former ID of the thread that called exec.
func eventMsg(tid int) (int, error) {
	v, err := unix.PtraceGetEventMsg(tid)
	return int(v), err
}

// adoptChild registers the thread or process that th has just made. The child is
// traced already and stops by itself.
func (t *Tracer) adoptChild(th *Thread) {
	tid, err := eventMsg(th.TID)
	if err != nil || t.threads[tid] != nil || !isTracee(tid) {
		return // introduced by an attach that was faster; it may even have ended since
	}
	flags, err := t.childFlags(th, tid)
	switch {
	case err != nil:
		// Neither the call nor the child can be read: both are dying.
		delete(t.early, tid)
	case flags&unix.CLONE_THREAD != 0:
		t.newThread(th.Proc, tid).trapBlocked = th.trapBlocked
	case flags&unix.CLONE_VM != 0:
		t.newborn(th, tid, th.Proc.Space)
	default:
		t.newborn(th, tid, nil)
	}
}

func (t *Tracer) newborn(parent *Thread, tid int, space *Space) {
	p := t.newProcess(tid, space)
	p.trapIgnored, p.trapHandled = parent.Proc.trapIgnored, parent.Proc.trapHandled
	p.trapAction = parent.Proc.trapAction
	if space == nil {
		p.parent = parent.Proc.Space
	}
	t.newThread(p, tid).trapBlocked = parent.trapBlocked
}

func (t *Tracer) childFlags(th *Thread, tid int) (uint64, error) {
	r, err := th.hostRegs()
	if err == nil {
		var flags uint64
		if flags, err = cloneFlags(r, th.Proc.Space.ReadMemory); err == nil {
			return flags, nil
		}
	}
	st, err := procfs.ReadStatus(tid, 0)
	if err != nil {
		return 0, err
	}
	if st.Tgid == th.Proc.PID {
		return unix.CLONE_THREAD | unix.CLONE_VM, nil
	}
	return 0, nil
}

// recordExec gives the process its new address space. The thread that called exec
// has the leader's ID now, and all others are gone (ptrace(2), "execve under
// ptrace").
func (t *Tracer) recordExec(s Stop) *Thread {
	p := t.procs[s.TID]
	if p == nil {
		t.early[s.TID] = s
		return nil
	}
	former, err := eventMsg(s.TID)
	caller := t.threads[former]
	if err != nil || caller == nil || caller.Proc != p {
		caller = p.Leader()
	}
	for _, th := range p.Threads() {
		if th != caller {
			t.dropThread(th)
		}
	}
	if caller == nil {
		caller = t.newThread(p, s.TID)
	}
	t.dropThread(caller)
	caller.TID = s.TID
	t.threads[s.TID], p.threads[s.TID] = caller, caller
	caller.stop, caller.state, caller.regsValid = s, stopped, false
	caller.held, caller.holdMask, caller.resent = nil, nil, nil
	caller.next, caller.returned, caller.restartAt = nextAny, false, 0
	p.oldSpace = p.Space
	p.Space.leave(p)
	newSpace(t).adopt(p)
	return caller
}

// dispatch gives a stop its meaning and resumes the thread.
func (t *Tracer) dispatch(th *Thread) {
	th.handled = true
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
	if th.returned && th.state == stopped {
		th.returned = false
		cut := th.cut
		t.handler.Returned(th)
		if !t.holds(th, cut) {
			return
		}
	}
	if th.away() && th.call.late != nil && th.state == stopped && th.stop.Reason != Vfork {
		t.recall(th, th.call.late)
		return
	}
	switch th.stop.Reason {
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
	case Exec:
		t.execed(th)
	case Exiting:
		t.handler.ThreadExit(th)
		t.resume(th, 0)
	case Fork, Clone:
		if th.state == stopped {
			t.SettleForks(th.Proc.Space) // the Handler may ask where the parent is
		}
		t.resume(th, 0)
	default:
		t.resume(th, 0)
	}
}

// resume lets a thread go on, unless the Handler has let it go already.
func (t *Tracer) resume(th *Thread, sig unix.Signal) {
	if t.threads[th.TID] == th && th.state == stopped {
		th.moved = false
		th.cont(th.next.request(), sig)
	}
}

// listen leaves a thread in its group-stop: it stays stopped for everybody, and
// reports when SIGCONT ends that.
func (t *Tracer) listen(th *Thread) {
	_ = th.flush()
	th.state = running
	_ = request(unix.PTRACE_LISTEN, th.TID, 0, 0)
}

// ended forgets a thread that was reaped.
func (t *Tracer) ended(th *Thread) {
	p := th.Proc
	t.dropThread(th)
	if th.TID == p.PID || p.Status.TID == 0 {
		p.Status = th.stop
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

// forked settles the fate of a new process with its own copy of the memory, when
// it has stopped for the first time.
func (t *Tracer) forked(p *Process, th *Thread) {
	parent := p.parent
	p.parent = nil
	if t.handler.Forked(parent, p) == LetGo {
		_ = t.Detach(p)
		return
	}
	t.resume(th, 0)
}

// execed first moves the thread from the exec event, inside the system call, to a
// stop at the new program's first instruction, where it can do things for us.
func (t *Tracer) execed(th *Thread) {
	p := th.Proc
	if err := t.toUserMode(th); err != nil {
		return // its end follows
	}
	p.noteDispositions()
	old := p.oldSpace
	p.oldSpace = nil
	if t.handler.Execed(p, old) == LetGo {
		_ = t.Detach(p)
		return
	}
	if t.threads[th.TID] == th && th.state == stopped && !th.queued {
		t.dispatchAgain(th)
	}
}

// dispatchAgain resumes a thread whose stop changed while it was being handled.
func (t *Tracer) dispatchAgain(th *Thread) {
	if th.stop.Reason == GroupStop {
		t.listen(th)
		return
	}
	t.resume(th, 0)
}

// toUserMode brings a stopped thread out of an event inside a system call to the
// next stop on its way to user mode. It executes no user instruction.
func (t *Tracer) toUserMode(th *Thread) error {
	for {
		switch th.stop.Reason {
		case Interrupt, GroupStop, Signal, Breakpoint, SingleStep:
			return nil
		case Exiting, Exited, Killed, Vfork:
			return fmt.Errorf("thread %d: %w", th.TID, ErrExited)
		}
		if err := th.interrupt(); err != nil {
			return err
		}
		th.cont(th.next.request(), 0)
		if err := t.await(th); err != nil {
			return err
		}
	}
}

// await waits until th stops or ends. Other threads' stops that come up meanwhile
// are recorded and queued. It must be ready for them: a leader's end is not reported
// before all other threads are reaped, nor does exec go on before that (de_thread in
// fs/exec.c), so waiting for one thread alone could wait for ever.
func (t *Tracer) await(th *Thread) error {
	for th.state == running && t.threads[th.TID] == th {
		if tid, ws, err := waitStatus(th.TID, unix.WNOHANG); err == nil && tid == th.TID {
			t.note(tid, ws, th)
			continue
		}
		t.letEnd(th.Proc)
		tid, ws, err := waitStatus(-1, 0)
		if err != nil {
			th.state = exiting // no child is left at all
			break
		}
		t.note(tid, ws, th)
	}
	if th.state != stopped || t.threads[th.TID] != th {
		return fmt.Errorf("thread %d: %w", th.TID, ErrExited)
	}
	return nil
}

// letEnd lets threads go on that are stopped on their way out: the leader's end is not
// reported before theirs.
func (t *Tracer) letEnd(p *Process) {
	for _, th := range p.Threads() {
		if th.state == stopped && th.stop.Reason == Exiting && !p.leaving {
			th.queued = false
			t.handler.ThreadExit(th)
			t.resume(th, 0)
		}
	}
}

// note records a status that came up while waiting for awaited, and queues the stops
// of others and all ends.
func (t *Tracer) note(tid int, ws unix.WaitStatus, awaited *Thread) {
	if tid == t.bell.pid {
		t.rung = true
		t.deaf = t.deaf || !t.bell.rearm(ws)
		return
	}
	if th := t.record(decode(tid, ws)); th != nil && (th != awaited || th.state != stopped) {
		t.enqueue(th)
	}
}

// at returns the stopped thread's instruction pointer.
func (th *Thread) at() arch.Addr {
	if r, err := th.hostRegs(); err == nil {
		return r.IP()
	}
	return 0
}
