// Package fault decides which calls fail. It has the attributes of the kernel's fault
// injection and decides in the kernel's order (lib/fault-inject.c,
// Documentation/fault-injection). It adds strace's when= expression, limits by rate and
// time, and random numbers that depend on a seed alone. It does not make calls fail;
// package inject does.
package fault

import (
	"fmt"
	"math"
	"time"
)

// Attr says which calls fail. The zero value lets none fail; Default and Always
// are what to begin with.
type Attr struct {
	// Probability is the share of calls that fail, 0 to 1, among those that no other
	// attribute excludes. At 0 only FailNth can make a call fail.
	Probability float64
	// Interval lets every Interval-th call fail. 0 and 1 mean each.
	Interval uint64
	// Times is how many calls fail at most, in all processes together. -1 means any
	// number.
	Times int64
	// Space must be used up, by the Sizes of calls, before a call fails.
	Space int64
	// Verbose is how much to print of a failure: 0 nothing, 1 a line, 2 the stack too.
	Verbose          int
	VerboseRatelimit Ratelimit // limits how often Verbose prints
	// TaskFilter means that calls can fail only if Call.Task is set.
	TaskFilter bool
	// StackDepth is how many frames Require and Reject look at, 32 at most.
	// A call with a frame in Reject does not fail. A call without a frame in Require
	// does not fail either; a zero Require is everything. (The kernel's zero range is
	// an empty one; here Range{1, 1} is.) With depth 0 nothing is looked at, and
	// nothing fails if something is required.
	StackDepth      int
	Require, Reject Range
	// FailNth, if it is not 0, lets the FailNth-th call fail, and none before it. It
	// counts calls whose stack and time (For) qualify, and ignores the other
	// attributes. After that call the others decide; with Probability 0 no other call
	// fails. (In the kernel it belongs to a task; see Decider.SetFailNth.)
	FailNth uint64
	// When chooses calls by their number, as strace's when= does.
	When When
	// Rate limits how many calls fail within any stretch of time.
	Rate Rate
	// For is the time after which no call fails any more. It begins with Decider.Start,
	// or with the first call if Start was not called. 0 means no limit.
	For time.Duration
	// PerThread counts the calls, and the random numbers, of each thread by
	// themselves, instead of each process's. Times and Rate are common to all.
	PerThread bool
	// Seed determines the random numbers.
	Seed uint64
}

// Range is addresses from Start up to End, not included.
type Range struct{ Start, End uint64 }

// Contains reports whether addr is in the range.
func (r Range) Contains(addr uint64) bool { return r.Start <= addr && addr < r.End }

// Everything is the kernel's range of all addresses. As Attr.Require it is the same as
// the zero Range.
var Everything = Range{0, math.MaxUint64}

// MaxStackDepth is how many frames a stack filter looks at at most
// (MAX_STACK_TRACE_DEPTH of lib/fault-inject.c).
const MaxStackDepth = 32

// Ratelimit lets Burst messages through in each Interval; an Interval of 0 lets all
// through (lib/ratelimit.c).
type Ratelimit struct {
	Interval time.Duration
	Burst    int
}

// Default returns the kernel's attributes before anybody sets them
// (FAULT_ATTR_INITIALIZER): nothing fails until there is a probability, and then
// one call.
func Default() Attr {
	return Attr{
		Interval: 1, Times: 1,
		Verbose: 2, VerboseRatelimit: Ratelimit{Burst: 10},
		StackDepth: MaxStackDepth, Require: Everything,
	}
}

// Always returns attributes by which every call fails.
func Always() Attr {
	a := Default()
	a.Probability, a.Times = 1, -1
	return a
}

// Never reports whether no call can fail by a.
func (a Attr) Never() bool { return a.FailNth == 0 && (a.Probability == 0 || a.Times == 0) }

// filtersStack reports whether a call's stack matters.
func (a Attr) filtersStack() bool { return a.requires() || a.Reject != Range{} }

func (a Attr) requires() bool { return a.Require != Range{} && a.Require != Everything }

// Check returns an error if an attribute has an impossible value.
func (a Attr) Check() error {
	switch {
	case !(a.Probability >= 0 && a.Probability <= 1):
		return fmt.Errorf("the probability %v is not between 0 and 1", a.Probability)
	case a.Times < -1:
		return fmt.Errorf("times %d: no call can fail that often; -1 stands for any number of calls", a.Times)
	case a.Verbose < 0:
		return fmt.Errorf("verbose %d is negative; 0 tells nothing, 1 a line, 2 the stack too", a.Verbose)
	case a.VerboseRatelimit.Interval < 0 || a.VerboseRatelimit.Burst < 0:
		return fmt.Errorf("the rate limit of messages, %d in %v, is negative", a.VerboseRatelimit.Burst, a.VerboseRatelimit.Interval)
	case a.StackDepth < 0 || a.StackDepth > MaxStackDepth:
		return fmt.Errorf("the stack trace depth %d is not between 0 and %d", a.StackDepth, MaxStackDepth)
	case a.For < 0:
		return fmt.Errorf("the time for which calls fail, %v, is negative", a.For)
	}
	if err := a.When.check(); err != nil {
		return err
	}
	return a.Rate.check()
}
