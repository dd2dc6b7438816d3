package inject

import (
	"slices"
	"sync"
	"time"

	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/kprobes"
)

// Decider decides which calls fail. Rules may share one (Rule.Decider), and its attributes may change while faults are armed.
// Counters in the target go on through such a change if their own attributes stay the same and some fault remains. All
// methods may be called from any goroutine, also from handlers.
type Decider struct {
	mu      *sync.Mutex // shared by all Deciders of a Group; held only for moments, since hits wait for it
	decider *fault.Decider
	counted tally // by programs
}

// NewDecider makes a Decider. The error is that of a.Check.
func NewDecider(a fault.Attr) (*Decider, error) {
	d, err := fault.New(a)
	if err != nil {
		return nil, err
	}
	return &Decider{mu: &sync.Mutex{}, decider: d}, nil
}

// beside makes a Decider for another process: see fault.Decider.Beside.
func (d *Decider) beside(a fault.Attr) (*Decider, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	other, err := d.decider.Beside(a)
	if err != nil {
		return nil, err
	}
	return &Decider{mu: d.mu, decider: other}, nil
}

// Do calls do, and no call is decided meanwhile. do must not keep the fault.Decider, nor call methods of a Decider or a Fault. If it changes attributes
// of a Decider that rules share, their faults must be updated afterwards: see Fault.Current.
func (d *Decider) Do(do func(d *fault.Decider)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	do(d.decider)
}

// isDone reports whether no further call can fail by the present attributes.
func (d *Decider) isDone() (done bool) {
	d.Do(func(d *fault.Decider) { done = d.Done(time.Now()) })
	return done
}

// steps returns the steps of the decision that programs in the target can do for a rule, by the present attributes. static is
// false if they can't take part.
func (d *Decider) steps(r *Rule) (steps []fault.Step, static bool) {
	var a fault.Attr
	waiting := false
	d.Do(func(d *fault.Decider) { a, waiting = d.Attr(), d.Waiting() })
	part, err := a.Static()
	switch {
	case err != nil, part.Never, waiting:
		return nil, false
	case r.Decider != nil:
		return part.Steps, a.Space <= 1 // how much of it is left may be asked for
	}
	return part.Steps, r.Size == "" || a.Space <= 0
}

// tally returns the counting of steps: the present one if the steps are the same, else a new one.
func (d *Decider) tally(steps []fault.Step) tally {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.counted.steps, steps) {
		d.counted = tally{steps: steps, state: &kprobes.SharedState{}}
	}
	now := d.counted
	if len(steps) > 0 {
		now.began = now.state.Cell(0)
	}
	return now
}

// Current reports whether the programs of the fault's probes fit the present attributes of its Decider. If they do, Start
// applies the rest of a change; else the fault must be replaced (Injector.Replace).
func (f *Fault) Current() bool {
	steps, static := f.decider.steps(&f.rule)
	if !static {
		steps = nil
	}
	return slices.Equal(steps, f.sum.steps)
}
