// Package event prints hits and summaries: as text for people, and as JSON Lines for programs.
//
// Whoever makes records has decided everything, a printer only
// writes. All strings of a record may come from the target and are not trusted:
// no printer lets one drive a terminal, break a line or make JSON invalid.
package event

import (
	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/trace"
)

// What hits are made of is package trace's.
type (
	// Arg is one named value that a probe fetched.
	Arg = trace.Arg
	// Frame is one frame of a backtrace.
	Frame = trace.Frame
	// Hit is one thread reaching one probe, or returning from one followed call.
	Hit = trace.Hit
	// Injected is what was done to a call that was made to fail.
	Injected = trace.Injected
)

// ProbeSummary is what one probe did in its life.
type ProbeSummary struct {
	Probe, Kind string
	Addr        arch.Addr
	Symbol      string
	Hits        uint64 // handler runs
	NMissed     uint64 // hits whose handler could not run
	Mechanism   string // "int3", "boosted", "optimized"
	Reason      string // why it is not optimized; empty if it is
	// Decides is who looks at the calls that are not injected, "target" or "tracer"; empty for a probe that injects nothing.
	Decides string
}

// ProcessSummary is what became of the probes in one process of several. Of one that has ended, Probes are those that were hit.
type ProcessSummary struct {
	PID           int
	Comm          string
	Hits, NMissed uint64
	Lost          uint64
	Probes        []ProbeSummary
	Faults        []FaultSummary // nil if nothing was to be injected
}

// FaultSummary is what became of the calls that a fault was injected into.
type FaultSummary struct {
	Fault    string // as the user named it
	Calls    uint64 // came to its probes
	Eligible uint64 // met its condition
	Injected uint64
	Refused  uint64 // were to be injected, and could not
	Missed   uint64 // could not be looked at
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
	Lost      uint64         // records that could not be written
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
