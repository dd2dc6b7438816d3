package ptrace

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// Process is one traced thread group.
type Process struct {
	PID    int
	Space  *Space
	Status Stop // how it ended; valid in Handler.Exited

	tracer    *Tracer
	threads   map[int]*Thread
	ending    map[*Thread]bool // that have stopped on their way out, until they are gone
	startTime uint64
	pidfd     int // -1 if the kernel has none

	trap   trapAction
	faults faultActions
	alone  alone

	continues uint64 // SIGCONTs that were recorded

	parent   *Space // of a forked process until its fate is settled
	oldSpace *Space // between the exec event and its dispatch
	newborn  bool   // its fate is being settled: its one thread has run nothing since the fork
	written  uint64 // the parent's Space.writes when the thread that has forked it was last resumed; 0 if that is not known
	seccomp  int    // procfs.Status.Seccomp when it was registered: of a newborn it is that still
	leaving  bool   // detached, but some threads can't be released yet

	dropped bool // no longer ours
}

// Threads is the traced threads, in no order.
func (p *Process) Threads() []*Thread {
	list := make([]*Thread, 0, len(p.threads))
	for _, th := range p.threads {
		list = append(list, th)
	}
	return list
}

// Leader is the thread whose ID is the process's, or nil after it has exited.
func (p *Process) Leader() *Thread { return p.threads[p.PID] }

// InsideVfork tells whether a thread of p waits in vfork(2) for a child. It can't be stopped, nor make system calls for us,
// and goes on when the child executes another program or ends.
func (p *Process) InsideVfork() bool {
	for _, th := range p.threads {
		if th.state == parked || th.state == stopped && th.at.stop.Reason == Vfork {
			return true
		}
	}
	return false
}

// BornAsNow tells that nothing was written by parent's Text since before p was forked from parent, so p was born with what we have written there by now. It may be false
// though it is so. Others may have written there, after the fork as well.
//
// A fork copies memory while the thread that forks is in the kernel: after it was last resumed, before it stopped for the fork. Other threads run meanwhile, and
// our writes do not wait for them.
func (p *Process) BornAsNow(parent *Space) bool { return p.written == parent.writes }

// StartTime is when the process began, as procfs.Stat has it: with the PID it names a process for good.
func (p *Process) StartTime() uint64 { return p.startTime }

// newProcess registers a thread group.
func (t *Tracer) newProcess(pid int, space *Space) *Process {
	p := &Process{PID: pid, tracer: t, threads: map[int]*Thread{}, ending: map[*Thread]bool{}, pidfd: -1}
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		p.pidfd = fd
	}
	if st, err := procfs.ReadStat(pid, 0); err == nil {
		p.startTime = st.StartTime
	}
	p.noteDispositions()
	if space == nil {
		space = newSpace(t)
	}
	space.adopt(p)
	t.procs[pid] = p
	return p
}

// noteDispositions remembers what the process does with SIGTRAP.
func (p *Process) noteDispositions() {
	if st, err := procfs.ReadStatus(p.PID, 0); err == nil {
		p.trap.seen(Sigset(st.SigIgn).Has(unix.SIGTRAP), Sigset(st.SigCgt).Has(unix.SIGTRAP))
		p.seccomp = st.Seccomp
	}
}

// newThread registers a thread that is traced already.
func (t *Tracer) newThread(p *Process, tid int) *Thread {
	th := &Thread{TID: tid, Proc: p, Born: time.Now(), at: &standing{}}
	th.name = &Name{th: th, from: th.Born}
	p.threads[tid] = th
	t.threads[tid] = th
	if stop, ok := t.early[tid]; ok {
		delete(t.early, tid)
		th.state, th.at.stop = stopped, stop
		if stop.Reason == Exiting {
			p.ending[th] = true
		}
		th.noteHalt(stop)
		t.enqueue(th)
	}
	return th
}

func (t *Tracer) enqueue(th *Thread) {
	if !th.queued {
		th.queued = true
		t.backlog = append(t.backlog, th)
	}
}

// dropThread forgets a thread that is gone.
func (t *Tracer) dropThread(th *Thread) {
	delete(t.threads, th.TID)
	delete(th.Proc.threads, th.TID)
	delete(th.Proc.ending, th)
	th.Proc.alone = alone{}
	th.queued = false
	th.endDelay()
	th.endTimed()
	th.endCall(ErrExited)
}

// dropProcess forgets a process that is gone or was let go.
func (t *Tracer) dropProcess(p *Process) {
	for _, th := range p.threads {
		t.dropThread(th)
	}
	delete(t.procs, p.PID)
	p.Space.leave(p)
	p.dropped = true
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
		p.pidfd = -1
	}
	if len(t.procs) == 0 {
		t.handler.Alone()
	}
}

// Kill sends sig to the process; by pidfd, so that it can't reach another process
// that got the same ID. It returns ErrExited when the process is no longer traced.
func (p *Process) Kill(sig unix.Signal) error {
	switch {
	case p.dropped:
		return ErrExited
	case p.pidfd >= 0:
		return unix.PidfdSendSignal(p.pidfd, sig, nil, 0)
	}
	return unix.Kill(p.PID, sig)
}
