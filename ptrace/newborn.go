package ptrace

import (
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// adoptChild registers the thread or process that th has just made. The child is
// traced already and stops by itself.
func (t *Tracer) adoptChild(th *Thread) {
	tid, err := eventMsg(th.TID)
	if known := t.threads[tid]; err == nil && known != nil {
		t.handler.Born(th, known)
	}
	if err != nil || t.threads[tid] != nil || !isTracee(tid) {
		return // introduced by an attach that was faster; it may even have ended since
	}
	flags, err := t.childFlags(th, tid)
	switch {
	case err != nil:
		// Neither the call nor the child can be read: both are dying.
		delete(t.early, tid)
	case flags&unix.CLONE_THREAD != 0:
		fresh := t.newThread(th.Proc, tid)
		fresh.blocks = th.blocks.child()
		fresh.unblocked = unblocked{is: th.unblocked.is, from: th.unblocked.from}
		t.handler.Born(th, fresh)
	case flags&unix.CLONE_VM != 0:
		t.newborn(th, tid, th.Proc.Space)
	default:
		t.newborn(th, tid, nil)
	}
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

func (t *Tracer) newborn(parent *Thread, tid int, space *Space) {
	p := t.newProcess(tid, space)
	p.trap = parent.Proc.trap.child()
	if space == nil {
		p.parent, p.written = parent.Proc.Space, parent.written
	}
	th := t.newThread(p, tid)
	th.blocks = parent.blocks.child()
	t.handler.Born(parent, th)
	if space != nil {
		t.handler.Shared(parent, p)
	} else {
		t.handler.Copied(parent, p)
	}
}

// forked settles the fate of a new process with its own copy of the memory, when
// it has stopped for the first time.
func (t *Tracer) forked(p *Process, th *Thread) {
	parent := p.parent
	p.parent = nil
	t.enterChild(th, parent)
	p.Space.leaveWay(parent)
	p.newborn = true
	fate := t.handler.Forked(parent, p)
	if p.newborn = false; fate == LetGo {
		_ = t.Detach(p)
		return
	}
	t.resume(th, 0)
}
