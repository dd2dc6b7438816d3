package script

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// part is a probe in one process.
type part struct {
	p      *probe
	m      *member
	places []*site
	values map[*site]*values.Values // of args and filter; nil if there are none

	registered bool
	on         bool   // it is armed, as far as is known
	handled    uint64 // hits or returns that met the filter, if there is a pre or ret
	skipped    int    // places of a pattern that can't be probed
}

// newPart finds p's places in a process. Nothing is registered.
func (p *probe) newPart(ctx context.Context, m *member) (*part, error) {
	pt := &part{p: p, m: m}
	err := pt.resolve(ctx)
	if err == nil {
		err = pt.fetching(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, at := range pt.places {
		pt.handle(at)
	}
	return pt, nil
}

// resolve lists the places that p's specification stands for.
func (pt *part) resolve(ctx context.Context) error {
	p := pt.p
	r := trace.Resolver{Table: pt.m.session.Symbols(), Returns: p.returns, Programs: pt.m.session.AwaitsPrograms()}
	found, err := r.Resolve(ctx, p.spec)
	var refused *trace.PlaceError
	if errors.As(err, &refused) {
		return refused.Err // the scenario's line names it
	}
	for _, at := range found {
		if at.Return != p.returns {
			return errors.New(trace.ReturnSuffix + " is for kretprobe, which follows calls to their returns")
		}
		one := pt.site(at.Name, at.Symbol, at.Addr)
		one.waits, one.option = at.Waits, at.Optional
		pt.places = append(pt.places, one)
	}
	return err
}

// site makes a place of p, by symbol, or by address where there is none. It is armed when all are registered.
func (pt *part) site(name, symbol string, addr arch.Addr) *site {
	at := &site{part: pt, name: name}
	if pt.p.returns {
		at.rp = &kprobes.Kretprobe{}
		at.kp = &at.rp.KP
	} else {
		at.kp = &kprobes.Kprobe{}
	}
	at.kp.Flags = kprobes.FlagDisabled
	if at.kp.SymbolName = symbol; symbol == "" {
		at.kp.Addr = addr
	}
	return at
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
			_ = pt.m.session.UnregisterKprobes(pt.kprobes()) // Close tells what can't be undone
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
	_, err := trace.Register(ctx, pt.places, pt.registerAll, pt.refused)
	if err == nil && len(pt.places) > 0 && len(pt.kprobes()) == 0 {
		err = errors.New("none of its places can be probed")
	}
	if err != nil {
		_ = pt.m.session.UnregisterKprobes(pt.kprobes()) // Close tells what can't be undone
		return pt.placeError(err)
	}
	return nil
}

// refused leaves a place of a pattern out that can't be probed.
func (pt *part) refused(at *site, err error) error {
	if !at.option || errors.Is(err, kprobes.ErrExited) || errors.Is(err, kprobes.ErrClosed) {
		return err
	}
	at.gone = true
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

// switchTo arms the places, or disarms them and keeps them.
func (pt *part) switchTo(ctx context.Context, on bool) error {
	if on {
		return pt.m.session.EnableKprobes(ctx, pt.kprobes())
	}
	var errs []error
	for _, kp := range pt.kprobes() {
		errs = append(errs, pt.m.session.DisableKprobe(kp))
	}
	return errors.Join(errs...)
}

func (pt *part) kprobes() []*kprobes.Kprobe {
	var all []*kprobes.Kprobe
	for _, at := range pt.places {
		if !at.gone {
			all = append(all, at.kp)
		}
	}
	return all
}
