package ptrace

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// Attach seizes every thread of the process that pid belongs to, and lets them run
// on. It must be called on the tracer's thread. A failure is an *AttachError that
// names its cause; then nothing stays attached. After Cancel it is ErrGivenUp, and LetGo is to be called.
func (t *Tracer) Attach(pid int) (*Process, error) {
	var st procfs.Status
	var err error
	if !t.Outside(func() { st, err = precheck(pid) }) {
		return nil, ErrGivenUp
	}
	if err != nil {
		return nil, err
	}
	pid = st.Tgid
	if t.procs[pid] != nil {
		return nil, &AttachError{PID: pid, Cause: CauseTraced, Detail: "by this session"}
	}
	p := t.newProcess(pid, nil)
	for _, step := range []func(*Process) error{t.seizeAll, t.enterAll, t.seizeRelatives, t.passOnce, t.seizeAll, t.passOnce} {
		if err := step(p); err != nil {
			if errors.Is(err, ErrGivenUp) {
				return nil, err
			}
			t.abandon(p)
			return nil, diagnose(pid, err)
		}
	}
	return p, nil
}

// passTogether is how many threads passOnce has asked to stop at any moment. None is away for longer than it takes to deal with
// so many; and so many are there by the time that the first one was looked at.
const passTogether = 32

// passOnce stops every thread that has not stopped since it was seized, each for a
// moment by itself. A thread that was inside fork(2) or clone(2) when it was seized may
// make one child that is not traced: the kernel looks at the options when the call
// begins (kernel_clone in kernel/fork.c). After its first stop that call is over. A new
// thread is then found by another listing; a new process has a copy of memory in which
// nothing is patched yet.
//
// Each is waited for by its number. A wait for any thread looks at all of them in the kernel, one after the other, and of thousands that takes
// longer than everything else. It is done where none of those that were asked has stopped, and now and then, for those that stop by themselves.
func (t *Tracer) passOnce(p *Process) error {
	var todo []*Thread
	for _, th := range p.Space.Threads() {
		if t.unpassed(th) {
			todo = append(todo, th)
		}
	}
	var waiting []*Thread
	var pace drainPace
	var late lateVfork
	defer late.end()
	for round := 1; ; round++ {
		if t.GivenUp() {
			return ErrGivenUp
		}
		if late.due(t) {
			for _, th := range waiting {
				th.parkLate()
			}
		}
		waiting = slices.DeleteFunc(waiting, func(th *Thread) bool { return !t.unpassed(th) })
		for len(todo) > 0 && len(waiting) < passTogether {
			th := todo[0]
			todo = todo[1:]
			if t.unpassed(th) && th.interrupt() == nil {
				waiting = append(waiting, th)
			}
		}
		if len(waiting) == 0 {
			break
		}
		stopped := false
		for _, th := range waiting {
			if tid, ws, err := t.peek(th.TID, unix.WNOHANG); err == nil && tid == th.TID {
				t.note(tid, ws, nil)
				stopped = true
			}
		}
		if !stopped {
			tid, ws, err := t.peek(-1, 0)
			if err != nil {
				return err
			}
			t.note(tid, ws, nil)
		}
		if round%8 == 0 && pace.due() {
			t.drain() // before any of them can stop again: wait4 prefers the youngest
			pace.did()
		}
		for th := t.nextBacklog(); th != nil; th = t.nextBacklog() {
			t.pass(th)
		}
	}
	if len(p.threads) == 0 {
		return unix.ESRCH
	}
	return nil
}

// drainPace is how often passOnce looks for threads that have stopped by themselves. Each look takes as long as there are threads, so of the time no more than a
// part is spent on it; among few it is always due. Who has stopped meanwhile stands for a little longer than it takes to find all others.
type drainPace struct {
	began, next time.Time
}

func (d *drainPace) due() bool {
	d.began = time.Now()
	return !d.began.Before(d.next)
}

func (d *drainPace) did() {
	const share = 8
	now := time.Now()
	d.next = now.Add(share * now.Sub(d.began))
}

// unpassed tells of a thread that passOnce is to stop, or waits for.
func (t *Tracer) unpassed(th *Thread) bool {
	return !th.seen && th.state == running && t.threads[th.TID] == th
}

// pass resumes a thread that stopped during the attach, when nobody asks yet what its
// stop means.
func (t *Tracer) pass(th *Thread) {
	switch th.at.stop.Reason {
	case Exited, Killed, GroupStop:
		t.dispatch(th)
	case Signal, Breakpoint:
		if th.raisesPutBack() {
			t.resume(th, 0)
			return
		}
		t.resume(th, th.at.stop.Signal)
	case Exec:
		th.Proc.oldSpace = nil
		t.resume(th, 0)
	default:
		if th.Proc.parent != nil {
			// A child of a process that has no probes: it need not be held.
			th.Proc.parent = nil
			_ = t.Detach(th.Proc)
			return
		}
		t.resume(th, 0)
	}
}

