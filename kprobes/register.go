package kprobes

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/symbols"
)

// RegisterKprobe places kp and, unless FlagDisabled is set, arms it. The checks and
// their errors are register_kprobe's: they match, by errors.Is, the package's Err…
// values and the kernel's errno. After an error nothing is armed. kp.Addr holds the
// address where the probe is.
func (s *Session) RegisterKprobe(kp *Kprobe) error {
	addr, err := s.locate(kp) // reads symbols: not on the tracer's thread
	return s.do(func() error {
		if err != nil {
			return probeError(kp, err)
		}
		s.forgetSurveys()
		defer s.forgetSurveys()
		return s.register(kp, addr)
	})
}

func (s *Session) forgetSurveys() {
	for d := range s.domains {
		d.survey = nil
	}
}

// RegisterKprobes registers all of kps or, after an error, none (A45).
func (s *Session) RegisterKprobes(kps []*Kprobe) error {
	if len(kps) == 0 {
		return fmt.Errorf("no probes given: %w", ErrNoAddrOrSymbol)
	}
	addrs := make([]arch.Addr, len(kps))
	for i, kp := range kps {
		var err error
		if addrs[i], err = s.locate(kp); err != nil {
			return s.do(func() error { return probeError(kp, err) })
		}
	}
	return s.do(func() error {
		s.forgetSurveys()
		defer s.forgetSurveys()
		for i, kp := range kps {
			if err := s.register(kp, addrs[i]); err != nil {
				return errors.Join(err, s.unregister(kps[:i]))
			}
		}
		return nil
	})
}

// UnregisterKprobe removes kp. When it returns, none of its handlers runs or will
// run. A probe that is not registered gets its Addr cleared, nothing else (A38). The
// error says what could not be put back.
func (s *Session) UnregisterKprobe(kp *Kprobe) error {
	return s.UnregisterKprobes([]*Kprobe{kp})
}

// UnregisterKprobes removes all of kps that are registered (A46).
func (s *Session) UnregisterKprobes(kps []*Kprobe) error {
	return s.do(func() error { return s.unregister(kps) })
}

// EnableKprobe arms a disabled probe; it does nothing if kp is enabled already.
func (s *Session) EnableKprobe(kp *Kprobe) error {
	return s.setDisabled(kp, false)
}

// DisableKprobe silences kp and keeps it registered. The breakpoint goes when all
// probes at its address are disabled (A50).
func (s *Session) DisableKprobe(kp *Kprobe) error {
	return s.setDisabled(kp, true)
}

// locate finds the address that kp asks for, before the checks.
func (s *Session) locate(kp *Kprobe) (arch.Addr, error) {
	switch {
	case kp.SymbolName != "" && kp.Addr != 0 && kp.session == nil:
		return 0, ErrBothAddrAndSymbol
	case kp.SymbolName == "" && kp.Addr == 0:
		return 0, ErrNoAddrOrSymbol
	case kp.SymbolName == "":
		return kp.Addr.Add(int64(kp.Offset)), nil
	}
	at, err := resolveOne(s.table, kp.SymbolName)
	return at.Add(int64(kp.Offset)), err
}

// resolveOne translates a name that must mean one address.
func resolveOne(table *symbols.Table, name string) (arch.Addr, error) {
	found, err := table.Resolve(name)
	switch {
	case errors.Is(err, symbols.ErrAmbiguous):
		return 0, fmt.Errorf("%w: %w", ErrAmbiguousSymbol, err)
	case errors.Is(err, symbols.ErrUnknownSymbol), errors.Is(err, symbols.ErrUnknownModule):
		return 0, fmt.Errorf("%w: %w", ErrUnknownSymbol, err)
	case err != nil:
		return 0, err
	case len(found) > 1 || found[0].Every.Len() > 0:
		return 0, fmt.Errorf("%w: it stands for %d places", ErrAmbiguousSymbol, len(found))
	}
	return found[0].Addr, nil
}

// register runs on the tracer's thread.
func (s *Session) register(kp *Kprobe, addr arch.Addr) error {
	if kp.session != nil {
		return probeError(kp, ErrRegistered)
	}
	d, _ := s.main.Space.Local.(*domain)
	if d == nil {
		return probeError(kp, ErrExited)
	}
	kp.Flags &= FlagDisabled
	kp.hits.Store(0)
	kp.nmissed.Store(0)
	if err := s.place(kp, d, addr); err != nil {
		return probeError(kp, err)
	}
	kp.session = s
	s.probes = append(s.probes, kp)
	for other := range s.domains {
		if other != d {
			s.placeCopy(kp, other)
		}
	}
	return nil
}

// place puts kp at addr in one address space and writes the address back into it.
func (s *Session) place(kp *Kprobe, d *domain, addr arch.Addr) error {
	at, entry, err := d.checkAddress(addr)
	if err != nil {
		return err
	}
	st := d.siteAt(at)
	fresh := st == nil
	if fresh {
		if st, err = d.makeSite(at); err != nil {
			return err
		}
		d.sites[at] = st
	}
	before := st.probes
	st.probes = append([]*Kprobe{kp}, before...)
	if err := d.refresh(st); err != nil {
		st.probes = before
		if fresh {
			delete(d.sites, at)
			d.discard(st)
		}
		return fmt.Errorf("placing the breakpoint at %s: %w", at, err)
	}
	kp.Addr, kp.entry = at, entry
	kp.placements = append(kp.placements, placement{d, st})
	return nil
}

// placeCopy puts a registered probe into a followed child's memory.
func (s *Session) placeCopy(kp *Kprobe, d *domain) {
	at := kp.Addr
	if err := s.place(kp, d, at); err != nil {
		s.warn("probe %s is not placed in a followed child: %v", kp.name(), err)
	}
	kp.Addr = at
}

// unregister runs on the tracer's thread.
func (s *Session) unregister(kps []*Kprobe) error {
	var errs []error
	for _, kp := range kps {
		if kp.session != s {
			kp.Addr = 0
			continue
		}
		for _, pl := range kp.placements {
			errs = append(errs, pl.domain.drop(kp, pl.site))
		}
		kp.placements, kp.session = nil, nil
		kp.Flags |= FlagDisabled // as the kernel leaves it (A39)
		s.probes = slices.DeleteFunc(s.probes, func(o *Kprobe) bool { return o == kp })
	}
	return errors.Join(errs...)
}

// drop takes kp from a site, and the site away with its last probe.
func (d *domain) drop(kp *Kprobe, st *site) error {
	if d.released || d.sites[st.addr] != st {
		return nil
	}
	st.probes = slices.DeleteFunc(slices.Clone(st.probes), func(o *Kprobe) bool { return o == kp })
	if len(st.probes) > 0 {
		return d.refresh(st)
	}
	return d.remove(st)
}

func (s *Session) setDisabled(kp *Kprobe, disable bool) error {
	return s.do(func() error {
		switch {
		case kp.session != s:
			return probeError(kp, ErrNotRegistered)
		case kp.Flags&FlagGone != 0 && !disable:
			return probeError(kp, ErrGone)
		}
		before := kp.Flags
		if kp.Flags &^= FlagDisabled; disable {
			kp.Flags |= FlagDisabled
		}
		var errs []error
		for _, pl := range kp.placements {
			errs = append(errs, pl.domain.refresh(pl.site))
		}
		if err := errors.Join(errs...); err != nil {
			kp.Flags = before
			for _, pl := range kp.placements {
				_ = pl.domain.refresh(pl.site)
			}
			return probeError(kp, err)
		}
		return nil
	})
}
