// Package event is what a hit becomes on its way out: a record, and the printers
// that write records as text for people and as JSON Lines for programs.
//
// It is a leaf: whoever makes records has decided everything, a printer only
// writes. All strings of a record may come from the target and are not trusted:
// no printer lets one drive a terminal, break a line or make JSON invalid.
package event

import (
	"time"

	"github.com/gokprobe/gokprobe/arch"
)

// Arg is one named value that a probe fetched.
type Arg struct {
	Name string

	// Value is an int64, uint64, float64, bool, string, json.Marshaler, or
	// nil when it could not be fetched. Another type counts as nil.
	Value any

	// Text is the value as people read it, when that differs from the plain
	// form of Value: an address in hexadecimal, an enumerator, "(fault)".
	Text string
}

// Frame is one frame of a backtrace.
type Frame struct {
	Addr   arch.Addr
	Symbol string // with offset, as in "main+0x12"; empty if unknown
	Module string // base name of the mapped file
	File   string // source file, empty if unknown
	Line   int    // from 1; 0 if unknown
}

// ReturnSuffix ends the name of a probe that the user placed at a function's return.
const ReturnSuffix = "%return"

// Hit is one thread reaching one probe, or returning from one followed call.
type Hit struct {
	Time     time.Time
	PID, TID int
	Comm     string // name of the thread
	Probe    string // as the user named it
	Kind     string // "kprobe", "kretprobe", "jprobe"
	Addr     arch.Addr
	Symbol   string  // with offset, as in "foo+0x0"
	Module   string  // base name of the mapped file
	Args     []Arg   // in the user's order
	Stack    []Frame // nil if no stack was asked for

	// Ret, Duration and Results are set on the hits of a kretprobe only: the
	// integer return value, nil if the function is known to return none; the time
	// from entry to return; and what the function returned by its debug
	// information: nil if that is not known, empty if it returns nothing.
	Ret      *int64
	Duration *time.Duration
	Results  []Arg

	// Injected is what was done to the call; nil where nothing was.
	Injected *Injected
}

// Injected is what was done to a call that was made to fail.
type Injected struct {
	N       uint64   // its number among those of the fault, from 1
	Actions []string // in their order
	DryRun  bool     // it would have been done
}

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
	PID    int
	Probes []ProbeSummary
	Faults []FaultSummary // nil if nothing was to be injected
	Lost   uint64         // records that could not be written
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
