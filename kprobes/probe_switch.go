package kprobes

import (
	"context"
	"errors"
)

// DisarmAll takes away all breakpoints of the session, as writing 0 to the kernel's
// kprobes/enabled (disarm_all_kprobes): until ArmAll no probe is hit. Probes stay
// registered, and no flag changes. Registering, enabling and disabling take effect with
// the next ArmAll (A33). Calls that a Kretprobe follows still run its Handler (C32),
// and what the dynamic linker does is still noticed. The error names what could not be
// disarmed; everything else is (F14).
func (s *Session) DisarmAll() error { return s.registry.armAll(false) }

// ArmAll undoes DisarmAll. The error names what could not be armed; everything else is.
func (s *Session) ArmAll() error { return s.registry.armAll(true) }

func (rg *registry) armAll(arm bool) error {
	return rg.s.do(func() error {
		if rg.disarmed == !arm {
			return nil
		}
		rg.disarmed = !arm
		defer rg.looking()()
		return rg.whileMapped(func() error {
			var errs []error
			for d := range rg.s.settled() {
				if !arm {
					errs = append(errs, d.unlessEnding(d.optimizer.unoptimizeAll())) // E30
				}
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
	_ = s.tracer.Do(func() { off = s.registry.disarmed })
	return off
}

// EnableKprobe arms a disabled probe; it does nothing if kp is enabled already.
func (s *Session) EnableKprobe(kp *Kprobe) error {
	return s.EnableKprobes(s.life, []*Kprobe{kp})
}

// EnableKprobes enables all of kps or, after an error, none that was disabled. It is much
// faster than one by one. (The kernel has no such call.) If ctx or the session's own context is done before the first probe is armed, none is: the error
// matches that context's error and cause.
func (s *Session) EnableKprobes(ctx context.Context, kps []*Kprobe) error {
	return s.registry.setDisabled(ctx, kps, false, false)
}

// EnableWhenThere is EnableKprobes, but a probe that is gone and waits is no error: it is armed when its code comes again. (The kernel has none that wait.)
func (s *Session) EnableWhenThere(ctx context.Context, kps []*Kprobe) error {
	return s.registry.setDisabled(ctx, kps, false, true)
}

// DisableKprobe silences kp and keeps it registered. The breakpoint goes when all
// probes at its address are disabled (A50).
func (s *Session) DisableKprobe(kp *Kprobe) error {
	return s.registry.setDisabled(context.Background(), []*Kprobe{kp}, true, true)
}

func (rg *registry) setDisabled(ctx context.Context, kps []*Kprobe, disable, whenThere bool) error {
	ctx, forget := rg.s.within(ctx)
	defer forget()
	return rg.s.do(func() error {
		defer rg.s.heed.until(ctx)()
		for _, kp := range kps {
			switch {
			case kp.session != rg.s:
				return probeError(kp, ErrNotRegistered)
			case kp.Flags&FlagGone != 0 && !disable && !(whenThere && kp.absence.waits):
				return probeError(kp, ErrGone)
			}
		}
		defer rg.looking()()
		return rg.whileMapped(func() error { return rg.changeDisabled(kps, disable) })
	})
}

// changeDisabled restores the old state if that fails (A53).
func (rg *registry) changeDisabled(kps []*Kprobe, disable bool) error {
	before := make([]Flags, len(kps))
	for i, kp := range kps {
		before[i] = kp.Flags
		if kp.Flags &^= FlagDisabled; disable {
			kp.Flags |= FlagDisabled
		}
	}
	failed, err := rg.refreshOf(kps)
	if err == nil {
		return nil
	}
	for i, kp := range kps {
		kp.Flags = before[i]
	}
	for _, kp := range kps {
		for _, pl := range kp.placements {
			_ = pl.domain.refresh(pl.site)
		}
	}
	return probeError(failed, err)
}

// refreshOf makes the sites of kps agree with them. After an error failed is the one to blame.
func (rg *registry) refreshOf(kps []*Kprobe) (failed *Kprobe, err error) {
	sites := map[*domain][]*site{}
	for _, kp := range kps {
		for _, pl := range kp.placements {
			sites[pl.domain] = append(sites[pl.domain], pl.site)
		}
	}
	for d, list := range sites {
		st, err := d.refreshAll(list)
		if err = d.unlessEnding(err); err == nil {
			continue
		}
		for _, kp := range kps {
			if d.placed(kp) == st {
				return kp, err
			}
		}
		return kps[0], err
	}
	return nil, nil
}
