package fault

import "time"

// A Decider decides call after call by an Attr. It must not be used concurrently. Deciders made by
// Beside share state, so only one of them may be used at a time.
type Decider struct {
	attr     Attr // without Times
	all      *common
	units    map[int]*unit   // by process, or with Attr.PerThread by thread
	nth      map[int]*uint64 // by thread: the calls that SetFailNth still counts down
	eligible uint64          // sum of all units, also of forgotten ones
}

// common is the state that all processes share, also through several Deciders.
type common struct {
	times    int64     // left of Attr.Times
	start    time.Time // of Attr.For
	rate     window
	messages limiter
}

// A unit holds the counters of one process, or with Attr.PerThread of one thread.
type unit struct {
	space    int64  // left of Attr.Space
	failNth  uint64 // left of Attr.FailNth
	eligible uint64 // calls that only counting could exclude
	when     uint64 // of these, calls that passed space
	interval uint64 // of these, calls that passed when, if there is an interval
	random   uint64 // random numbers used
}

// New returns a Decider. The error is that of a.Check.
func New(a Attr) (*Decider, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	return newDecider(a, &common{times: a.Times}), nil
}

func newDecider(a Attr, all *common) *Decider {
	return &Decider{attr: a, all: all, units: map[int]*unit{}, nth: map[int]*uint64{}}
}

// Beside returns a Decider for other processes. It shares with d the state that Attr has for all processes together: how
// many Times are left, the counts of Rate and VerboseRatelimit, and the beginning of For.
func (d *Decider) Beside(a Attr) (*Decider, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	return newDecider(a, d.all), nil
}

// Start begins the time of Attr.For.
func (d *Decider) Start(now time.Time) { d.all.start = now }

// Begin begins the time of Attr.For unless it has begun. It returns how much of it is left.
func (d *Decider) Begin(now time.Time) time.Duration {
	if d.all.start.IsZero() {
		d.all.start = now
	}
	return d.attr.For - now.Sub(d.all.start)
}

// Attr returns the attributes, with Times as it is left.
func (d *Decider) Attr() Attr {
	a := d.attr
	a.Times = d.all.times
	return a
}

// Update replaces the attributes. As in the kernel the counters go on, but for those
// of an attribute that changes: Space, FailNth, When, Rate, For, Seed and PerThread
// begin anew.
func (d *Decider) Update(a Attr) error {
	if err := a.Check(); err != nil {
		return err
	}
	old := d.attr
	d.attr, d.all.times = a, a.Times
	if a.PerThread != old.PerThread {
		clear(d.units)
	}
	if a.Rate != old.Rate {
		d.all.rate = window{}
	}
	if a.For != old.For {
		d.all.start = time.Time{}
	}
	for _, u := range d.units {
		u.update(&old, &a)
	}
	return nil
}

func (u *unit) update(old, a *Attr) {
	if a.Space != old.Space {
		u.space = a.Space
	}
	if a.FailNth != old.FailNth {
		u.failNth = a.FailNth
	}
	if a.When != old.When {
		u.when = 0
	}
	if a.Seed != old.Seed {
		u.random = 0
	}
}

// SetSpace sets how much is left of Attr.Space, for all processes and threads.
func (d *Decider) SetSpace(n int64) {
	d.attr.Space = n
	for _, u := range d.units {
		u.space = n
	}
}

// Space returns what a process, or with PerThread a thread, has left of Attr.Space.
func (d *Decider) Space(id int) int64 {
	if u := d.units[id]; u != nil {
		return u.space
	}
	return d.attr.Space
}

// SetFailNth lets the n-th call of the thread from now on fail, and none before it, as
// the kernel's /proc/PID/task/TID/fail-nth does: Attr.FailNth for one thread. 0 takes
// that back.
func (d *Decider) SetFailNth(thread int, n uint64) {
	if n == 0 {
		delete(d.nth, thread)
		return
	}
	d.nth[thread] = &n
}

// FailNth returns how many calls SetFailNth still counts down: 0 if its call has failed.
func (d *Decider) FailNth(thread int) uint64 {
	if n := d.nth[thread]; n != nil {
		return *n
	}
	return 0
}

// Waiting reports whether a call of some thread is still to fail by SetFailNth.
func (d *Decider) Waiting() bool {
	for _, n := range d.nth {
		if *n > 0 {
			return true
		}
	}
	return false
}

// Forget drops the counters of a process or thread that has ended: a new one may get its
// number.
func (d *Decider) Forget(id int) {
	delete(d.units, id)
	delete(d.nth, id)
}

// Eligible returns how many calls were counted, in all processes: calls that task, times,
// time and stack did not exclude.
func (d *Decider) Eligible() uint64 { return d.eligible }

// Done reports whether no call can fail any more, until Update, SetFailNth or Start.
func (d *Decider) Done(now time.Time) bool {
	if d.isOver(now) {
		return true
	}
	return d.Attr().Never() && !d.Waiting()
}

// isOver reports whether the time of Attr.For is over.
func (d *Decider) isOver(now time.Time) bool {
	return d.attr.For > 0 && !d.all.start.IsZero() && now.Sub(d.all.start) >= d.attr.For
}

// unit returns the counters of the call's process, or with Attr.PerThread of its thread.
func (d *Decider) unit(c Call) *unit {
	key := c.Process
	if d.attr.PerThread {
		key = c.Thread
	}
	u := d.units[key]
	if u == nil {
		u = &unit{space: d.attr.Space, failNth: d.attr.FailNth}
		d.units[key] = u
	}
	return u
}

// failNth returns the counter that alone decides, if there is one: the thread's own, or
// else that of the attributes.
func (d *Decider) failNth(thread int, u *unit) *uint64 {
	if n := d.nth[thread]; n != nil && *n > 0 {
		return n
	}
	if u.failNth > 0 {
		return &u.failNth
	}
	return nil
}

// A limiter is the kernel's ___ratelimit (lib/ratelimit.c).
type limiter struct {
	begin   time.Time
	printed int
}

// allows reports whether a message may be printed now. If so, it counts the message.
func (l *limiter) allows(r Ratelimit, now time.Time) bool {
	if r.Interval == 0 {
		return true
	}
	if l.begin.IsZero() || now.Sub(l.begin) > r.Interval {
		l.begin, l.printed = now, 0
	}
	if l.printed >= r.Burst {
		return false
	}
	l.printed++
	return true
}
