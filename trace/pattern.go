package trace

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// Growing is the places of a probe. They become more when something comes that a pattern waits for, while others look at them. The zero value has none.
type Growing[P any] struct {
	mu   sync.Mutex
	list []P
}

// Add adds places.
func (g *Growing[P]) Add(more ...P) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = append(g.list, more...)
}

// Set replaces all places, before others know them.
func (g *Growing[P]) Set(all []P) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = slices.Clip(all)
}

// All returns the places that exist now. The caller may only read the slice.
func (g *Growing[P]) All() []P {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clip(g.list)
}

// Awaiting is those SPECs of a probe that are patterns and wait for libraries, or for programs that have them. When one comes, places of the probe are
// made of it, before its constructors run; when it comes again, or to a followed child, of those that are new. The exported fields are set before Await and
// not changed. The methods may be called from any goroutine. Where Await was not called nothing waits.
//
// A thread of the target stands still while places are made, and others that stop have to wait. So no debug information is read, and there is a limit to their
// number.
type Awaiting struct {
	Session Waiter
	Returns bool   // as the Resolver's
	Program uint64 // Session.Program, from before the SPECs were resolved
	Warn    func(format string, args ...any)
	// Place registers probes at the places that have come, and returns those that have one now, also with an error. Some may have had one before, by another SPEC. It is
	// called on the tracer's thread.
	Place func(ctx context.Context, c Coming) ([]Place, error)

	patterns Growing[*pattern]
	skipped  skips // of what has come
}

// Waiter is the session in which patterns wait; a *kprobes.Session is one.
type Waiter interface {
	Done() <-chan struct{}
	AwaitsPrograms() bool
	RegisterPattern(ctx context.Context, pt *kprobes.Pattern) error
	UnregisterPattern(pt *kprobes.Pattern) error
	PatternStatus(pt *kprobes.Pattern) kprobes.PatternStatus
}

// Coming is the places that a pattern stands for in what has come.
type Coming struct {
	// Places are Optional. One that Waits is to be treated as if it were not known where it is: it is not in the session's own process.
	Places []Place
	// Skipped counts those that can't be probed.
	Skipped *Skipped
	Arrival kprobes.Arrival

	from *pattern
}

// Refuse is what trace.Register is to do with a place that is refused with err: it is skipped, unless nothing can be registered any more.
func (c Coming) Refuse(err error) error {
	switch {
	case errors.Is(err, kprobes.ErrPlaced): // by another name
		return nil
	case errors.Is(err, kprobes.ErrClosed), errors.Is(err, kprobes.ErrExited):
		return err
	}
	c.Skipped.Add(err)
	return nil
}

// Placed is a place with its probe.
type Placed struct {
	Place
	Kprobe *kprobes.Kprobe
}

