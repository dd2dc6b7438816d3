package script

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// part is a probe in one process.
type part struct {
	p      *probe
	m      *member
	places trace.Growing[*site]
	waits  trace.Awaiting // patterns
	later  []trace.Place  // one that has no place when the part begins

	registered bool
	on         bool        // it is armed, as far as is known
	arms       atomic.Bool // what comes later is armed, too; it changes before the places do
	handled    uint64      // hits or returns that met the filter, if there is a pre or ret
	skipped    int         // places of a pattern that can't be probed
}

// newPart finds p's places in a process. Nothing is registered.
func (p *probe) newPart(ctx context.Context, m *member) (*part, error) {
	pt := &part{p: p, m: m}
	return pt, pt.resolve(ctx)
}

// resolve lists the places that p's specification stands for.
func (pt *part) resolve(ctx context.Context) error {
	p := pt.p
	s := pt.m.session
	pt.waits.Session, pt.waits.Returns, pt.waits.Program, pt.waits.Place = s, p.returns, s.Program(), pt.come
	pt.waits.Warn = func(format string, args ...any) {
		pt.m.warn("%s %s: "+format, append([]any{p.kind(), escape.Spec(p.spec)}, args...)...)
	}
	r := trace.Resolver{Table: s.Symbols(), Returns: p.returns, Programs: s.AwaitsPrograms()}
	found, err := r.Resolve(ctx, p.spec)
	var refused *trace.PlaceError
	if errors.As(err, &refused) {
		return refused.Err // the scenario's line names it
	}
	for _, at := range found {
		if at.Return != p.returns {
			return errors.New(trace.ReturnSuffix + " is for kretprobe, which follows calls to their returns")
		}
		one, err := pt.site(ctx, at)
		switch {
		case err != nil:
			return err
		case at.Pattern: // what comes is wanted as one that waits, so it is known that it can be
			pt.later = append(pt.later, at)
		default:
			pt.places.Add(one)
		}
	}
	return err
}

// come places what a pattern stands for in a library or program that has come. It is armed from the beginning if the others are, or are about to be: nobody runs
// there yet. Others switch the places that they see, so it looks again when they see the new ones. It runs on the tracer's thread, without the turn.
func (pt *part) come(ctx context.Context, c trace.Coming) (placed []trace.Place, err error) {
	on := pt.arms.Load()
	var fresh []*site
	for _, at := range c.Places {
		one, err := pt.newComing(ctx, at, c.Arrival.Symbols)
		if err != nil {
			c.Skipped.Add(err)
			continue
		}
		if on {
			one.kp.Flags = 0
		}
		fresh = append(fresh, one)
	}
	kept, err := trace.Register(ctx, fresh, pt.registerAll, func(_ *site, err error) error { return c.Refuse(err) })
	pt.places.Add(kept...)
	for _, at := range kept {
		placed = append(placed, at.Place)
	}
	for now := pt.arms.Load(); err == nil && on != now; now = pt.arms.Load() {
		on, err = now, pt.switchAll(ctx, now)
	}
	return placed, err
}

// errGoComes refuses Go functions that come later, if that would matter: where their arguments are is not looked up while a thread waits.
var errGoComes = errors.New("arguments of Go functions are not known in what comes later")

// newComing makes a place that has come.
func (pt *part) newComing(ctx context.Context, at trace.Place, table *symbols.Table) (*site, error) {
	if table.GoFunction(at.Addr) && pt.p.wish != nil {
		return nil, errGoComes
	}
	abi := values.ABIOf(table, at.Addr)
	at.Waits = true
	one, err := pt.site(ctx, at)
	if err == nil {
		one.convention = &abi
	}
	return one, err
}

// site makes a place of p, by symbol, or by address where there is none. It is armed when all are registered.
func (pt *part) site(ctx context.Context, place trace.Place) (*site, error) {
	at := &site{part: pt, Place: place}
	if pt.p.returns {
		at.rp = &kprobes.Kretprobe{}
		at.kp = &at.rp.KP
	} else {
		at.kp = &kprobes.Kprobe{}
	}
	at.kp.Flags = kprobes.FlagDisabled
	if at.kp.SymbolName = at.Symbol; at.Symbol == "" {
		at.kp.Addr = at.Addr
	}
	pt.handle(at)
	return at, pt.fetching(ctx, at)
}

// heeded returns the context of the present work: at the scenario's beginning its
// context, later one that does not end.
func (s *Script) heeded() context.Context {
	if s.begun || s.o.Context == nil {
		return context.Background()
	}
	return s.o.Context
}

