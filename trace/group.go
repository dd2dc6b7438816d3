package trace

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/kprobes"
)

// Group probes several processes alike, each in a Session of its own. A probe of the group is placed in all of its processes, also in processes that
// join later. Its methods may be called from any goroutine, but not from handlers. The zero Group has no processes.
type Group struct {
	placing sync.Mutex // held by Add and Probe: every process has every probe

	mu      sync.Mutex
	members []*Session
	probes  []*GroupProbe
	closed  bool
}

// GroupProbe is one or more SPECs that are probed in all processes of a group, with the same wants.
type GroupProbe struct {
	specs  []string
	wants  []Want
	queue  *Queue   // nil if only numbers are wanted
	told   sync.Map // warnings, by their text
	own    bool     // the queue is this probe's
	budget *budget

	mu    sync.Mutex
	parts []part
	gone  []PlaceStats // the sum of those of processes that have ended
}

// part is a GroupProbe in one process: while it is there by its probe, afterwards by what became of it.
type part struct {
	pid   int
	comm  string
	probe *Probe
	ended *Stats
}

func (pt *part) stats() ProcessStats {
	if pt.ended != nil {
		return ProcessStats{pt.pid, pt.comm, *pt.ended}
	}
	return ProcessStats{pt.pid, pt.comm, pt.probe.Stats()}
}

// ProcessStats counts the hits of a probe in one process.
type ProcessStats struct {
	PID  int
	Comm string // of its leader, when it joined
	Stats
}

// Add takes a process into the group. What the group probes is armed there when it returns, or nothing is: then the error is Session.Probe's,
// and the process is no member. Close closes the session, too.
func (g *Group) Add(ctx context.Context, s *Session) error {
	g.placing.Lock()
	defer g.placing.Unlock()
	if g.over() {
		return ErrClosed
	}
	var parts []part
	for _, p := range g.all() {
		pt, err := p.in(ctx, s)
		if err != nil {
			return errors.Join(err, remove(parts))
		}
		parts = append(parts, pt)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errors.Join(ErrClosed, remove(parts))
	}
	g.members = append(g.members, s)
	for i, p := range g.probes {
		p.add(parts[i])
	}
	go g.settle(s)
	return nil
}

// settle lets go of a process when it has ended.
func (g *Group) settle(s *Session) {
	<-s.Done()
	for _, p := range g.all() {
		p.settle()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.members = slices.DeleteFunc(g.members, func(m *Session) bool { return m == s })
	}
}

// Probe probes all places that the SPECs stand for, in every process of the group, as Session.ProbeContext does. All are armed when it returns, or none. Limit counts
// the hits of all processes together.
func (g *Group) Probe(ctx context.Context, specs []string, wants ...Want) (*GroupProbe, error) {
	g.placing.Lock()
	defer g.placing.Unlock()
	if g.over() {
		return nil, ErrClosed
	}
	w := newWanted(wants)
	p := &GroupProbe{specs: specs, wants: wants, queue: w.queue, budget: newBudget(w.limit)}
	if p.queue == nil && !w.count {
		p.queue, p.own = NewQueue(), true
		go func() {
			select {
			case <-p.budget.full:
				p.queue.Close()
			case <-p.queue.Closed():
			}
		}()
	}
	for _, s := range g.Sessions() {
		pt, err := p.in(ctx, s)
		if err != nil && s.ended() {
			continue // there is nothing to probe any more
		}
		if err != nil {
			return nil, errors.Join(err, p.abandon())
		}
		p.parts = append(p.parts, pt)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errors.Join(ErrClosed, p.abandon())
	}
	g.probes = append(g.probes, p)
	return p, nil
}

// in probes p in one process.
func (p *GroupProbe) in(ctx context.Context, s *Session) (part, error) {
	comm, err := procfs.Comm(s.kprobes.PID(), 0)
	if err != nil {
		comm = "?"
	}
	wants := append(append([]Want{}, p.wants...), func(w *wanted) { w.queue, w.budget, w.told = p.queue, p.budget, &p.told })
	made, err := s.ProbeContext(ctx, p.specs, wants...)
	return part{pid: s.kprobes.PID(), comm: comm, probe: made}, err
}

// abandon removes the places of a probe that could not be placed in all processes.
func (p *GroupProbe) abandon() error {
	if p.own {
		p.queue.Close()
	}
	return remove(p.parts)
}

func (p *GroupProbe) add(pt part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts = append(p.parts, pt)
}

