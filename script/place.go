package script

import (
	"context"
	"errors"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// resolve lists the places that p's specification stands for.
func (p *probe) resolve() ([]*site, error) {
	r := trace.Resolver{Table: p.s.session.Symbols(), Returns: p.returns}
	found, err := r.Resolve(p.s.heeded(), p.spec)
	var refused *trace.PlaceError
	if errors.As(err, &refused) {
		return nil, refused.Err // the scenario's line names it
	}
	all := make([]*site, 0, len(found))
	for _, at := range found {
		if at.Return != p.returns {
			return nil, errors.New(trace.ReturnSuffix + " is for kretprobe, which follows calls to their returns")
		}
		one := p.site(at.Name, at.Symbol, at.Addr)
		one.waits, one.option = at.Waits, at.Optional
		all = append(all, one)
	}
	return all, err
}

// site makes a place of p, by symbol, or by address where there is none. It is armed when all are registered.
func (p *probe) site(name, symbol string, addr arch.Addr) *site {
	at := &site{probe: p, name: name}
	if p.returns {
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

// Arm registers and arms all probes of the scenario, or none; then timers begin to run.
// The error is an *Error with the place of the call that made the probe.
func (s *Script) Arm() error {
	err := kprobes.ErrClosed // if the work does not come to its end
	if derr := s.session.Do(func() {
		if err = s.armAll(); err == nil {
			s.begun = true
			s.timers.begin(time.Now())
		}
	}); derr != nil {
		return derr
	}
	return err
}

// armAll arms what the file has declared.
func (s *Script) armAll() error {
	if err := s.inject(s.injections); err != nil {
		return err
	}
	if err := s.arm(s.probes); err != nil {
		if s.injector != nil {
			err = errors.Join(err, s.injector.Close())
		}
		return err
	}
	return nil
}

// arm registers silent probes, and enables them when all are there.
func (s *Script) arm(probes []*probe) error {
	var done []*probe
	undo := func(p *probe, err error) error {
		for _, p := range done {
			_ = s.session.UnregisterKprobes(p.kprobes()) // Close tells what can't be undone
		}
		return s.placeError(p, err)
	}
	for _, p := range probes {
		done = append(done, p)
		if err := p.register(); err != nil {
			return undo(p, err)
		}
	}
	before := s.armed
	s.armed = true // what a handler disables now is told to the session
	if p, err := s.enableAll(probes); err != nil {
		s.armed = before
		return undo(p, err)
	}
	return nil
}

// enableAll enables all waiting probes, in one go. After an error it tells which probe
// can't be.
func (s *Script) enableAll(probes []*probe) (*probe, error) {
	var enabled []*kprobes.Kprobe
	for _, p := range probes {
		if p.enabled {
			enabled = append(enabled, p.kprobes()...)
		}
	}
	if s.session.EnableKprobes(s.heeded(), enabled) == nil {
		return nil, nil
	}
	for _, p := range probes {
		if err := s.session.EnableKprobes(s.heeded(), p.kprobes()); p.enabled && err != nil {
			return p, err
		}
	}
	return nil, nil
}

func (s *Script) placeError(p *probe, err error) error {
	return s.errorAt(p.pos, trace.NewPlaceError(p.spec, err))
}

// register registers p's places. Those of a pattern that can't be probed are left out, but
// one must be there.
func (p *probe) register() error {
	if err := p.registerAll(p.places); err != nil {
		return err
	}
	var refused error
	for _, at := range p.places {
		if !at.gone {
			return nil
		}
		refused = errors.New("none of its places can be probed")
	}
	return refused
}

// registerAll registers places. If some are refused, all are, and each half is tried for
// itself.
func (p *probe) registerAll(places []*site) error {
	if len(places) == 0 {
		return nil
	}
	err := p.registerBatch(places)
	switch {
	case err == nil:
		return nil
	case p.s.heeded().Err() != nil:
		return err
	case len(places) > 1:
		half := len(places) / 2
		if err := p.registerAll(places[:half]); err != nil {
			return err
		}
		return p.registerAll(places[half:])
	case places[0].option && !errors.Is(err, kprobes.ErrExited) && !errors.Is(err, kprobes.ErrClosed):
		places[0].gone = true
		p.skipped++
		return nil
	}
	return err
}

func (p *probe) registerBatch(places []*site) error {
	if !p.returns {
		kps := make([]*kprobes.Kprobe, len(places))
		for i, at := range places {
			kps[i] = at.kp
		}
		return p.s.session.RegisterKprobes(p.s.heeded(), kps)
	}
	rps := make([]*kprobes.Kretprobe, len(places))
	for i, at := range places {
		rps[i] = at.rp
	}
	return p.s.session.RegisterKretprobes(p.s.heeded(), rps)
}
