package ptrace

import "github.com/gokprobe/gokprobe/internal/procfs"

// adoptOrphans introduces what a thread of p had made when it was killed before its
// event could be reported.
func (t *Tracer) adoptOrphans(p *Process) {
	for tid := range t.early {
		st, err := procfs.ReadStatus(tid, 0)
		switch {
		case err != nil:
		case t.procs[st.Tgid] != nil:
			t.adoptOrphan(t.procs[st.Tgid], tid)
		case st.Tgid == tid && len(p.threads) == 0 && !t.introduced(tid, st.PPid):
			space := p.Space
			if !sameMemory(p.PID, tid) {
				space = nil
			}
			t.newborn(&Thread{Proc: p, at: &standing{}}, tid, space)
		}
	}
}

func (t *Tracer) adoptOrphan(p *Process, tid int) {
	th := t.newThread(p, tid)
	if leader := p.Leader(); leader != nil {
		t.handler.Born(leader, th) // who has made it may tell yet
	}
}

// adoptDying introduces a thread whose first stop is that on its way out: a SIGKILL or an exec has come before it ran. Whoever has made it may be dead as
// well, and all others, so that nothing else is ever reported: not even the leader's end, before this one's.
func (t *Tracer) adoptDying(tid int) {
	if st, err := procfs.ReadStatus(tid, 0); err == nil && st.Tgid != tid && t.procs[st.Tgid] != nil {
		t.adoptOrphan(t.procs[st.Tgid], tid)
	}
}

// introduced tells whether process tid is a child that parent has made and not, when its
// maker was killed, only inherited. A maker that lives reports the child on its way out
// of the system call, so at the latest when it is asked to stop.
func (t *Tracer) introduced(tid, parent int) bool {
	p := t.procs[parent]
	if p == nil {
		return false
	}
	_ = p.Space.Freeze(func(*Frozen) error { return nil })
	_, early := t.early[tid]
	return !early
}
