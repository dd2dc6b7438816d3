package ptrace

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

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
		th.cont(th.request(), 0)
		if err := t.await(th); err != nil {
			return err
		}
	}
}

// await waits until th stops or ends. Other threads' stops that come up meanwhile
// are recorded and queued. It must be ready for them: a leader's end is not reported
// before all other threads are reaped, nor does exec go on before that (de_thread in
// fs/exec.c), so waiting for one thread alone could wait for ever. After Cancel the error is ErrGivenUp, and the
// thread runs.
func (t *Tracer) await(th *Thread) error {
	for th.state == running && t.threads[th.TID] == th {
		if tid, ws, err := t.peek(th.TID, unix.WNOHANG); err == nil && tid == th.TID {
			t.note(tid, ws, th)
			continue
		}
		if t.leaves(th) {
			return fmt.Errorf("thread %d: %w", th.TID, ErrGivenUp)
		}
		t.letEnd(th.Proc)
		tid, ws, err := t.peek(-1, 0)
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
			t.tellExit(th)
			t.resume(th, 0)
		}
	}
	for tid, stop := range t.early {
		if st, err := procfs.ReadStatus(tid, 0); stop.Reason == Exiting && err == nil && st.Tgid == p.PID {
			t.letEndUnknown(tid)
		}
	}
}

// letEndUnknown lets a thread end that has never run: an exec or a SIGKILL came while it was made. Whoever has made it may be dead too, and tell
// of it no more; and a thread that calls exec waits for all others to be gone.
func (t *Tracer) letEndUnknown(tid int) {
	delete(t.early, tid)
	_ = request(unix.PTRACE_CONT, tid, 0, 0)
	t.resumed(tid)
}

// note records a status that came up while waiting for awaited, and queues the stops
// of others and all ends.
func (t *Tracer) note(tid int, ws unix.WaitStatus, awaited *Thread) {
	if t.bell != nil && tid == t.bell.pid {
		t.rung = true
		t.resumed(tid)
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