// Arm arms all probes and faults of the scenario, or none; then timers begin to run. Of several processes those that have joined are armed, and
// others are when they join. The error is an *Error with the place of the call that made the probe.
func (s *Script) Arm() error {
	ctx := s.heeded()
	if m := s.only(); m != nil { // several have all that is declared since they joined
		if err := m.session.Do(func() {}); err != nil {
			return err
		}
		if err := m.catchUp(ctx, func() {}); err != nil {
			return errors.Join(err, m.remove())
		}
	}
	give := s.turn.take(nil)
	s.begun = true // what a handler declares or switches now is done at once
	s.timers.begin(time.Now())
	members := slices.Clone(s.members)
	for _, m := range members {
		m.moving = true
	}
	give()
	for _, m := range members {
		err := m.catchUp(ctx, func() { m.moving = false })
		if err == nil || s.several() && m.ended() {
			continue
		}
		for _, m := range members {
			err = errors.Join(err, m.remove())
		}
		return err
	}
	return nil
}

// ended tells that the process has, or its session.
func (m *member) ended() bool {
	select {
	case <-m.session.Done():
		return true
	default:
		return false
	}
}

// bring registers a new probe in the process whose handler has declared it, and arms it if it is to be. The caller has the turn, and is on the
// process' thread.
func (pt *part) bring() error {
	if err := pt.register(context.Background()); err != nil {
		return err
	}
	pt.registered = true
	if pt.p.wanted() {
		if err := pt.switchTo(context.Background(), true); err != nil {
			pt.unregister()
			return pt.placeError(err)
		}
		pt.on = true
	}
	return nil
}

func (pt *part) placeError(err error) error {
	return pt.p.s.errorAt(pt.p.pos, trace.NewPlaceError(pt.p.spec, err))
}

// register registers the places, silent: all or none. Those of a pattern that can't be probed are left out, but one must be there.
func (pt *part) register(ctx context.Context) error {
	all := pt.places.All()
	kept, err := trace.Register(ctx, all, pt.registerAll, pt.refused)
	pt.places.Set(kept)
	switch {
	case err != nil:
	case len(all) > 0 && len(kept) == 0:
		err = errors.New("none of its places can be probed")
	default:
		there := make([]trace.Placed, len(kept))
		for i, at := range kept {
			there[i] = trace.Placed{Place: at.Place, Kprobe: at.kp}
		}
		err = pt.waits.Await(ctx, pt.later, there)
	}
	if err != nil {
		pt.unregister()
		return pt.placeError(err)
	}
	return nil
}

// unregister removes the places, and what waits.
func (pt *part) unregister() {
	pt.waits.Remove()                                // first, lest more come
	_ = pt.m.session.UnregisterKprobes(pt.kprobes()) // Close tells what can't be undone
}

// refused leaves a place of a pattern out that can't be probed.
func (pt *part) refused(at *site, err error) error {
	if !at.Optional || errors.Is(err, kprobes.ErrExited) || errors.Is(err, kprobes.ErrClosed) {
		return err
	}
	pt.skipped++
	return nil
}

func (pt *part) registerAll(ctx context.Context, places []*site) error {
	if !pt.p.returns {
		kps := make([]*kprobes.Kprobe, len(places))
		for i, at := range places {
			kps[i] = at.kp
		}
		return pt.m.session.RegisterKprobes(ctx, kps)
	}
	rps := make([]*kprobes.Kretprobe, len(places))
	for i, at := range places {
		rps[i] = at.rp
	}
	return pt.m.session.RegisterKretprobes(ctx, rps)
}

// switchTo arms the places and what will come, or disarms them and keeps them.
func (pt *part) switchTo(ctx context.Context, on bool) error {
	pt.arms.Store(on)
	err := pt.switchAll(ctx, on)
	if err != nil && on {
		pt.arms.Store(false)
	}
	return err
}

func (pt *part) switchAll(ctx context.Context, on bool) error {
	if on {
		return pt.m.session.EnableWhenThere(ctx, pt.kprobes())
	}
	var errs []error
	for _, kp := range pt.kprobes() {
		errs = append(errs, pt.m.session.DisableKprobe(kp))
	}
	return errors.Join(errs...)
}

func (pt *part) kprobes() []*kprobes.Kprobe {
	var all []*kprobes.Kprobe
	for _, at := range pt.places.All() {
		all = append(all, at.kp)
	}
	return all
}
