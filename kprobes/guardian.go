package kprobes

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/gokprobe/gokprobe/internal/guardian"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/ptrace"
)

// The guardian: a small process of ours that outlives us, and recovers what we held at once when we are killed, as
// Recover does (package internal/guardian says how it is woken, and told). It is there beside the guard in the target (guard.go): that acts in
// between, and where there is no guardian.
//
// What a killed tracer's target does until the guardian has it, other threads see as ever: a thread that was in a ptrace-stop goes on
// with its signal (ptrace/reap.go), one that runs meets breakpoints, which the guard answers. From PTRACE_SEIZE on, a thread that
// traps stops for the guardian, and from then on nothing is delivered that our breakpoints have raised (recovermove.go).

// GuardianMain makes this process the guardian of a tracer, if it was started as one, and does not return then. A program that traces calls it first
// in its main function, and has guardians by that: without it nothing of this program is ever executed as one, and
// if it is killed its breakpoints stay in the processes that it probes, which live on with them by the
// guard in them alone, until Recover.
//
// The guardian is this program's executable, executed a second time under the name gokprobe-guardian, when the first process is
// attached to; one for all sessions. It has this process's rights, a session (setsid(2)) of its own, and
// nothing open but the standard error, for one line when it had something to do. It ends with this process.
func GuardianMain() {
	if !guardian.Is() {
		guardian.OptIn()
		return
	}
	guardian.Run(rescue)
	os.Exit(0)
}

// startGuardian sees to it that there is one. What it is to know it has been told before.
func (s *Session) startGuardian() {
	guardian.Start(func(err error) {
		_ = s.do(func() error {
			s.warn("there is no guardian process: if gokprobe is killed, the process has to be put right by gokprobe recover: %v", err)
			return nil
		})
	})
}

// endGuardian is called by the tracer's thread when it lets nothing go any more by its end.
func (s *Session) endGuardian() {
	for d := range s.domains {
		d.told.Release()
	}
	s.tracing.End()
}

// holdOther is called when p leaves the address space: the guardian is to look for another process there.
func (d *domain) holdOther(space *ptrace.Space, p *ptrace.Process) {
	if d.told.PID() != p.PID {
		return
	}
	for _, q := range space.Processes() {
		if q != p {
			d.told.Move(q.PID, q.StartTime())
			return
		}
	}
}

// rescue recovers a process that the tracer held when it died.
func rescue(t guardian.Target) {
	r := &recovery{onStop: guardian.Calm}
	r.tracer = ptrace.NewHere(r)
	p, err := r.tracer.Catch(t.PID, t.Start, t.Death.Over)
	if err == nil {
		err = r.caught(p)
	}
	guardian.Calm()
	family := []int{t.PID}
	clean := err == nil && r.Kept == 0 && !left(t.PID)
	family = append(family, heirs(t)...)
	if clean && len(family) == 1 {
		r.report(t)
		return
	}
	t.Later(func() { // when this thread has ended, and lets go the last that it holds
		for _, pid := range family {
			recoverUntilDone(pid, t)
		}
		r.report(t)
	})
}

// caught undoes what is left in a process whose threads are seized and about to stop. Nobody else traces it, so all regions are of the dead.
func (r *recovery) caught(p *ptrace.Process) error {
	tid, err := p.Space.TID()
	if err != nil {
		return err
	}
	bases, _, err := regionsOf(tid)
	if err != nil {
		return errors.Join(err, r.tracer.Detach(p))
	}
	return r.putBack(p, tid, bases)
}

// report tells the dead tracer's user, where he looks.
func (r *recovery) report(t guardian.Target) {
	if r.Regions > 0 {
		t.Say(fmt.Sprintf("gokprobe was killed; its guardian has put process %d right\n", t.PID))
	}
}

// heirs are processes that were being forked when the tracer died: they have copies of what it had put there.
func heirs(t guardian.Target) (found []int) {
	for todo := []int{t.PID}; len(todo) > 0; todo = todo[1:] {
		tids, err := procfs.Tasks(todo[0])
		if err != nil {
			continue
		}
		for _, tid := range tids {
			children, _ := procfs.Children(todo[0], tid)
			for _, pid := range children {
				if left(pid) && !slices.Contains(found, pid) {
					found, todo = append(found, pid), append(todo, pid)
				}
			}
		}
	}
	return found
}

// left tells whether a process has mappings of ours.
func left(pid int) bool {
	bases, added, err := regionsOf(pid)
	return err == nil && len(bases)+len(added) > 0
}

// Waits between two attempts.
const (
	firstWait = 2 * time.Millisecond
	lastWait  = 5 * time.Second
)

// recoverUntilDone tries again what has to wait: until a signal's handler has returned, vfork(2) has, another tracer is gone. It ends when
// nothing is left, when the process ends, or is refused to us for good.
func recoverUntilDone(pid int, t guardian.Target) {
	life := guardian.Watch(pid)
	defer life.Close()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		done, err := Recover(pid)
		var refused *ptrace.AttachError
		switch {
		case err == nil && done.Kept == 0:
			return
		case errors.As(err, &refused) && refused.Cause != ptrace.CauseTraced:
			return
		}
		t.Mute()
		if life.Ended(wait) {
			return
		}
	}
}
