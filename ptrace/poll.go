package ptrace

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// Poller answers threads that call the tracer without stopping: they leave a note in
// shared memory and spin for the answer, if the tracer is said to look, for a bounded
// while; else they trap. Its methods run on the tracer's thread.
type Poller interface {
	// Look tells the threads whether the tracer looks.
	Look(bool)
	// Poll answers one thread and reports whether there was one.
	Poll() bool
}

// poll decides when the tracer looks: it costs a CPU. A look begins with a hit that would
// have been cheaper, had the tracer looked, and ends when nothing has come for a while.
//
// No wake-up can be lost, since nobody relies on one: a thread that leaves its note just
// when the tracer goes to sleep takes it back when its patience ends, and traps, which wakes
// the tracer. That the tracer looks once more, after it has said that it does not any more,
// only makes this rare.
//
// Whether looking pays is measured: hits must come at a higher rate than when they
// trap. They do not if the thread and the tracer share a CPU, if the tracer loses its
// own to others, or if hits are rare anyway. Then the next look waits, so that only a
// small share of the time is wasted.
type poll struct {
	poller  Poller
	always  bool
	looking bool
	wish    *Thread // whose hit asks for a look
	apart   int     // the CPU that the tracer keeps away from, -1 if none

	trapped  time.Duration // from hit to hit when they trap; 0 if not known
	measured time.Time     // when that was learnt
	skip     int           // hits to come before it is; 0 if nothing is measured

	began time.Time // this look
	paid  bool      // it has, so far
	since time.Time // the hits that follow
	hits  int

	pause time.Duration // after the last look; 0 if that has paid
	until time.Time     // when it is over
}

const (
	window    = 50 * time.Microsecond // a look lasts as long after the last answer
	trial     = 2 * time.Millisecond  // after which a look must have paid
	remeasure = 200 * time.Millisecond
	firstHits = 32 // that trap after another look; they are not measured
	someHits  = 32 // that are, several times
	samples   = 4
	pollRound = 32 // polls between two looks for stops, if nothing comes
	busyRound = 16 // answers between two looks for stops

	// A look that has not paid is followed by a pause of at least so many times its length.
	waste    = 20
	minPause = time.Millisecond
	maxPause = 5 * time.Second
)

// SetPoller installs p; nil ends it. Call it on the tracer's thread.
func (t *Tracer) SetPoller(p Poller) {
	t.endLook()
	t.poll = poll{poller: p, apart: -1, skip: firstHits + samples*someHits, pause: minPause}
}

// PollAlways makes the tracer look after each hit, whether that pays or not. It exists
// for tests.
func (t *Tracer) PollAlways() { t.poll.always, t.poll.skip = true, 0 }

// WouldPoll tells of a breakpoint, which the Handler is told of, that it stands for a note of
// the thread's.
func (t *Tracer) WouldPoll(th *Thread) {
	p := &t.poll
	if p.poller == nil {
		return
	}
	if p.hits++; p.looking {
		return
	}
	now := time.Now()
	if p.skip > 0 {
		if p.skip--; p.skip%someHits == 0 {
			p.sample(now)
		}
		if p.skip > 0 {
			return
		}
	}
	if p.always || !now.Before(p.until) {
		p.wish = th
		return
	}
	p.skip = someHits
}

// sample learns the cost of hits that trap. Other work of the machine makes single
// samples too high, so what counts is the lowest of some.
func (p *poll) sample(now time.Time) {
	if p.skip < samples*someHits {
		cost := now.Sub(p.since) / someHits
		if p.trapped == 0 || cost < p.trapped {
			p.trapped = cost
		}
	}
	p.measured, p.since = now, now
}

// active tells whether the tracer polls, or will with the next hit.
func (p *poll) active() bool { return p.looking || p.poller != nil && p.pause == 0 }

// waitAny waits for any stop, as peek(-1, 0) does, and answers polled threads
// meanwhile. tid is 0 if there is something to do before that.
func (t *Tracer) waitAny() (tid int, ws unix.WaitStatus, err error) {
	p := &t.poll
	if p.wish != nil && !p.looking {
		t.beginLook(p.wish)
	}
	p.wish = nil
	if !p.looking {
		return t.peek(-1, 0)
	}
	return t.look()
}

