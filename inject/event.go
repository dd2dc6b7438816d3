package inject

import (
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// Event is one injected call.
type Event struct {
	Fault    *Fault
	N        uint64 // its number among those of the fault, from 1
	Time     time.Time
	PID, TID int
	Comm     string // name of the thread
	Place    string // the function or instruction, as the user named it
	Addr     arch.Addr
	Symbol   string // with offset
	Module   string // base name of the mapped file
	// What lists the actions that were taken, or with Rule.DryRun would have been, in order and with their values.
	What []string
	// Args and Values are those of Rule.Args.
	Args   []fetch.Arg
	Values []fetch.Value
	// Log is how much to print, by Attr.Verbose: 0 nothing, 1 a line, 2 the Stack too.
	Log   int
	Stack []symbols.Frame // the innermost frame first
}

// Stats counts a fault's calls.
type Stats struct {
	// Calls came to the places while the probes were armed.
	Calls uint64
	// Eligible met the condition, and were counted by the attributes. If the rule has a Decider for which the target counts, the
	// number is that of all rules that share it.
	Eligible uint64
	// Injected were changed by the rule's actions; with Rule.DryRun they would have been.
	Injected uint64
	// Refused were chosen, but it could not be done to them.
	Refused uint64
	// Missed could not be looked at: handlers ran in their threads or, with Rule.After, they did not return or were too many; or the target had chosen them,
	// and they came when the fault had ended.
	Missed uint64
	Misses kprobes.Misses // Missed by why
	// Actions counts by Rule.Do how often each was done.
	Actions []ActionStats
	// Places are also the patterns that wait, and have no place.
	Places []PlaceStats
	// Patterns that waited for programs, under Follow and AwaitPrograms.
	Patterns []trace.PatternStats
}

// ActionStats is how often an action was done.
type ActionStats struct {
	Action string
	N      uint64
}

// PlaceStats is one place of a fault.
type PlaceStats struct {
	Name      string
	Addr      arch.Addr
	Symbol    string // with offset
	Module    string
	Calls     uint64
	Missed    uint64
	Misses    kprobes.Misses     // Missed by why
	Mechanism kprobes.Mechanism  // none of one that has no place, or is a system call
	Way       kprobes.SyscallWay // of system calls: whether probes or ptrace sees them
	Reason    string             // why there is no jump, or no probe
	Waiting   bool               // for its library
	Gone      bool               // with its code, or its process
	// Decides says who decides about calls that pass: "target", and they don't stop, or "tracer". It is empty if none pass.
	Decides string
}

// By names the mechanism that sees the place's calls. It is empty if there is no probe.
func (p PlaceStats) By() string {
	if p.Way != kprobes.SyscallAuto {
		return p.Way.String()
	}
	return p.Mechanism.String()
}

// Stats returns the counts up to now, or after the fault's end its last counts.
func (f *Fault) Stats() Stats {
	out := f.Counts()
	for _, p := range f.places.All() {
		out.Places = append(out.Places, p.stats())
	}
	f.waits.Look()
	for _, at := range f.waits.Without() {
		out.Places = append(out.Places, PlaceStats{Name: at.Place, Reason: at.Reason, Waiting: at.Waiting, Gone: at.Gone})
	}
	out.Patterns = f.waits.Found()
	if len(out.Places) == 1 {
		out.Places[0].Calls = out.Calls
	}
	return out
}

// Counts is Stats without the Places. It waits for no thread of the session, so handlers of other sessions may ask for it.
func (f *Fault) Counts() Stats {
	f.mu.Lock()
	out := Stats{Eligible: f.eligible + f.eligibleInTarget(), Injected: f.injected, Refused: f.refused}
	for i, a := range f.rule.Do {
		out.Actions = append(out.Actions, ActionStats{f.described(i, a), f.did[i]})
	}
	f.mu.Unlock()
	for _, p := range f.places.All() {
		var at PlaceStats
		p.count(&at)
		out.Calls, out.Missed, out.Misses = out.Calls+at.Calls, out.Missed+at.Missed, out.Misses.Plus(at.Misses)
	}
	if !f.shares() { // the last that were chosen may have met no handler any more
		out.Calls = max(out.Calls, out.Eligible)
	}
	return out
}

// described is the text of an action in events, if it is the same at all places.
func (f *Fault) described(i int, a Action) string {
	places := f.places.All()
	for n, p := range places {
		if p.effects[i].would != places[0].effects[i].would {
			return a.String()
		}
		if n == len(places)-1 {
			return p.effects[i].would
		}
	}
	return a.String()
}

// Gone tells that no place is left, why, and that none will come back.
func (f *Fault) Gone() (why string, gone bool) {
	if why, gone = f.waits.Over(); !gone {
		return "", false
	}
	for _, p := range f.places.All() {
		st := p.stats()
		if !st.Gone || st.Waiting {
			return "", false
		}
		why = st.Reason
	}
	return why, true
}

// look stores the status of a place before its probe is unregistered.
func (p *place) look() {
	if p.last.Load() == nil {
		last := p.status()
		p.last.CompareAndSwap(nil, &last)
	}
}

// stats is the status of a place with the counts up to now.
func (p *place) stats() PlaceStats {
	last := p.last.Load()
	if last == nil {
		return p.status()
	}
	out := *last
	p.count(&out)
	return out
}

// count fills in the counts. The probe counts until it is unregistered, and keeps its counts after that.
func (p *place) count(out *PlaceStats) {
	switch {
	case p.isCall():
		out.Calls, out.Misses = p.sp.Hits(), p.sp.Misses()
	case p.rp != nil:
		out.Calls, out.Misses = p.kp.Hits(), p.kp.Misses().Plus(p.rp.Misses())
	default:
		out.Calls, out.Misses = p.kp.Hits(), p.kp.Misses()
	}
	out.Misses[kprobes.MissEnded] += p.late.Load()
	out.Misses[kprobes.MissForeign] += p.foreign.Load()
	out.Missed = out.Misses.Sum()
}

// status is stats of a place whose probe is registered.
func (p *place) status() PlaceStats {
	if p.isCall() {
		return p.callStats()
	}
	st := p.fault.in.session.Status(p.kp)
	out := PlaceStats{
		Name: p.Name, Addr: st.Addr, Symbol: st.Symbol, Module: st.Module,
		Mechanism: st.Mechanism, Reason: st.Reason, Waiting: st.Waiting, Gone: st.Flags&kprobes.FlagGone != 0, Decides: p.decides(st.Mechanism == kprobes.Optimized),
	}
	p.count(&out)
	return out
}

// decides is PlaceStats.Decides.
func (p *place) decides(optimized bool) string {
	switch {
	case p.decision.by == theTracer:
		return "tracer"
	case p.kp.Program == nil:
		return ""
	case optimized:
		return "target"
	}
	return "tracer" // at a breakpoint it interprets the probe's Program
}
