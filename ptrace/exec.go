package ptrace

import "golang.org/x/sys/unix"

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
			th.name.th = nil // by its number there is the new program's
			t.dropThread(th)
			t.tellGone(th)
		}
	}
	if caller == nil {
		caller = t.newThread(p, s.TID)
	}
	t.dropThread(caller)
	was := caller.TID
	caller.TID = s.TID
	t.threads[s.TID], p.threads[s.TID] = caller, caller
	if was != s.TID {
		t.handler.Renamed(was, caller)
	}
	caller.state, caller.at = stopped, &standing{halt: halt{stop: s}}
	caller.owed = owed{}
	caller.rename()
	p.oldSpace = p.Space
	p.Space.leave(p)
	newSpace(t).adopt(p)
	_ = p.Space.enter(s.TID) // refused only if the program's file can't be read
	return caller
}

// execed first moves the thread from the exec event, inside the system call, to a
// stop at the new program's first instruction, where it can do things for us.
func (t *Tracer) execed(th *Thread) {
	p := th.Proc
	if err := t.toUserMode(th); err != nil {
		return // its end follows
	}
	inherited := p.trap.execed()
	p.noteDispositions()
	p.faults, p.alone = faultActions{}, alone{} // the old program's handlers are addresses in its memory
	if inherited != nil {
		p.trap.taken(inherited)
		_ = th.remote(func(r *Remote) error { return r.setSigaction(unix.SIGTRAP, inherited) })
	}
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
