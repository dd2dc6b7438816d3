package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gokprobe/gokprobe/internal/guardian"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

// estate is what all recoveries of a guardian may do together.
var estate = sync.OnceValue(NewPurse)

// Rescue recovers a process that the tracer held when it died.
func Rescue(t guardian.Target) {
	r := &recovery{onStop: guardian.Calm, purse: estate()}
	r.tracer = ptrace.NewHere(r)
	p, err := r.tracer.Catch(t.PID, t.Start, t.Death.Over)
	if err == nil {
		err = r.caught(p)
	}
	guardian.Calm()
	family, more := heirs(t)
	if err == nil && r.Kept == 0 && !left(t.PID) && len(family) == 0 {
		r.report(t, nil)
		return
	}
	t.Later(func() { // when this thread has ended, and lets go the last that it holds
		wards := append([]ward{{t.PID, t.Start}}, family...)
		if errors.Is(err, trampoline.ErrTooMuch) {
			wards = family // another attempt would end as this one did
		} else {
			err = nil
		}
		r.report(t, errors.Join(err, recoverUntilDone(wards, t), more))
	})
}

// caught recovers a process whose threads are seized and about to stop. Nobody else
// traces it, so all regions are of the dead.
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

// report writes to the terminal of the dead tracer's user. refused tells the work that
// was not done, and won't be.
func (r *recovery) report(t guardian.Target, refused error) {
	switch {
	case refused != nil:
		t.Say(fmt.Sprintf("gokprobe was killed; its guardian has not put all right in process %d: %v\n", t.PID, refused))
	case r.Regions > 0:
		t.Say(fmt.Sprintf("gokprobe was killed; its guardian has put process %d right\n", t.PID))
	}
}

// ward is a process to recover. Another may have its PID later.
type ward struct {
	pid   int
	start uint64 // as procfs.Stat has it
}

func (w ward) ended() bool {
	st, err := procfs.ReadStat(w.pid, 0)
	if err != nil || st.StartTime != w.start {
		return true
	}
	tids, _ := procfs.Tasks(w.pid)
	return len(tids) <= 1 && (st.State == 'Z' || st.State == 'X') // else its leader has ended before the others
}

// MostHeirs is how many heirs are recovered. Of a tracer that was killed there may be one for each thread that was forking just then; a program can
// make any number, with memory that looks so.
const (
	MostHeirs  = 128
	mostLooked = 8192 // processes that are looked at
)

// heirs returns processes that were being forked when the tracer died: they have copies
// of its changes. Those that the guardian was told of are not among them: they are recovered
// for themselves, at this time. more is not nil if there are too many.
func heirs(t guardian.Target) (found []ward, more error) {
	looked := map[int]bool{}
	for todo := []int{t.PID}; len(todo) > 0; todo = todo[1:] {
		tids, err := procfs.Tasks(todo[0])
		if err != nil {
			continue
		}
		for _, tid := range tids {
			children, _ := procfs.Children(todo[0], tid)
			for _, pid := range children {
				if looked[pid] {
					continue
				}
				if len(found) >= MostHeirs || len(looked) >= mostLooked {
					return found, fmt.Errorf("it has more than %d children with such memory, or %d in all; gokprobe recover does that for one that is named", MostHeirs, mostLooked)
				}
				looked[pid] = true
				if st, err := procfs.ReadStat(pid, 0); err == nil && !t.Tended(pid, st.StartTime) && left(pid) {
					found, todo = append(found, ward{pid, st.StartTime}), append(todo, pid)
				}
			}
		}
	}
	return found, nil
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
	poorWait  = 5 * time.Minute // when the estate is used up
	// stopWait is how long a process's threads may take to stop, where others wait: a frozen one's don't.
	stopWait = 5 * time.Second
)

// attempts keeps those of all targets from being made at once.
var attempts = newTurns(8, stopWait)

// recoverUntilDone tries again while the recovery must wait: for the return of a
// signal's handler or of vfork(2), or for another tracer to go. It ends when nothing is
// left, when the processes have ended, or are refused to us for good. The error tells
// which limit was reached.
func recoverUntilDone(wards []ward, t guardian.Target) error {
	var refused []error
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		if estate().empty() {
			wait = poorWait
		}
		together := len(wards) > 1
		wards = slices.DeleteFunc(wards, func(w ward) bool {
			if w.ended() {
				return true
			}
			done, err := w.recover(together)
			refused = append(refused, err)
			return done
		})
		if len(wards) == 0 {
			return errors.Join(refused...)
		}
		t.Mute()
		life := guardian.Watch(wards[0].pid)
		if life.Ended(wait) && !wards[0].ended() { // it can't be watched
			time.Sleep(wait)
		}
		life.Close()
	}
}

// recover recovers the process once. done is set if another attempt is of no use; the
// error tells which limit was reached.
func (w ward) recover(together bool) (done bool, err error) {
	defer attempts.take()()
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if together {
		ctx, cancel = context.WithTimeout(ctx, stopWait)
	}
	defer cancel()
	r, err := Recover(ctx, w.pid, Options{Purse: estate()})
	var refused *ptrace.AttachError
	switch {
	case err == nil && r.Kept == 0:
		return true, nil
	case errors.As(err, &refused) && refused.Cause != ptrace.CauseTraced:
		return true, nil
	case errors.Is(err, trampoline.ErrTooMuch), errors.Is(err, trampoline.ErrHeader) && !errors.Is(err, ptrace.ErrNoThread) && (r == nil || r.Kept == 0): // of another version, or forged
		return true, fmt.Errorf("process %d: %w", w.pid, err)
	}
	return false, nil
}
