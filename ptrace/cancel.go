package ptrace

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Giving up an attach. A thread that is asked to stop may not come for as long as it
// likes: it is frozen (cgroups), waits in the kernel where signals do not reach it
// (state D), or vfork(2) was under way when it was seized; and there may be very many.
// So an attach that nobody wants any more ends by itself, without them. The bell wakes
// each wait, which returns ErrGivenUp. Nothing new is begun. LetGo releases the threads
// that can be released at once, and the end of the tracer's thread, in Close, all the
// rest.
//
// That is for the time before anything is patched. The states of threads when we give
// up, and the effect on each:
//
//	not seized yet      nothing has happened to it
//	seized, runs        the kernel lets it go when our thread ends (exit_ptrace); it stops for nothing, and a signal that it has
//	                    reported and nobody has waited for is delivered, as if we were killed (reap.go)
//	asked to stop       its interrupted call returns to the stop, where we have it made again (restart.go). So it is waited
//	                    for a while. After that the request is taken back (__ptrace_unlink clears JOBCTL_TRAP_MASK), never is it left
//	                    stopped; a call that it wakes from much later may end with EINTR, if it is one of the few that are not restarted by the kernel
//	stopped             PTRACE_DETACH, with the signal that it stopped for; out of a group-stop it goes back into it
//	in a call for us    is waited for, whatever else is given up: its registers are ours. It has all signals blocked and the calls do not
//	                    wait, so only a freezer can hold it. Where it has a refuge (refuge.go) it is left to that: it then goes on as it was
//	inside vfork        is not asked to stop; the kernel lets it go where it is
//	being made, forked  is traced from birth, by the same kernel list: let go like the others, before its first instruction or after
//	exiting             ends, with us or without
//
// No thread stands at anything of ours: nothing has been written to code, and no handler of signals been set. Other tracers' requests are not ours to
// undo: there are none, since a thread has one tracer.

// ErrGivenUp is what waiting for the target ends with after Cancel.
var ErrGivenUp = errors.New("the attach was given up")

const (
	// letGoFor is how long LetGo waits for threads that were asked to stop.
	letGoFor = 300 * time.Millisecond
	// callFor is how long after Cancel a system call for us is waited for, if the thread can be left in it.
	callFor = 300 * time.Millisecond
)

// giveUp is how far a tracer has given up.
type giveUp struct {
	level atomic.Int32
	once  sync.Once
	done  chan struct{} // closed by Cancel
	event func()        // see OnEvent
}

// OnEvent sets f to be called at each point where an attach may be given up: before
// each look for a stop, before a thread is seized, and before files are read. It exists
// for tests, and is called before anything is attached to.
func (t *Tracer) OnEvent(f func()) { t.quit.event = f }

func (t *Tracer) event() {
	if t.quit.event != nil {
		t.quit.event()
	}
}

const (
	goesOn    int32 = iota
	givenUp         // nothing waits, but for calls that threads make for us
	givenUpTo       // nor for those of threads with a refuge
)

// Cancel ends all waits of the tracer, present and future: see above. The tracer is
// good for LetGo and Close after that. It must not be called when something of the
// target's was changed that is still to be put back. Safe for concurrent use.
func (t *Tracer) Cancel() {
	t.quit.once.Do(func() {
		close(t.quit.done)
		t.giveUpTo(givenUp)
		time.AfterFunc(callFor, func() {
			if t.quit.level.CompareAndSwap(givenUp, givenUpTo) {
				t.Wake()
			}
		})
	})
}

func (t *Tracer) giveUpTo(level int32) {
	t.quit.level.Store(level)
	t.Wake()
}

// Wake makes the tracer check the condition that it waits for again. Safe for
// concurrent use.
func (t *Tracer) Wake() {
	t.mu.Lock()
	b, closed := t.bell, t.closed
	t.mu.Unlock()
	if b != nil && !closed {
		b.ring()
	}
}

// CancelOn calls Cancel when ctx is done. The function that it returns ends that, and tells whether it was in time: if not, the
// tracer has given up, or is about to.
func (t *Tracer) CancelOn(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, t.Cancel)
}

// GivenUp tells whether Cancel was called.
func (t *Tracer) GivenUp() bool { return t.quit.level.Load() != goesOn }

// Outside runs f on another goroutine. f reads files and touches no traced process. It
// reports whether f is done: after Cancel it is not waited for any more, and goes on
// alone.
func (t *Tracer) Outside(f func()) bool {
	t.event()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return true
	case <-t.quit.done:
		return false
	}
}

// leaves tells of a thread that is waited for that it is not waited for any more.
func (t *Tracer) leaves(th *Thread) bool {
	switch level := t.quit.level.Load(); {
	case level == goesOn:
		return false
	case !th.at.errand.on:
		return true
	default:
		return level == givenUpTo && th.at.errand.sheltered
	}
}

// LetGo releases all processes after Cancel, or those in which nothing was changed, and
// ends the tracer. Threads that were asked to stop, and have not, are waited for a
// moment. The end of the tracer's thread, which Close waits for, releases the rest. No
// stop is waited for any more until then: the signal of one that was would be lost. It
// must be called on the tracer's thread.
func (t *Tracer) LetGo() {
	t.quit.level.Store(goesOn) // which Cancel does not change any more
	late := time.AfterFunc(letGoFor, func() { t.giveUpTo(givenUp) })
	defer late.Stop()
	for {
		t.releaseStopped()
		if !t.anyAsked() || t.GivenUp() {
			break
		}
		tid, ws, err := t.peek(-1, 0)
		if err != nil {
			break
		}
		t.note(tid, ws, nil)
		t.drain()
	}
	t.quit.level.Store(givenUp)
	for _, p := range t.procs {
		t.dropProcess(p)
	}
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
}

// releaseStopped detaches from all threads that have stopped.
func (t *Tracer) releaseStopped() {
	for _, p := range t.procs {
		p.leaving = true
	}
	for th := t.nextBacklog(); th != nil; th = t.nextBacklog() {
		t.dispatch(th)
	}
	for _, th := range t.threads {
		if th.state == stopped && !th.at.stop.Ended() {
			t.detachThread(th)
		}
	}
	for tid := range t.early { // made while we gave up, by threads that are let go: they have stopped before their first instruction
		_ = request(unix.PTRACE_DETACH, tid, 0, 0)
		delete(t.early, tid)
	}
}

// anyAsked tells whether a thread was asked to stop and has not.
func (t *Tracer) anyAsked() bool {
	for _, th := range t.threads {
		if th.state == running && th.asked {
			return true
		}
	}
	return false
}
