package fault

import "time"

// A Call is what a decision may depend on.
type Call struct {
	// Process and Thread are whose counters the call counts for; any numbers that
	// tell one from the other.
	Process, Thread int
	// Size is what the call takes of Attr.Space; most calls take 1.
	Size int64
	// Now is the time of the call, for Rate, For and the limit of messages.
	Now time.Time
	// Task is whether the task may fail, for TaskFilter.
	Task bool
	// Stack returns the return addresses of the call's frames, innermost first. It is
	// asked only where a stack filter needs it. If it is nil there are no frames.
	Stack func() []uint64
}

// Reason names the attribute by which a call does not fail.
type Reason string

// In the order in which they are asked.
const (
	ByFailNth     Reason = "fail-nth"    // an earlier call than the one that fails
	ByProbability Reason = "probability" // it is 0, or the random number said no
	ByTaskFilter  Reason = "task-filter" // the task may not fail
	ByTimes       Reason = "times"       // enough calls have failed
	ByFor         Reason = "for"         // the time for failing is over
	ByStack       Reason = "stack"       // the frames: require, reject
	BySpace       Reason = "space"       // something was left of it
	ByWhen        Reason = "when"        // the number of the call
	ByInterval    Reason = "interval"    // not every call
	ByRate        Reason = "rate"        // too many have failed lately
)

// A Decision says whether a call fails.
type Decision struct {
	Fail bool
	// By is the attribute that excluded the call; empty if the call fails.
	By Reason
	// N is the number of the call, from 1, among the eligible calls of its process (or
	// thread). It is 0 for other calls, and from Confirm, which does not see all calls.
	N uint64
	// Times is how much was left of Attr.Times before a call that fails.
	Times int64
	// Log is how much to tell of the failure: 0 nothing, 1 a line, 2 the stack too.
	Log int
}

// Decide decides whether a call fails, in the order of the kernel's should_fail_ex:
// fail-nth, probability 0, task filter, times, stack filter, space, interval, random. The
// first that excludes the call ends the decision, and later ones do not count the call.
//
// Attributes that the kernel does not have come in between: For after times; When after
// space, so that it counts calls that only counters can still exclude; Rate at the end,
// since it limits failures.
func (d *Decider) Decide(c Call) Decision {
	d.Begin(c.Now)
	u := d.unit(c)
	nth := d.failNth(c.Thread, u)
	if by := d.exclude(c, nth != nil); by != "" {
		return Decision{By: by}
	}
	u.eligible++
	d.eligible++
	var by Reason
	if nth != nil {
		if *nth--; *nth > 0 {
			by = ByFailNth
		}
	} else if by = u.count(&d.attr, c.Size); by == "" && !d.all.rate.allows(d.attr.Rate, c.Now) {
		by = ByRate
	}
	if by != "" {
		return Decision{By: by, N: u.eligible}
	}
	return d.fail(c.Now, u.eligible)
}

// exclude returns the attribute that excludes the call before it is counted, or "".
func (d *Decider) exclude(c Call, nth bool) Reason {
	switch a := &d.attr; {
	case nth && d.isOver(c.Now):
		return ByFor
	case nth && !a.stackQualifies(c.Stack):
		return ByStack
	case nth:
		return ""
	case a.Probability == 0:
		return ByProbability
	case a.TaskFilter && !c.Task:
		return ByTaskFilter
	case d.all.times == 0:
		return ByTimes
	case d.isOver(c.Now):
		return ByFor
	case !a.stackQualifies(c.Stack):
		return ByStack
	}
	return ""
}

// stackQualifies is the kernel's fail_stacktrace.
func (a *Attr) stackQualifies(stack func() []uint64) bool {
	found := !a.requires()
	if a.StackDepth == 0 || !a.filtersStack() || stack == nil {
		return found
	}
	frames := stack()
	for _, addr := range frames[:min(len(frames), a.StackDepth)] {
		if a.Reject.Contains(addr) {
			return false
		}
		found = found || a.Require.Contains(addr)
	}
	return found
}

// count asks the attributes that depend on the number of calls.
func (u *unit) count(a *Attr, size int64) Reason {
	if u.space > size {
		u.space -= size
		return BySpace
	}
	u.when++
	if !a.When.Contains(u.when) {
		return ByWhen
	}
	if a.Interval > 1 {
		u.interval++
		if u.interval%a.Interval != 0 {
			return ByInterval
		}
	}
	if a.Probability < 1 {
		u.random++
		if !isChosen(a.Probability, a.Seed, u.random-1) {
			return ByProbability
		}
	}
	return ""
}

// fail counts a failure, of the call number n, and says how much to tell of it.
func (d *Decider) fail(now time.Time, n uint64) Decision {
	log := 0
	if d.attr.Verbose > 0 && d.all.messages.allows(d.attr.VerboseRatelimit, now) {
		log = min(d.attr.Verbose, 2)
	}
	times := d.all.times
	if times > 0 {
		d.all.times--
	}
	return Decision{Fail: true, N: n, Times: times, Log: log}
}