// look polls until there is a stop, other work (tid is 0), or nothing any more, when it
// ends looking.
func (t *Tracer) look() (tid int, ws unix.WaitStatus, err error) {
	p := &t.poll
	last := time.Now()
	for idle, busy := 1, 0; ; idle++ {
		if p.poller.Poll() {
			p.hits++
			idle, busy = 0, busy+1
			if !p.looking || t.rung || t.deaf || len(t.backlog) > 0 {
				return 0, 0, nil
			}
			if busy < busyRound {
				continue
			}
		} else if idle%pollRound != 0 {
			continue
		}
		tid, ws, err = t.peek(-1, unix.WNOHANG)
		now := time.Now()
		if tid != 0 || err != nil {
			if p.vain(now) {
				t.endLook()
			}
			return tid, ws, err
		}
		if busy > 0 {
			last, busy = now, 0
		}
		if p.vain(now) || now.Sub(last) > window {
			t.endLook()
			return 0, 0, nil
		}
	}
}

// vain judges the look every now and then.
func (p *poll) vain(now time.Time) bool {
	if now.Sub(p.since) < trial {
		return false
	}
	p.paid = p.pays(now)
	p.since, p.hits = now, 0
	return !p.always && (!p.paid || now.Sub(p.measured) > remeasure)
}

// pays tells whether hits have come at a rate that is higher by half than that of hits that
// trap.
func (p *poll) pays(now time.Time) bool {
	return p.hits > 2 && now.Sub(p.since)*3/2 < p.trapped*time.Duration(p.hits)
}

// beginLook is called when th has hit.
func (t *Tracer) beginLook(th *Thread) {
	p := &t.poll
	if t.cpu.all.Count() < 2 || runtime.GOMAXPROCS(0) < 2 {
		p.fail(time.Now(), maxPause)
		return
	}
	if t.cpu.pinned >= 0 || p.apart < 0 {
		t.keepApart(th)
	}
	p.began = time.Now()
	p.looking, p.paid, p.since, p.hits = true, false, p.began, 0
	p.poller.Look(true)
}

// keepApart moves the tracer to another CPU than the one that th is on.
func (t *Tracer) keepApart(th *Thread) {
	st, err := procfs.ReadStat(th.Proc.PID, th.TID)
	if err != nil {
		return
	}
	others := t.cpu.all
	others.Clear(st.Processor)
	if unix.SchedSetaffinity(0, &others) == nil {
		t.cpu.pinned, t.poll.apart = -1, st.Processor
	}
}

// fail makes the next look wait after one that took as long as spent.
func (p *poll) fail(now time.Time, spent time.Duration) {
	p.pause = min(max(2*p.pause, waste*spent, minPause), maxPause)
	p.until = now.Add(p.pause)
	p.skip, p.hits, p.trapped = firstHits+samples*someHits, 0, 0
}

// endLook ends looking, and judges whether it was worth it.
func (t *Tracer) endLook() {
	p := &t.poll
	if !p.looking {
		return
	}
	p.poller.Look(false)
	p.looking = false
	for p.poller != nil && p.poller.Poll() {
		p.hits++
	}
	now := time.Now()
	if p.always || p.paid || p.pays(now.Add(-window)) {
		p.pause, p.hits = 0, 0
		if now.Sub(p.measured) > remeasure {
			p.skip, p.trapped = firstHits+samples*someHits, 0
		}
		return
	}
	p.fail(now, now.Sub(p.began))
	if p.apart >= 0 && unix.SchedSetaffinity(0, &t.cpu.all) == nil {
		p.apart = -1
	}
}

// Halt stops a thread that runs while a Poller's method is about it. It is then as if a Handler
// method were about its stop: its registers can be read and changed and it can make calls.
// A signal that it stopped for waits. ErrExited means that it is gone, or about to.
func (th *Thread) Halt() error {
	t := th.Proc.tracer
	if th.state == running {
		if err := th.interrupt(); err != nil {
			return err
		}
		t.settle(th)
	}
	if err := t.stopHere(th); err != nil {
		return err
	}
	if !th.usable() || t.threads[th.TID] != th {
		return th.gone(unix.ESRCH)
	}
	th.queued, th.frozen = false, false
	if th.at.stop.Reason == Signal {
		if info, err := th.siginfo(); err == nil {
			th.hold(info)
		}
	}
	th.handled = true
	return nil
}

// Proceed resumes a thread after Halt.
func (th *Thread) Proceed() {
	t := th.Proc.tracer
	th.handled = false
	if t.threads[th.TID] != th || th.state != stopped {
		return
	}
	switch th.at.stop.Reason {
	case Breakpoint, SingleStep:
		t.restoreTrap(th)
	case GroupStop:
		t.listen(th)
		return
	}
	th.resendTrap()
	th.release()
	t.resume(th, th.takeHeld())
}

// Shared tells whether several processes run in the address space, as after vfork(2).
func (s *Space) Shared() bool { return len(s.procs) > 1 }
