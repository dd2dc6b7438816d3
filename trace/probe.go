package trace

import (
	"cmp"
	"errors"
	"iter"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// Probe is one or more SPECs that are probed, with the same wants. Its methods may be called from any goroutine, but not from handlers.
type Probe struct {
	session *Session
	want    wanted
	points  Growing[*point]
	queue   *Queue // nil if only numbers are wanted

	waits Awaiting // patterns

	recordsInTarget bool // the target records hits of some points

	skipped Skipped // when it was placed

	budget   *budget
	silenced atomic.Bool   // since the limit was reached
	closed   chan struct{} // closed by Close
	closing  sync.Once
}

// point is a registered place, with the way in which its hits are recorded.
type point struct {
	Place
	probe *Probe
	from  *pattern // the pattern from which it was made when a library was loaded; nil for others
	kp    *kprobes.Kprobe
	ret   *returns // nil for a point that is not at a return
	fetch *values.Values
	plan  plan

	known atomic.Pointer[known] // never nil after registration
	// elsewhere has the facts about the probe in followed children that map other files. It is used on the tracer's thread only.
	elsewhere map[*symbols.Table]*known
	refused   map[string]bool // by path: the executables for which a warning has said that hits are not printed
	kept      atomic.Uint64   // hits that met the filter
	short     atomic.Uint64   // records that were too short
	unread    atomic.Uint64   // hits of which nothing is told: what is wanted of them can't be read where they were
	stack     int             // frames of each hit
	// stacks is how many hits still get a stack, -1 for all. It is used on the tracer's thread only.
	stacks int
	last   atomic.Pointer[kprobes.Status] // from when the process was there
}

// known is what every hit at an address repeats.
type known struct {
	table          *symbols.Table
	fetch          *values.Values
	isRecorded     bool // a record of the target's has what fetch wants
	addr           arch.Addr
	symbol, module string
	params, locals []symbols.Param
	results        []symbols.Param
	typed          bool            // results is what the function returns
	reading        symbols.Reading // of the files when fetch was made
}

func newProbe(s *Session, w wanted) *Probe {
	p := &Probe{session: s, want: w, queue: w.queue, budget: w.budget, closed: make(chan struct{})}
	if p.budget == nil {
		p.budget = newBudget(w.limit)
	}
	if p.want.told == nil {
		p.want.told = new(sync.Map)
	}
	if p.queue == nil && !w.count {
		p.queue = NewQueue()
	}
	return p
}

// Hits yields the hits in their order. It waits for further hits until the process ends, the probe or its session is closed, or the limit is
// reached. Only one goroutine may use it. A hit belongs to the caller.
func (p *Probe) Hits() iter.Seq[*Hit] { return p.queue.hits() }

// Full is closed when Limit is reached.
func (p *Probe) Full() <-chan struct{} { return p.budget.full }

// endQueue ends Hits, if the queue is the probe's own.
func (p *Probe) endQueue() {
	if p.queue != nil && p.want.queue == nil {
		p.queue.Close()
	}
}

// Close removes the probe's places, which have their original code again. Hits that were not taken yet can still be taken, and Stats still
// works.
func (p *Probe) Close() error {
	p.closing.Do(func() { close(p.closed) })
	p.look()
	err := p.remove()
	p.endQueue()
	return err
}

// remove unregisters all points. What a session that has ended has already removed is no error.
func (p *Probe) remove() error {
	p.waits.Remove() // first, lest they make more of them
	var kps []*kprobes.Kprobe
	var rps []*kprobes.Kretprobe
	for _, pt := range p.points.All() {
		switch {
		case pt.known.Load() == nil:
		case pt.ret != nil:
			rps = append(rps, &pt.ret.rp)
		default:
			kps = append(kps, pt.kp)
		}
	}
	err := errors.Join(p.session.kprobes.UnregisterKprobes(kps), p.session.kprobes.UnregisterKretprobes(rps))
	if errors.Is(err, kprobes.ErrClosed) || errors.Is(err, kprobes.ErrExited) {
		return nil
	}
	return err
}

// describe looks up, once for each address that pt has, what every hit there repeats. The
// error says why there are no parameters, or no results.
func (pt *point) describe() error {
	table := pt.probe.session.kprobes.Symbols()
	k := &known{table: table, addr: pt.kp.Addr, fetch: pt.fetch, reading: table.Reading()}
	if old := pt.known.Load(); old != nil && pt.fetch != nil && pt.fetch.Outside && (old.fetch != pt.fetch || !pt.isSettled(old, k.addr)) {
		var err error
		if k.fetch, err = pt.fetchAt(table, k.addr); err != nil {
			pt.refuse(table, "hits of %s are not printed: %v", pt.Name, err)
		}
	}
	k.isRecorded = k.fetch == pt.fetch || k.fetch != nil && k.fetch.Alike(pt.fetch)
	err := pt.lookUp(k)
	pt.known.Store(k)
	return err
}

// name is describe without debug information. If that is wanted, the first hit looks it up.
func (pt *point) name() {
	k := &known{table: pt.probe.session.kprobes.Symbols(), fetch: pt.fetch, isRecorded: true, reading: pt.probe.session.kprobes.Symbols().Reading()}
	if !pt.Waits {
		k.addr = pt.kp.Addr
		k.name()
	}
	pt.known.Store(k)
}

func (k *known) name() {
	if loc, ok := k.table.Lookup(k.addr); ok {
		k.symbol, k.module = loc.String(), loc.Symbol.ModuleName()
	}
}

// isSettled tells that k.fetch is still what the wanted values need: variables outside of functions lie where they did.
func (pt *point) isSettled(k *known, at arch.Addr) bool {
	return pt.fetch == nil || !pt.fetch.Outside || k.addr == at && k.table.Stands(k.reading)
}

// lookUp fills in what the symbols tell of an address.
func (pt *point) lookUp(k *known) (err error) {
	if k.addr == 0 {
		return nil
	}
	k.name()
	if pt.ret != nil {
		k.results, err = k.table.Results(k.addr)
		k.results, k.typed = pt.probe.want.shown(k.results), err == nil
	}
	if pt.probe.want.args {
		k.params, err = parameters(k.table, pt, k.addr)
		k.params = pt.probe.want.shown(k.params)
	}
	if pt.probe.want.locals && pt.ret == nil {
		seen, failed := pt.variables(k.table, k.addr)
		if k.locals = pt.probe.want.shown(seen.Locals); err == nil {
			err = failed
		}
	}
	return err
}

// at is pt's place where its probe is at addr: a probe of an entry may stand behind a landing pad.
func (pt *point) at(table *symbols.Table, addr arch.Addr) Place {
	at := Place{Name: pt.Name, Addr: addr, Return: pt.Return, inlined: pt.inlined, every: pt.every}
	if r, known := table.Function(addr); known && addr == r.Start+longestPad && !pt.isInside(pt.probe.session.kprobes.Symbols()) {
		at.Addr = r.Start
	}
	return at
}

// longestPad is the bytes of endbr64, behind which a probe at an entry lies.
const longestPad = 4

// parameters returns the parameters that Args prints for pt, whose probe is at at.
func parameters(table *symbols.Table, pt *point, at arch.Addr) ([]symbols.Param, error) {
	if pt.inlined != nil {
		return pt.inlined.Params()
	}
	r, known := table.Function(at)
	if pt.ret == nil && (known && at > r.Start && (pt.Addr != r.Start || at > r.Start+longestPad) || isSplitOff(table, at)) {
		seen, err := pt.variables(table, at)
		return seen.Params, err
	}
	return table.Params(at)
}

// isInside tells of a place that it is in a function, and not where that begins.
func (at Place) isInside(table *symbols.Table) bool {
	r, known := table.Function(at.Addr)
	return known && !at.Waits && !at.every && (at.Addr != r.Start || isSplitOff(table, at.Addr))
}

// isSplitOff tells of an address that it is in a part of a function which has a symbol of its own, such as foo.cold. Go has no such parts, and functions of that name.
func isSplitOff(table *symbols.Table, at arch.Addr) bool {
	loc, ok := table.Lookup(at)
	return ok && (strings.HasSuffix(loc.Symbol.Linkage, ".cold") || strings.Contains(loc.Symbol.Linkage, ".cold.")) && !table.GoFunction(at)
}

var errEveryInstruction = errors.New("variables are not looked for at every instruction; name lines or addresses")

// variables is what the source names at at. To find it out for each of thousands of instructions would take long.
func (pt *point) variables(table *symbols.Table, at arch.Addr) (symbols.Variables, error) {
	r, known := table.Function(at)
	switch {
	case !known:
	case pt.every && at > r.Start+longestPad:
		return symbols.Variables{}, errEveryInstruction
	case pt.Addr == r.Start && at <= r.Start+longestPad:
		at = r.Start // behind a landing pad
	}
	return table.Variables(at)
}

// kind is the word for a place in hits.
func (at Place) kind() string {
	if at.Return {
		return "kretprobe"
	}
	return "kprobe"
}

// filtered tells that some hits are not wanted.
func (pt *point) filtered() bool { return pt.fetch != nil && pt.fetch.Filter != nil }

// Stats counts the hits of a probe.
type Stats struct {
	Hits   uint64 // that met the filter, up to the limit
	Missed uint64 // that could not be handled, or calls that were not followed to their return
	Lost   uint64 // that came faster than they were taken: from the target, and from the probe's own queue
	Places []PlaceStats
	// Skipped counts places that the SPECs stand for and that can't be probed, by why.
	Skipped Skipped
	// Patterns that waited for programs, under Follow and AwaitPrograms.
	Patterns []PatternStats
}

// PlaceStats counts the hits of a place, and says how it is probed.
type PlaceStats struct {
	Place     string // Place.Name
	Kind      string // "kprobe", "kretprobe"
	Inlined   bool   // an inlined call begins there
	Addr      arch.Addr
	Symbol    string // with offset
	Hits      uint64
	Missed    uint64
	Misses    kprobes.Misses    // Missed by why
	Lost      uint64            // hits of which there is no record
	Torn      uint64            // of Lost, records that are not whole: threads were killed while they wrote them
	Unread    uint64            // of Lost, hits where what is wanted of them can't be read
	Active    uint64            // calls that had not returned when it was last looked at; those that ended with their process are missed
	Mechanism kprobes.Mechanism // none of one that has no place
	Reason    string            // why it is not optimized, or is in no place
	Waiting   bool              // for its library, or a program that has it
	Gone      bool              // with its code, or its process
}

// Stats returns the counts up to now, or the last ones if the probe or its process has ended.
func (p *Probe) Stats() Stats {
	p.look()
	s := Stats{Skipped: p.waits.Skipped(), Patterns: p.waits.Found()}
	s.Skipped.AddAll(p.skipped)
	for _, pt := range p.points.All() {
		at := pt.stats()
		s.Hits += at.Hits
		s.Missed += at.Missed
		s.Lost += at.Lost
		s.Places = append(s.Places, at)
	}
	s.Places = append(s.Places, p.waits.Without()...)
	if p.queue != nil && p.want.queue == nil {
		s.Lost += p.queue.Lost()
	}
	return s
}

// look takes the points' present state. Of a process that has ended it stays as it was.
func (p *Probe) look() {
	s, points := p.session.kprobes, p.points.All()
	now := s.Statuses(kprobesOf(points))
	p.waits.Look()
	ended := false
	select {
	case <-s.Done():
		ended = true
	default:
	}
	for i, pt := range points {
		last := pt.last.Load()
		switch {
		case now[i].Probe == "":
			continue
		case ended && last != nil && !last.Waiting: // it stays as it was, unless what it waited for has come since
			kept := *last
			kept.Active = now[i].Active // calls end with the process, and are missed
			if now[i].Mechanism != kprobes.NoMechanism {
				kept.Mechanism, kept.Reason = now[i].Mechanism, now[i].Reason // it may have changed since the last look
			}
			pt.last.Store(&kept)
		default:
			pt.last.Store(&now[i])
		}
	}
}

// Gone tells that no place is left, why, and that none will come back.
func (p *Probe) Gone() (why string, gone bool) {
	if why, gone = p.waits.Over(); !gone {
		return "", false
	}
	for _, pt := range p.points.All() {
		st := p.session.kprobes.Status(pt.kp)
		if st.Flags&kprobes.FlagGone == 0 || st.Waiting {
			return "", false
		}
		why = st.Reason
	}
	return why, true
}

func (pt *point) stats() PlaceStats {
	st, k := pt.last.Load(), pt.known.Load()
	out := PlaceStats{Place: pt.Name, Kind: pt.kind(), Inlined: pt.inlined != nil, Symbol: k.symbol, Torn: pt.kp.Torn() + pt.short.Load(), Unread: pt.unread.Load()}
	out.Lost = Lost(pt.kp) + pt.short.Load() + pt.unread.Load()
	out.Hits, out.Misses = pt.counts()
	out.Missed = out.Misses.Sum()
	if st != nil {
		out.Addr, out.Mechanism, out.Reason, out.Waiting = st.Addr, st.Mechanism, st.Reason, st.Waiting
		out.Symbol = cmp.Or(k.symbol, st.Symbol)
		out.Gone, out.Active = st.Flags&kprobes.FlagGone != 0, uint64(st.Active)
	}
	return out
}

// counts is how many hits or returns met the filter, and were missed.
func (pt *point) counts() (hits uint64, missed kprobes.Misses) {
	hits, missed = pt.kp.Hits(), pt.kp.Misses()
	if ret := pt.ret; ret != nil {
		hits, missed = ret.rp.Hits(), missed.Plus(ret.rp.Misses())
	}
	switch {
	case pt.probe.budget.limited:
		hits = pt.kept.Load()
	case !pt.filtered():
	case pt.plan.countsInTarget:
		hits = pt.kp.Values(0)[0]
	case pt.plan.exact:
		hits = pt.kept.Load() + Lost(pt.kp)
	default:
		hits = pt.kept.Load()
	}
	return hits, missed
}
