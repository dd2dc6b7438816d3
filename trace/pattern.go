package trace

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// points is a probe's places. They become more when a library comes that a pattern waits for.
type points struct {
	mu   sync.Mutex
	list []*point
}

func (ps *points) add(more []*point) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.list = append(ps.list, more...)
}

// all returns the points that exist now. The caller may only read them.
func (ps *points) all() []*point {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return slices.Clip(ps.list)
}

// pattern is a SPEC that waits for a library, or for programs that have it. When that comes, points of the probe are made of it, before its constructors run; when it comes
// again, or to a followed child, of those places that are new.
//
// A thread of the target stands still meanwhile, and others that stop have to wait. So no debug information is read, and no more
// than mostComing points are made.
type pattern struct {
	Place
	probe *Probe
	waits kprobes.Pattern
	last  atomic.Pointer[kprobes.PatternStatus] // from when the process was there
	made  atomic.Int64                          // points
	has   int                                   // those of them that were there from the beginning
	found matches

	untyped  atomic.Bool     // that a point has no arguments was told
	known    map[string]bool // Symbol of each place that was tried: whether it has a point. It is used on the tracer's thread only.
	refused  error           // why no place has a point; used on the tracer's thread only
	toldStay bool            // the same

	alike    map[symbols.Likeness]seen // used on the tracer's thread only
	resolved int                       // how often it was looked up; for tests
}

// seen is what a child's program had for a pattern. Others of the same files have the same, and their places were all tried.
type seen struct {
	stay    int
	skipped Skipped
}

// mostAlike is how many kinds of programs a pattern remembers.
const mostAlike = 64

// mostComing is how many places a pattern stands for at most in libraries that come. Tests have fewer.
var mostComing = 20000

var (
	errTooMany = errors.New("more places than are taken when a library comes")
	errNoName  = errors.New("other functions have the same name")
)

// await lets patterns wait: those at places for their libraries, or for programs, those of which there are points for other programs.
func (p *Probe) await(ctx context.Context, places []Place, there []*point) error {
	for _, at := range places {
		if _, err := p.want.fetching(p.session.kprobes.Symbols(), at); err != nil {
			return err
		}
		if err := p.register(ctx, at, nil); err != nil {
			return err
		}
	}
	of := map[string][]*point{}
	for _, pt := range there {
		if of[pt.spec] = append(of[pt.spec], pt); pt.spec == "" || len(of[pt.spec]) > 1 {
			continue
		}
		name, _ := strings.CutSuffix(pt.spec, ReturnSuffix)
		places = append(places, Place{Name: pt.spec, Symbol: name, Pattern: true, Return: pt.Return})
	}
	for _, at := range places {
		if has := of[at.Name]; len(has) > 0 {
			if err := p.register(ctx, at, has); err != nil {
				return err
			}
		}
	}
	return nil
}

// register registers a pattern that has points, or waits for the first.
func (p *Probe) register(ctx context.Context, at Place, has []*point) error {
	pn := &pattern{Place: at, probe: p, known: map[string]bool{}, has: len(has)}
	there := make([]Place, len(has))
	for i, pt := range has {
		pn.known[pt.Symbol], there[i] = true, pt.Place
	}
	pn.found.note(there)
	pn.made.Store(int64(len(has)))
	pn.waits = kprobes.Pattern{Spec: at.Symbol, Has: kprobesOf(has), Program: p.program, Missing: at.missing, Expand: pn.expand}
	if err := p.session.kprobes.RegisterPattern(ctx, &pn.waits); err != nil {
		return NewPlaceError(at.Name, err)
	}
	p.patterns = append(p.patterns, pn)
	return nil
}