// settle replaces the probes of processes that have ended by their counts: there may be thousands of processes.
func (p *GroupProbe) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.parts {
		pt := &p.parts[i]
		if pt.ended != nil || !pt.probe.session.ended() {
			continue
		}
		st := pt.probe.Stats()
		p.gone = addPlaces(p.gone, st.Places)
		st.Places = slices.DeleteFunc(st.Places, func(at PlaceStats) bool { return at.Hits|at.Missed|at.Lost == 0 })
		pt.probe, pt.ended = nil, &st
	}
}

// remove closes the probes of parts.
func remove(parts []part) (err error) {
	for _, pt := range parts {
		err = errors.Join(err, pt.probe.Close())
	}
	return err
}

// Sessions lists the processes that have not ended, in the order in which they joined.
func (g *Group) Sessions() []*Session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*Session(nil), g.members...)
}

func (g *Group) all() []*GroupProbe {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*GroupProbe(nil), g.probes...)
}

func (g *Group) over() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// Close closes all sessions. Hits that were not taken yet can still be taken, and statistics still be asked for. A second call does nothing.
func (g *Group) Close() error {
	g.mu.Lock()
	closed := g.closed
	g.closed = true
	g.mu.Unlock()
	if closed {
		return nil
	}
	members := g.Sessions()
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for i, s := range members { // one after the other they would be away for longer
		wg.Go(func() { errs[i] = s.Close() })
	}
	wg.Wait()
	for _, p := range g.all() {
		if p.own {
			p.queue.Close()
		}
	}
	return errors.Join(errs...)
}

// Hits yields the hits of all processes, those of each process in their order. It waits for further hits until the group is closed or the limit is reached.
// Only one goroutine may use it. A hit belongs to the caller; Hit.PID is its process.
func (p *GroupProbe) Hits() iter.Seq[*Hit] { return p.queue.hits() }

// Gone reports whether no place is left in a process of the group and none will come back, and why.
func (p *GroupProbe) Gone(s *Session) (why string, gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.parts {
		if pt := &p.parts[i]; pt.probe != nil && pt.probe.session == s {
			return pt.probe.Gone()
		}
	}
	return "", false
}

// Full is closed when Limit is reached.
func (p *GroupProbe) Full() <-chan struct{} { return p.budget.full }

// ByProcess returns the counts up to now, in the order in which the processes joined. A process that has ended keeps its last counts, without
// places that were never hit.
func (p *GroupProbe) ByProcess() []ProcessStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]ProcessStats, len(p.parts))
	for i := range p.parts {
		all[i] = p.parts[i].stats()
	}
	return all
}

// Stats adds up all processes. A place is told once, with the address that it has in the first process where it was.
func (p *GroupProbe) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := Stats{Places: slices.Clone(p.gone)}
	for i := range p.parts {
		st := p.parts[i].stats()
		all.Hits, all.Missed, all.Lost = all.Hits+st.Hits, all.Missed+st.Missed, all.Lost+st.Lost
		all.Skipped.AddAll(st.Skipped)
		if p.parts[i].ended == nil {
			all.Places = addPlaces(all.Places, st.Places)
		}
		all.Patterns = AddPatterns(all.Patterns, st.Patterns)
	}
	if p.own {
		all.Lost += p.queue.Lost()
	}
	return all
}

// addPlaces adds the counts of more places to those of the same name and kind. Each inlined call is a place of its own.
func addPlaces(sum, more []PlaceStats) []PlaceStats {
	type key struct{ place, kind, inlined string }
	keyOf := func(at PlaceStats) key {
		if at.Inlined {
			return key{at.Place, at.Kind, at.Symbol}
		}
		return key{at.Place, at.Kind, ""}
	}
	index := make(map[key]int, len(sum))
	for i, at := range sum {
		index[keyOf(at)] = i
	}
	for _, at := range more {
		i, known := index[keyOf(at)]
		if !known {
			index[keyOf(at)] = len(sum)
			sum = append(sum, at)
			continue
		}
		same := &sum[i]
		at.Hits, at.Missed, at.Lost = at.Hits+same.Hits, at.Missed+same.Missed, at.Lost+same.Lost
		at.Misses, at.Torn, at.Unread, at.Active = at.Misses.Plus(same.Misses), at.Torn+same.Torn, at.Unread+same.Unread, at.Active+same.Active
		if same.Mechanism != kprobes.NoMechanism {
			at.Addr, at.Symbol, at.Mechanism, at.Reason, at.Waiting, at.Gone = same.Addr, same.Symbol, same.Mechanism, same.Reason, same.Waiting, same.Gone
		}
		*same = at
	}
	return sum
}
