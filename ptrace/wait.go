package ptrace

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// toUserMode brings a stopped thread out of an event inside a system call to the
// next stop on its way to user mode. It executes no user instruction.
func (t *Tracer) toUserMode(th *Thread) error {
	for {
		switch th.at.stop.Reason {
		case Interrupt, GroupStop, Signal, Breakpoint, SingleStep:
			return nil
		case Exiting, Exited, Killed, Vfork:
			if th.at.stop.Reason == Exiting && th.state == stopped {
				t.enqueue(th) // the stop that was awaited is nobody's else, and its parent would wait for its end for ever
			}
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

// await waits until th stops or ends. Other threads' stops that come up meanwhile are
// recorded and queued. It must be ready for them. A leader's end is not reported, and
// exec does not go on (de_thread in fs/exec.c), before all other threads are reaped. So
// waiting for one thread alone could wait for ever. After Cancel the error is
// ErrGivenUp, and the thread runs. One that is found to be inside vfork(2) is parked.
func (t *Tracer) await(th *Thread) error {
	var late lateVfork
	defer late.end()
	for looks := 0; th.state == running && t.threads[th.TID] == th; {
		if tid, ws, err := t.peek(th.TID, unix.WNOHANG); err == nil && tid == th.TID {
			t.note(tid, ws, th)
			continue
		}
		if looks++; th.at.errand.on && looks < mostLooks {
			continue
		}
		if t.leaves(th) {
			return fmt.Errorf("thread %d: %w", th.TID, ErrGivenUp)
		}
		if looks < yields && len(t.threads) > manyThreads {
			_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			continue
		}
		t.letEnd(th.Proc)
		if !th.seen && late.due(t) {
			if th.parkLate(); th.state != running {
				break
			}
		}
		flags := 0
		if !th.seen && t.bell == nil { // nobody could wake us
			flags = unix.WNOHANG
		}
		tid, ws, err := t.peek(-1, flags)
		if err != nil {
			th.state = exiting // no child is left at all
			break
		}
		if tid == 0 {
			time.Sleep(lookAgain / 4)
			continue
		}
		t.note(tid, ws, th)
	}
	if th.state != stopped || t.threads[th.TID] != th {
		return fmt.Errorf("thread %d: %w", th.TID, ErrExited)
	}
	return nil
}

// Among many threads it takes long to wait for any: the kernel looks at all of them, one after the other. So a thread that was asked to stop, and maybe waits for the
// processor that we are on, is given that some times before.
const (
	manyThreads = 256
	yields      = 8
)

// mostLooks is how often a thread that makes a system call for us is looked at before we sleep: some 20 µs. It stops again at once, as a rule, and to sleep
// and be woken takes longer than most of these calls. On a single processor it could not run meanwhile.
var mostLooks = func() int {
	if runtime.NumCPU() == 1 {
		return 1
	}
	return 40
}()

// lateVfork looks again at a thread that is waited for, and was never seen to stop.
// When it was seized it may have been on its way into vfork(2), behind the place where
// the kernel reports that. Then it can't stop before its child lets it go, and we may
// have stopped the child.
type lateVfork struct {
	looked time.Time
	timer  *time.Timer
}

// lookAgain is how long a thread is waited for before it is looked at, each time.
const lookAgain = 2 * time.Millisecond

// due tells, while threads are waited for, that it is time to look at them.
func (l *lateVfork) due(t *Tracer) bool {
	switch now := time.Now(); {
	case l.timer == nil:
		l.looked, l.timer = now, time.AfterFunc(lookAgain, t.Wake)
		return false
	case now.Sub(l.looked) < lookAgain:
		return false
	default:
		l.looked = now
		l.timer.Reset(lookAgain)
		return true
	}
}

// parkLate parks th if it is such a thread.
func (th *Thread) parkLate() {
	if th.seen || th.state != running {
		return
	}
	if st, err := procfs.ReadStatus(th.Proc.PID, th.TID); err == nil && st.State == 'D' && inVfork(th.Proc.PID, th.TID) {
		th.state, th.at.stop.Reason = parked, Vfork
	}
}

func (l *lateVfork) end() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// letEnd lets threads go on that are stopped on their way out: the leader's end is not
// reported before theirs. The Handler learns nothing more of a process that is left.
// But its leader may still be waited for, if it dies while signals are taken back from
// it (drainResent).
func (t *Tracer) letEnd(p *Process) {
	for _, th := range slices.Collect(maps.Keys(p.ending)) { // among thousands of threads there are few
		if t.threads[th.TID] == th && th.state == stopped && th.at.stop.Reason == Exiting {
			th.queued = false
			if !p.leaving {
				t.tellExit(th)
			}
			t.resume(th, 0)
		}
	}
	for tid, stop := range t.early {
		if st, err := procfs.ReadStatus(tid, 0); stop.Reason == Exiting && err == nil && st.Tgid == p.PID {
			t.letEndUnknown(tid)
		}
	}
}

// letEndUnknown lets a thread end that has never run: an exec or a SIGKILL came while
// it was made. Its creator may be dead, too, and report it no more; and a thread that
// calls exec waits for all others to be gone.
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
func (th *Thread) ip() arch.Addr {
	if r, err := th.hostRegs(); err == nil {
		return r.IP()
	}
	return 0
}