// seizeAll seizes until two listings in a row show no new thread. A thread made by a
// seized one is traced from birth (PTRACE_O_TRACECLONE), so only threads not yet
// seized can make unknown ones; one listing may miss entries while threads exit.
//
// Threads that the kernel has made in the process for work of its own (io_uring, vhost)
// are left alone. They are in the group, can be seized, and stop when they are asked
// to. But they stop in the middle of work for the target, which then fails with EINTR.
// And they never come to user mode, so a system call asked of one is never made. Those
// made later are not traced (create_io_thread in kernel/fork.c does not go by way of
// kernel_clone, which alone tells of children). They run no code of the target, so
// patches do not matter to them.
func (t *Tracer) seizeAll(p *Process) error {
	for clean := 0; clean < 2; {
		tids, err := procfs.Tasks(p.PID)
		if err != nil {
			return fmt.Errorf("%w (%w)", unix.ESRCH, err)
		}
		news := 0
		for _, tid := range tids {
			if p.threads[tid] != nil {
				continue
			}
			if t.GivenUp() {
				return ErrGivenUp
			}
			seized, err := t.seize(p, tid)
			if err != nil {
				return err
			}
			if seized {
				news++
			}
		}
		if clean++; news > 0 {
			clean = 0
		}
	}
	if st, err := procfs.ReadStat(p.PID, 0); err != nil || st.StartTime != p.startTime {
		return unix.ESRCH
	}
	if len(p.threads) == 0 {
		return unix.ESRCH
	}
	if p.pidfd >= 0 { // start times are in hundredths of a second, in which a number may be given away and given again
		return still(p.PID, p.pidfd)
	}
	return nil
}

// seize reports whether it took a new thread. One that ended meanwhile is none, and
// one that a seized thread made is traced already: EPERM, and the tracer is us.
//
// What thousands of threads take here is files of /proc, so one is read of each, before it is seized. What it says may be old by then: the thread runs, now as before. Its mask is
// read again when it stops, which passOnce makes it do. One that goes into vfork(2) meanwhile does not stop, and is found by that (lateVfork). That the number is
// still a thread of p's is asked behind the seizing.
func (t *Tracer) seize(p *Process, tid int) (bool, error) {
	t.event()
	st, statErr := procfs.ReadStatus(p.PID, tid)
	if kernelsOwn(p.PID, tid, Sigset(st.SigBlk), statErr) {
		return false, nil
	}
	err := request(unix.PTRACE_SEIZE, tid, 0, seizeOptions)
	if err != nil || statErr != nil || st.State == 'D' { // now, not before: it may be inside vfork(2) by now, or not any more
		st, statErr = procfs.ReadStatus(p.PID, tid)
	}
	switch {
	case err == nil:
	case errors.Is(err, unix.ESRCH) || statErr != nil:
		return false, nil
	case errors.Is(err, unix.EPERM) && (st.State == 'Z' || st.State == 'X'):
		return false, nil
	case errors.Is(err, unix.EPERM) && st.TracerPid == t.tid:
	default:
		return false, err
	}
	if statErr != nil || !among(p.PID, tid) { // now that nobody else can get its number
		if strays, err := t.stray(p, tid); strays {
			return false, err
		}
	}
	th := t.newThread(p, tid)
	mask := Sigset(st.SigBlk)
	th.blocks.seized, th.blocks.seizedAt = &mask, th.Born
	th.blocks.seen(mask, th.pendingSynchronous)
	if st.State == 'D' && inVfork(p.PID, tid) {
		th.state, th.at.stop.Reason = parked, Vfork
	}
	return true, nil
}

// stray lets a thread go again that is not of p: its number was another's when it was listed. Now that it is traced nobody else gets that.
func (t *Tracer) stray(p *Process, tid int) (bool, error) {
	st, err := procfs.ReadStatus(tid, 0)
	if err != nil || st.Tgid == p.PID {
		return false, nil
	}
	q := t.procs[st.Tgid]
	if q != nil {
		t.newThread(q, tid)
		return true, nil
	}
	q = t.newProcess(st.Tgid, nil)
	t.newThread(q, tid)
	return true, t.Detach(q)
}

