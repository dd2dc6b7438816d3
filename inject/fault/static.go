package fault

import (
	"errors"
	"math"
)

// A StaticPart is the part of an Attr that counters alone decide, without the thread, the
// time and the stack. So a program in the target can do it. It chooses a call that meets all
// Steps. They are asked in order; each counts the calls that come to it, whether they meet
// it or not, and the first that is not met ends the decision.
type StaticPart struct {
	// Never means that no call is chosen.
	Never bool
	Steps []Step
}

// A Step is a test of n, the number of calls that came to it before. With
// x = n + Add modulo 2⁶⁴; then, if Mod is not 0, x = x modulo Mod; then, if Random,
// x = Mix(Seed, x): the step is met if x <= Max, as unsigned numbers.
type Step struct {
	By     Reason // what of Decide it stands for
	Add    uint64
	Mod    uint64
	Random bool
	Seed   uint64
	Max    uint64
}

// Met reports whether the step is met by a call that comes to it after n others.
func (s Step) Met(n uint64) bool {
	x := n + s.Add
	if s.Mod != 0 {
		x %= s.Mod
	}
	if s.Random {
		x = Mix(s.Seed, x)
	}
	return x <= s.Max
}

// Static returns the static part of a, for calls of size 1. Calls that it chooses are
// to be shown to Decider.Confirm, which decides the rest. The error names the attribute
// that needs every call to be looked at.
func (a Attr) Static() (StaticPart, error) {
	others := a.Probability > 0 && a.Times != 0
	switch {
	case a.PerThread:
		return StaticPart{}, errors.New("calls are counted for each thread")
	case a.filtersStack():
		return StaticPart{}, errors.New("the stack filter needs every call's stack")
	case a.FailNth > 0 && others:
		return StaticPart{}, errors.New("fail-nth comes before the other attributes")
	case a.FailNth > 0:
		return StaticPart{Steps: []Step{between(ByFailNth, a.FailNth, a.FailNth)}}, nil
	case !others:
		return StaticPart{Never: true}, nil
	case a.TaskFilter:
		return StaticPart{}, errors.New("the task filter needs to know every call's thread")
	}
	return StaticPart{Steps: a.steps()}, nil
}

// steps returns one step for each attribute that excludes anything.
func (a *Attr) steps() []Step {
	var steps []Step
	if a.Space > 1 {
		steps = append(steps, between(BySpace, uint64(a.Space), math.MaxUint64))
	}
	if w := a.When; w.First > 0 {
		last := w.Last
		switch {
		case w.Step == 0:
			last = w.First
		case last == 0:
			last = math.MaxUint64
		}
		if w.First > 1 || last != math.MaxUint64 {
			steps = append(steps, between(ByWhen, w.First, last))
		}
		if w.Step > 1 {
			steps = append(steps, Step{By: ByWhen, Mod: w.Step})
		}
	}
	if a.Interval > 1 {
		steps = append(steps, Step{By: ByInterval, Add: 1, Mod: a.Interval})
	}
	if a.Probability < 1 {
		steps = append(steps, Step{By: ByProbability, Random: true, Seed: a.Seed, Max: below(a.Probability) - 1})
	}
	return steps
}

// between is met by the calls that come as first to last, counted from 1.
func between(by Reason, first, last uint64) Step {
	return Step{By: by, Add: 1 - first, Max: last - first}
}

// Confirm decides a call that the static part of the attributes has chosen: by the
// process's times, the time and the rate. Start must have been called when the first
// call could happen, if there is a For: the calls before this one are not known.
func (d *Decider) Confirm(c Call) Decision {
	d.Begin(c.Now)
	var by Reason
	switch a := &d.attr; {
	case d.all.times == 0 && a.FailNth == 0:
		by = ByTimes
	case d.isOver(c.Now):
		by = ByFor
	case a.FailNth == 0 && !d.all.rate.allows(a.Rate, c.Now):
		by = ByRate
	}
	if by != "" {
		return Decision{By: by}
	}
	return d.fail(c.Now, 0)
}