// expand is a kprobes.Pattern's Expand.
func (pn *pattern) expand(ctx context.Context, in kprobes.Arrival) error {
	var like symbols.Likeness
	known := false
	name, _ := strings.CutSuffix(pn.Name, ReturnSuffix)
	if !in.Main { // where the library comes to the process itself again those that were refused are tried again
		like, known = in.Symbols.Likeness(name)
	}
	if before, ok := pn.alike[like]; known && ok {
		pn.tellStay(before.stay)
		return pn.without(before)
	}
	r := Resolver{Table: in.Symbols, Memory: in.Code, Returns: pn.probe.want.returns, Unique: true, Again: true, Programs: pn.probe.session.awaits()}
	pn.resolved++
	places, err := r.Resolve(ctx, pn.Name)
	if at := (*PlaceError)(nil); errors.As(err, &at) {
		return at.Err // the session names the pattern
	}
	if err != nil {
		return err
	}
	pn.found.note(places)
	pl := &placer{probe: pn.probe, from: pn, skipped: r.Skipped}
	before := len(pn.known)
	fresh, stay := pn.fresh(pl, places, in.Main)
	pn.tellStay(stay)
	if found := (seen{stay, pl.skipped}); len(fresh) == 0 {
		if still, ok := in.Symbols.Likeness(name); known && ok && still == like { // else it has ended meanwhile, and not all of it was seen
			pn.remember(like, found)
		}
		return pn.without(found)
	}
	err = pl.register(ctx, fresh)
	for _, pt := range pl.points {
		pn.known[pt.Symbol] = true
	}
	pn.made.Add(int64(len(pl.points)))
	if none := (*NoPlaceError)(nil); err != nil && (pn.made.Load() == 0 || !errors.As(err, &none)) {
		pn.refused = err
		return err
	}
	pn.refused = nil
	if len(pn.known) > before { // else they were refused before
		pl.warn()
	}
	return nil
}

// remember keeps what a program had without a fresh place.
func (pn *pattern) remember(like symbols.Likeness, found seen) {
	if pn.alike == nil || len(pn.alike) >= mostAlike {
		pn.alike = map[symbols.Likeness]seen{}
	}
	pn.alike[like] = found
}

// without is what comes of a program that has no fresh place.
func (pn *pattern) without(found seen) error {
	switch {
	case len(pn.known) > 0: // they are there, or were refused before
		return pn.refused
	case found.stay > 0:
		return errNoName
	}
	return &NoPlaceError{pn.Name, found.skipped}
}

// fresh returns the places that need new points: those that were refused, too, when the library comes to the process again. Children do
// not try them, since a thread of each would wait for that. stay is how many of the others have no name by which they could be found again.
func (pn *pattern) fresh(pl *placer, places []Place, main bool) (fresh []Place, stay int) {
	before := len(pn.known)
	n := before - pn.has
	for _, at := range places {
		there, tried := pn.known[at.Symbol]
		switch {
		case at.Symbol != "" && (there || tried && !main): // the session places it, or it was refused
		case at.Symbol == "" && (before > 0 || !main):
			stay++
		case (at.Symbol == "" || !tried) && n >= mostComing:
			pl.skipped.Add(errTooMany)
		default:
			if at.Symbol == "" || !tried {
				n++
			}
			at.Optional = true
			at.Waits = !main || pn.probe.readsDebugInfo(at)
			fresh = append(fresh, at)
			pn.known[at.Symbol] = false
		}
	}
	return fresh, stay
}

// tellStay tells once of places that do not come back, or to followed children.
func (pn *pattern) tellStay(n int) {
	if n > 0 && !pn.toldStay {
		pn.toldStay = true
		pn.probe.session.warn("probe %s is not placed again, or in a followed child, at %d of its places: %v", pn.Name, n, errNoName)
	}
}

// readsDebugInfo reports whether the values wanted at a place need debug information.
func (p *Probe) readsDebugInfo(at Place) bool {
	return p.want.args || at.Return && (p.wantsHits() || p.want.filter != "")
}

// tells notes that a point which was made of the pattern has no arguments, and reports whether that is to be told. It is told of every other point.
func (pn *pattern) tells() bool { return pn == nil || pn.untyped.CompareAndSwap(false, true) }

// look takes the pattern's present state.
func (pn *pattern) look() {
	st := pn.probe.session.kprobes.PatternStatus(&pn.waits)
	select {
	case <-pn.probe.session.kprobes.Done():
	default:
		pn.last.Store(&st)
	}
}

// stats is the row of a pattern that has no places; none is false if it has some.
func (pn *pattern) stats() (at PlaceStats, none bool) {
	at = PlaceStats{Place: pn.Name, Kind: pn.kind()}
	if st := pn.last.Load(); st != nil {
		at.Reason, at.Waiting, at.Gone = st.Reason, st.Waiting, !st.Waiting
	}
	return at, pn.made.Load() == 0
}
