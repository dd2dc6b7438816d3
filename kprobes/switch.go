package kprobes

import "errors"

// DisarmAll takes away all breakpoints of the session, as writing 0 to the kernel's
// kprobes/enabled (disarm_all_kprobes): until ArmAll no probe is hit. Probes stay registered,
// and what is registered, enabled or disabled meanwhile takes effect with ArmAll; no flag
// changes (A33). Calls that a Kretprobe follows still run its Handler (C32), and what the
// dynamic linker does is still noticed. The error names what could not be disarmed; everything
// else is (F14).
func (s *Session) DisarmAll() error { return s.armAll(false) }

// ArmAll undoes DisarmAll. The error names what could not be armed; everything else is.
func (s *Session) ArmAll() error { return s.armAll(true) }

func (s *Session) armAll(arm bool) error {
	return s.do(func() error {
		if s.disarmed == !arm {
			return nil
		}
		s.disarmed = !arm
		s.forgetSurveys()
		defer s.forgetSurveys()
		return s.whileMapped(func() error {
			var errs []error
			for d := range s.domains {
				for _, st := range d.sites {
					errs = append(errs, d.unlessEnding(d.refresh(st)))
				}
			}
			return errors.Join(errs...)
		})
	})
}

// Disarmed tells whether DisarmAll holds.
func (s *Session) Disarmed() bool {
	var off bool
	_ = s.tracer.Do(func() { off = s.disarmed })
	return off
}

func (s *Session) setDisabled(kp *Kprobe, disable bool) error {
	return s.do(func() error {
		return s.whileMapped(func() error { return s.changeDisabled(kp, disable) })
	})
}

func (s *Session) changeDisabled(kp *Kprobe, disable bool) error {
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
		errs = append(errs, pl.domain.unlessEnding(pl.domain.refresh(pl.site)))
	}
	if err := errors.Join(errs...); err != nil {
		kp.Flags = before
		for _, pl := range kp.placements {
			_ = pl.domain.refresh(pl.site)
		}
		return probeError(kp, err)
	}
	return nil
}
