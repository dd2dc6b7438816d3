package inject

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/trace"
)

// Group is one rule in several processes, each with an Injector of its own. Calls are counted in each process by itself, as in followed
// children, so the same calls fail in each. Times, Rate, For and VerboseRatelimit of the Attr hold for all processes together; the time of
// For begins with the first process. The zero Group has no processes. Its methods may be called from any goroutine, but not from
// handlers.
type Group struct {
	mu      sync.Mutex // for moments only
	decider *Decider   // of the first process; the state that all share in it outlives that process
	do      []Action   // the rule's
	parts   []*part
	gone    []PlaceStats // the sums of processes that have left
}

// part is the rule in one process.
type part struct {
	pid   int
	comm  string
	fault *Fault
	left  *Stats // after the fault's end
}

// ProcessStats counts the calls of a rule in one process.
type ProcessStats struct {
	PID  int
	Comm string // of its leader, when it joined
	Stats
}

// errGroupDecider refuses a rule with a Decider in a group, whose own it would bypass.
var errGroupDecider = errors.New("a rule for several processes decides by its Attr and can't have a Decider")

// Add is Injector.Add for another process of the group. The rule must be the same as in the others, except for addresses, which
// may differ by process.
func (g *Group) Add(ctx context.Context, in *Injector, r Rule) (*Fault, error) {
	if r.Decider != nil {
		return nil, &RuleError{Rule: r.name(), Err: errGroupDecider}
	}
	comm, err := procfs.Comm(in.session.PID(), 0)
	if err != nil {
		comm = "?"
	}
	faults, err := in.add(ctx, nil, []Rule{r}, g)
	if err != nil {
		return nil, err
	}
	f := faults[0]
	g.mu.Lock()
	g.do = r.Do
	g.parts = append(g.parts, &part{pid: in.session.PID(), comm: comm, fault: f})
	g.mu.Unlock()
	f.spent() // another process may have used up the rest meanwhile
	return f, nil
}

// deciderFor makes the Decider for another process of the group.
func (g *Group) deciderFor(a fault.Attr) (d *Decider, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.decider != nil {
		return g.decider.beside(a)
	}
	d, err = NewDecider(a)
	g.decider = d
	return d, err
}

// spent ends the faults of the other processes after f has used up the rest of Times. It does not wait for them: their tracers
// may be waiting for that of f.
func (g *Group) spent(f *Fault) {
	for _, pt := range g.all() {
		if o := pt.fault; o != nil && o != f {
			go o.endIfSpent()
		}
	}
}

// ended replaces a fault that has ended by its counts: there may be thousands.
func (g *Group) ended(f *Fault) {
	st := f.Stats()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, pt := range g.parts {
		if pt.fault == f {
			g.gone = addPlaces(g.gone, st.Places)
			st.Places = slices.DeleteFunc(slices.Clone(st.Places), func(p PlaceStats) bool { return p.Calls|p.Missed == 0 })
			pt.fault, pt.left = nil, &st
		}
	}
}

// all is the parts as they are now.
func (g *Group) all() []part {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]part, len(g.parts))
	for i, pt := range g.parts {
		all[i] = *pt
	}
	return all
}

// Faults lists the faults that have not been removed, nor their injectors closed, in the order in which they were added.
func (g *Group) Faults() (all []*Fault) {
	for _, pt := range g.all() {
		if pt.fault != nil {
			all = append(all, pt.fault)
		}
	}
	return all
}

// Done reports whether no further call can fail, even if other processes join: Times is used up, or For is over.
func (g *Group) Done() bool {
	g.mu.Lock()
	d := g.decider
	g.mu.Unlock()
	return d != nil && d.isDone()
}

// Armed reports whether a call can still fail in one of the processes.
func (g *Group) Armed() bool { return slices.ContainsFunc(g.Faults(), (*Fault).Armed) }

// Delayed returns until when the rule's Delays hold threads; the zero time if there were none.
func (g *Group) Delayed() (last time.Time) {
	for _, f := range g.Faults() {
		if t := f.Delayed(); t.After(last) {
			last = t
		}
	}
	return last
}

// ByProcess returns the counts up to now, in the order in which the processes joined. A process that has left keeps its last
// counts, without places that were never hit.
func (g *Group) ByProcess() []ProcessStats {
	parts := g.all()
	all := make([]ProcessStats, len(parts))
	for i, pt := range parts {
		all[i] = ProcessStats{pt.pid, pt.comm, pt.stats((*Fault).Stats)}
	}
	return all
}

func (pt part) stats(of func(*Fault) Stats) Stats {
	if pt.left != nil {
		return *pt.left
	}
	return of(pt.fault)
}

// Stats adds up the counts of all processes. Each place is listed once, with its address in one of them and without Decides.
func (g *Group) Stats() (sum Stats) { return g.sum((*Fault).Stats) }

// Counts is Stats without the Places. It waits for no thread of a session, so handlers may ask for it.
func (g *Group) Counts() Stats {
	sum := g.sum((*Fault).Counts)
	sum.Places = nil
	return sum
}

func (g *Group) sum(of func(*Fault) Stats) (sum Stats) {
	g.mu.Lock()
	parts := make([]part, len(g.parts))
	for i, pt := range g.parts {
		parts[i] = *pt
	}
	sum.Places = slices.Clone(g.gone)
	do := g.do
	g.mu.Unlock()
	sum.Actions = make([]ActionStats, len(do))
	for _, pt := range parts {
		st := pt.stats(of)
		sum.Calls, sum.Eligible, sum.Injected = sum.Calls+st.Calls, sum.Eligible+st.Eligible, sum.Injected+st.Injected
		sum.Patterns = trace.AddPatterns(sum.Patterns, st.Patterns)
		sum.Refused, sum.Missed, sum.Misses = sum.Refused+st.Refused, sum.Missed+st.Missed, sum.Misses.Plus(st.Misses)
		for i, a := range st.Actions {
			if same := &sum.Actions[i]; same.Action == "" || same.Action == a.Action {
				same.Action = a.Action
			} else {
				same.Action = do[i].String()
			}
			sum.Actions[i].N += a.N
		}
		if pt.left == nil {
			sum.Places = addPlaces(sum.Places, st.Places)
		}
	}
	return sum
}

// addPlaces adds the counts of more places to those of the same name.
func addPlaces(sum, more []PlaceStats) []PlaceStats {
	index := make(map[string]int, len(sum))
	for i := range sum {
		index[sum[i].Name] = i
	}
	for _, p := range more {
		p.Decides = ""
		i, known := index[p.Name]
		if !known {
			index[p.Name] = len(sum)
			sum = append(sum, p)
			continue
		}
		sum[i].Calls, sum[i].Missed, sum[i].Misses = sum[i].Calls+p.Calls, sum[i].Missed+p.Missed, sum[i].Misses.Plus(p.Misses)
	}
	return sum
}