// kernelsOwn tells of a thread, which blocks mask if err is nil, that it never runs code of the program. The kernel has such a thread block all signals that can be blocked, when it makes
// it (copy_process in kernel/fork.c), and nothing runs in it that could unblock one. So few others need the second look.
func kernelsOwn(pid, tid int, mask Sigset, err error) bool {
	if err == nil && mask|unblockable != allSignals {
		return false
	}
	st, err := procfs.ReadStat(pid, tid)
	return err == nil && st.Worker()
}

// among tells of a number whether it is a thread of pid's, traced or not: the kernel compares that first (do_send_specific in kernel/signal.c), and no signal is sent.
func among(pid, tid int) bool { return unix.Tgkill(pid, tid, 0) != unix.ESRCH }

// seizeRelatives takes in the processes that run in the same memory since before we
// came: children made by vfork or clone(CLONE_VM), theirs, and a parent of that kind.
func (t *Tracer) seizeRelatives(p *Process) error {
	seen := map[int]bool{p.PID: true}
	for todo := []int{p.PID}; len(todo) > 0; todo = todo[1:] {
		for _, pid := range relatives(todo[0]) {
			if seen[pid] || pid == os.Getpid() || !p.runsIn(pid) {
				continue
			}
			seen[pid] = true
			todo = append(todo, pid)
			if t.procs[pid] != nil {
				continue
			}
			if err := t.seizeRelative(p, pid); err != nil {
				return err
			}
		}
	}
	return nil
}

// seizeRelative seizes a process that was seen to run in p's memory, unless it has left that by exec meanwhile. Of an exec
// we are told if it is traced when the exec is done, which is after the memory has changed (exec_mmap and then
// ptrace_event in fs/exec.c). So one that shares the memory once it is traced can't leave it unnoticed; one that does
// not would for ever be taken to be where its memory is not.
func (t *Tracer) seizeRelative(p *Process, pid int) error {
	q := t.newProcess(pid, p.Space)
	switch err := t.seizeAll(q); {
	case err != nil && !errors.Is(err, unix.ESRCH):
		return err
	case len(q.threads) == 0:
		t.dropProcess(q)
	case !slices.ContainsFunc(q.Threads(), func(th *Thread) bool { return p.runsIn(th.TID) }):
		p.Space.leave(q)
		newSpace(t).adopt(q)
		return t.Detach(q)
	}
	return nil
}

// runsIn reports whether a thread runs in p's memory. It compares with one of p's
// traced threads, which has that memory until its end is recorded: it stops for us
// before it lets go of it.
func (p *Process) runsIn(tid int) bool {
	own, err := p.Space.TID()
	return err == nil && sameMemory(own, tid)
}

// relatives lists a process's parent and its children; the latter need
// CONFIG_PROC_CHILDREN.
func relatives(pid int) (pids []int) {
	if st, err := procfs.ReadStat(pid, 0); err == nil && st.PPid > 0 {
		pids = append(pids, st.PPid)
	}
	tids, err := procfs.Tasks(pid)
	if err != nil {
		return pids
	}
	if children, ok := fewerProcesses(pid, len(tids)); ok {
		return append(pids, children...)
	}
	for _, tid := range tids {
		if children, err := procfs.Children(pid, tid); err == nil {
			pids = append(pids, children...)
		}
	}
	return pids
}

// fewerProcesses lists pid's children where there are fewer processes than pid has threads: then it takes less to ask each for its parent than each thread for its children.
func fewerProcesses(pid, threads int) (children []int, ok bool) {
	if threads < manyThreads {
		return nil, false
	}
	all, err := procfs.Processes(threads)
	if err != nil {
		return nil, false
	}
	for _, child := range all {
		if st, err := procfs.ReadStat(child, 0); err == nil && st.PPid == pid {
			children = append(children, child)
		}
	}
	return children, true
}

// abandon releases what a failed attach had seized.
func (t *Tracer) abandon(p *Process) {
	for _, q := range p.Space.Processes() {
		_ = t.Detach(q)
	}
}

// inVfork reads /proc/PID/task/TID/syscall of a thread in uninterruptible sleep.
func inVfork(pid, tid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", pid, tid))
	if err != nil {
		return false
	}
	var nr, arg uint64
	if n, _ := fmt.Sscanf(string(b), "%d 0x%x", &nr, &arg); n != 2 {
		return false
	}
	return nr == host.SysVfork || nr == unix.SYS_CLONE3 || nr == unix.SYS_CLONE && arg&unix.CLONE_VFORK != 0
}

// sameMemory compares two processes' address spaces (kcmp(2), KCMP_VM).
func sameMemory(a, b int) bool {
	const kcmpVM = 1
	r, _, errno := unix.RawSyscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpVM, 0, 0, 0)
	return errno == 0 && r == 0
}