// pattern is one of them.
type pattern struct {
	Place
	of    *Awaiting
	waits kprobes.Pattern
	last  atomic.Pointer[kprobes.PatternStatus] // from when the process was there
	made  atomic.Int64                          // places
	has   int                                   // those of them that were there from the beginning
	found matches

	untyped  atomic.Bool     // that a place has no arguments was told
	known    map[string]bool // Symbol of each place that was tried: whether it has a probe. It is used on the tracer's thread only.
	refused  error           // why no place has a probe; used on the tracer's thread only
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

// Await makes patterns wait: later, those that have no place yet, and under AwaitPrograms those of which there are places, for other programs. Their other places
// are given to Place, some perhaps before Await returns. After an error they have to be removed.
func (a *Awaiting) Await(ctx context.Context, later []Place, there []Placed) error {
	for _, at := range later {
		if err := a.register(ctx, at, nil); err != nil {
			return err
		}
	}
	of, specs := map[string][]Placed{}, []string(nil)
	for _, at := range there {
		if of[at.spec] = append(of[at.spec], at); at.spec != "" && len(of[at.spec]) == 1 {
			specs = append(specs, at.spec)
		}
	}
	for _, spec := range specs {
		name, _ := strings.CutSuffix(spec, ReturnSuffix)
		at := Place{Name: spec, Symbol: name, Pattern: true, Return: of[spec][0].Return}
		if err := a.register(ctx, at, of[spec]); err != nil {
			return err
		}
	}
	return nil
}

// register registers a pattern that has places, or waits for the first.
func (a *Awaiting) register(ctx context.Context, at Place, has []Placed) error {
	pn := &pattern{Place: at, of: a, known: map[string]bool{}, has: len(has)}
	there, kps := make([]Place, len(has)), make([]*kprobes.Kprobe, len(has))
	for i, one := range has {
		pn.known[one.Symbol], there[i], kps[i] = true, one.Place, one.Kprobe
	}
	pn.found.note(there)
	pn.made.Store(int64(len(has)))
	pn.waits = kprobes.Pattern{Spec: at.Symbol, Has: kps, Program: a.Program, Missing: at.missing, Expand: pn.expand}
	if err := a.Session.RegisterPattern(ctx, &pn.waits); err != nil {
		return NewPlaceError(at.Name, err)
	}
	a.patterns.Add(pn)
	pn.look()
	return nil
}

// Remove ends the waiting: when it returns, Place does not run and will not run. What it has registered stays.
func (a *Awaiting) Remove() {
	for _, pn := range a.patterns.All() {
		pn.look()
		_ = a.Session.UnregisterPattern(&pn.waits) // or the session has ended
	}
}

// Look takes the patterns' present state. Of a process that has ended it stays as it was.
func (a *Awaiting) Look() {
	for _, pn := range a.patterns.All() {
		pn.look()
	}
}

// Over tells that nothing waits, and why.
func (a *Awaiting) Over() (why string, over bool) {
	for _, pn := range a.patterns.All() {
		st := a.Session.PatternStatus(&pn.waits)
		if st.Waiting {
			return "", false
		}
		why = st.Reason
	}
	return why, true
}

// Without lists the patterns that have no places, as of the last Look, each as if it were one.
func (a *Awaiting) Without() (all []PlaceStats) {
	for _, pn := range a.patterns.All() {
		if at, none := pn.stats(); none {
			all = append(all, at)
		}
	}
	return all
}

// Found is what the patterns were found to stand for, if programs are awaited.
func (a *Awaiting) Found() (all []PatternStats) {
	for _, pn := range a.patterns.All() {
		if a.Session.AwaitsPrograms() {
			all = append(all, PatternStats{Spec: pn.Name, Found: pn.found.sorted()})
		}
	}
	return all
}

// Skipped counts places in what has come that are not probed, by why.
func (a *Awaiting) Skipped() Skipped { return a.skipped.copied() }

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
	r := Resolver{Table: in.Symbols, Memory: in.Code, Returns: pn.of.Returns, Unique: true, Again: true, Programs: pn.of.Session.AwaitsPrograms()}
	pn.resolved++
	places, err := r.Resolve(ctx, pn.Name)
	if at := (*PlaceError)(nil); errors.As(err, &at) {
		return at.Err // the session names the pattern
	}
	if err != nil {
		return err
	}
	pn.found.note(places)
	skipped := r.Skipped
	before := len(pn.known)
	fresh, stay := pn.fresh(places, in.Main, &skipped)
	pn.tellStay(stay)
	if found := (seen{stay, skipped}); len(fresh) == 0 {
		if still, ok := in.Symbols.Likeness(name); known && ok && still == like { // else it has ended meanwhile, and not all of it was seen
			pn.remember(like, found)
		}
		return pn.without(found)
	}
	placed, err := pn.of.Place(ctx, Coming{Places: fresh, Skipped: &skipped, Arrival: in, from: pn})
	for _, at := range placed {
		pn.known[at.Symbol] = true
	}
	pn.made.Add(int64(len(placed)))
	if err == nil && len(placed) == 0 {
		err = &NoPlaceError{pn.Name, skipped}
	}
	if none := (*NoPlaceError)(nil); err != nil && (pn.made.Load() == 0 || !errors.As(err, &none)) {
		pn.refused = err
		return err
	}
	pn.refused = nil
	if len(pn.known) > before { // else they were refused before
		pn.of.skipped.add(skipped)
		tellSkipped(pn.of.Warn, &skipped, len(placed))
	}
	return nil
}

// tellSkipped warns of places that are not probed, beside those that are.
func tellSkipped(warn func(format string, args ...any), skipped *Skipped, placed int) {
	if n := skipped.Len(); n > 0 {
		are := "are"
		if n == 1 {
			are = "is"
		}
		warn("%d of %s %s not probed: %s", n, escape.Count(n+placed, "place"), are, skipped)
	}
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
func (pn *pattern) fresh(places []Place, main bool, skipped *Skipped) (fresh []Place, stay int) {
	before := len(pn.known)
	n := before - pn.has
	for _, at := range places {
		there, tried := pn.known[at.Symbol]
		switch {
		case at.Symbol != "" && (there || tried && !main): // the session places it, or it was refused
		case at.Symbol == "" && (before > 0 || !main):
			stay++
		case (at.Symbol == "" || !tried) && n >= mostComing:
			skipped.Add(errTooMany)
		default:
			if at.Symbol == "" || !tried {
				n++
			}
			at.Optional, at.Waits = true, !main
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
		pn.of.Warn("probe %s is not placed again, or in a followed child, at %d of its places: %v", pn.Name, n, errNoName)
	}
}

// tells notes that a point which was made of the pattern has no arguments, and reports whether that is to be told. It is told of every other point.
func (pn *pattern) tells() bool { return pn == nil || pn.untyped.CompareAndSwap(false, true) }

// look takes the pattern's present state.
func (pn *pattern) look() {
	st := pn.of.Session.PatternStatus(&pn.waits)
	select {
	case <-pn.of.Session.Done():
	default:
		if st != (kprobes.PatternStatus{}) { // else it was removed, and stays as it was
			pn.last.Store(&st)
		}
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
