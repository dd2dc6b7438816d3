package ptrace

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// Patience is what Catch knows of another tracer, which has the process still. It waits until that has let
// its tracees go, or for the given time, and reports whether it has.
type Patience func(time.Duration) bool

const (
	spin  = 200 * time.Microsecond // for which Catch asks again at once
	pause = time.Millisecond / 4   // between two attempts after that, if nothing happens
)

// Catch takes hold of a process whose tracer is about to die, in the moment when it lets go: all threads are seized and asked to
// stop, before anything else is done. They are to be stopped by a Freeze then: until that, none of them is waited for. It must be called on
// the tracer's thread. The process must have begun at start (procfs.Stat). The error is ESRCH if it has ended.
//
// The dying tracer lets its tracees go one by one, with the list of processes locked (exit_ptrace in kernel/exit.c); each then runs
// on. PTRACE_SEIZE, which needs the lock, fails with EPERM before, and is repeated.
func (t *Tracer) Catch(pid int, start uint64, over Patience) (*Process, error) {
	if st, err := procfs.ReadStat(pid, 0); err != nil || st.StartTime != start {
		return nil, unix.ESRCH
	}
	if err := grab(pid, over); err != nil {
		return nil, err
	}
	p := t.newProcess(pid, nil)
	for _, step := range []func(*Process) error{t.seizeAll, t.seizeRelatives} {
		if err := step(p); err != nil {
			t.abandon(p)
			return nil, diagnose(pid, err)
		}
	}
	if p.startTime != start {
		t.abandon(p)
		return nil, unix.ESRCH
	}
	return p, nil
}

// grab seizes all threads that there are and asks each to stop. Threads that can't be
// seized are left, once the other tracer is gone.
func grab(pid int, over Patience) error {
	began, g := time.Now(), grabbing{pid: pid, done: map[int]bool{}}
	for {
		tids, err := procfs.Tasks(pid)
		if err != nil {
			return fmt.Errorf("%w (%w)", unix.ESRCH, err)
		}
		free := over(0) // asked first: a round after it is one that nobody was in the way of
		news, left := g.once(tids)
		for news == 0 && left > 0 && !free && time.Since(began) < spin {
			free = over(0)
			news, left = g.once(tids)
		}
		switch {
		case news > 0: // each of them may have made others, until it was seized
		case left == 0 || free:
			return nil
		default:
			over(pause)
		}
	}
}

// grabbing is what grab has done. The kernel's own threads are not asked: they would
// give up their work for the target.
type grabbing struct {
	pid    int
	done   map[int]bool // seized, or the kernel's own
	others map[int]bool // that are known to be the program's
}

// kernelsOwn is found out once of each thread, as a rule while the other tracer is in the way still.
func (g *grabbing) kernelsOwn(tid int) bool {
	if g.others[tid] {
		return false
	}
	if st, err := procfs.ReadStat(g.pid, tid); err == nil && st.Worker() {
		return true
	}
	if g.others == nil {
		g.others = map[int]bool{}
	}
	g.others[tid] = true
	return false
}

// once tries each thread once.
func (g *grabbing) once(tids []int) (news, left int) {
	for _, tid := range tids {
		if g.done[tid] {
			continue
		}
		if g.kernelsOwn(tid) {
			g.done[tid] = true
			continue
		}
		switch err := request(unix.PTRACE_SEIZE, tid, 0, seizeOptions); {
		case err == nil:
			_ = request(unix.PTRACE_INTERRUPT, tid, 0, 0)
			g.done[tid] = true
			news++
		case errors.Is(err, unix.ESRCH): // it has ended
		default:
			left++
		}
	}
	return news, left
}
