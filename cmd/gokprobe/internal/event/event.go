// Package event prints hits and summaries: as text for people, and as JSON Lines for programs.
//
// A printer only writes: the code that makes a record decides what is in it. All strings of a
// record may come from the target and are not trusted: a printer escapes them, so that they
// can't control a terminal, break a line or make JSON invalid.
package event

import (
	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/trace"
)

// The parts of a hit are those of package trace.
type (
	// Arg is one named value that a probe fetched.
	Arg = trace.Arg
	// Frame is one frame of a backtrace.
	Frame = trace.Frame
	// Hit is one thread reaching one probe, or returning from one followed call.
	Hit = trace.Hit
	// Injected lists the actions on a call that was made to fail.
	Injected = trace.Injected
)

// ProbeSummary holds the final counts of one probe.
type ProbeSummary struct {
	Probe, Kind string
	Addr        arch.Addr
	Symbol      string
	Hits        uint64 // handler runs
	NMissed     uint64 // hits whose handler could not run
	Mechanism   string // "int3", "boosted", "optimized"
	Reason      string // why it is not optimized; empty if it is
	// Decides says who decides whether a call is injected into, "target" or "tracer"; empty if the probe injects nothing.
	Decides string
	Misses  []Loss // NMissed by why
	Active  uint64 // calls that had not returned at the end
}

// Loss is how many were lost for one reason.
type Loss struct {
	Reason string
	N      uint64
}

// ProcessSummary holds the final counts of one process of several. If the process ended before
// the session, Probes has only the probes that were hit.
type ProcessSummary struct {
	PID           int
	Comm          string
	Hits, NMissed uint64
	Lost          uint64
	Probes        []ProbeSummary
	Faults        []FaultSummary // nil without rules that inject
}

// FaultSummary holds the final counts of one rule that injects.
type FaultSummary struct {
	Fault    string // as the user named it
	Calls    uint64 // that reached its probes
	Eligible uint64 // of these, met its condition
	Injected uint64
	Refused  uint64 // were chosen, but could not be changed
	Missed   uint64 // hits that could not be handled
	Actions  []ActionSummary
	Seed     uint64
	DryRun   bool
}

// ActionSummary is how often an action was done.
type ActionSummary struct {
	Action string
	N      uint64
}

// Summary closes a session's output.
type Summary struct {
	PID    int // of the process; not of several
	Probes []ProbeSummary
	// Processes are those of a session with several, in the order in which they joined; Probes and Faults tell of all together then.
	Processes []ProcessSummary
	Faults    []FaultSummary // nil if nothing was to be injected
	// Patterns are told of by the caller.
	Patterns []trace.PatternStats
	Lost     uint64 // records that could not be written
	Losses   []Loss // Lost by why
	Skipped  []Loss // places that can't be probed, of those that patterns stand for
	// Unoptimized is probes whose hits stop the thread, though others are optimized, by why, the most first.
	Unoptimized []Loss
}

// A Printer writes records. Its methods may be called concurrently. Each record
// reaches the underlying writer in one Write, so that lines of several printers
// on one file do not interleave.
//
// An error of the underlying writer is returned, wrapped; the record counts as
// lost, and the printer can be used further.
type Printer interface {
	Hit(*Hit) error
	Summary(*Summary) error
	// Lost counts the hits that could not be written. Summary does not look at
	// it: it prints the Lost it is given.
	Lost() uint64
}
