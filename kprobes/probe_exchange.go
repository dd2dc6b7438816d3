package kprobes

import (
	"errors"

	"github.com/gokprobe/gokprobe/ptrace"
)

// ExchangeKprobes disables off and enables on at one moment for all threads: no hit is handled by both
// or by none of them. So a probe is replaced, while it is hit, by another at its address. After an error
// both are as they were.
func (s *Session) ExchangeKprobes(off, on *Kprobe) error {
	return s.do(func() error {
		switch {
		case off.session != s:
			return probeError(off, ErrNotRegistered)
		case on.session != s:
			return probeError(on, ErrNotRegistered)
		case on.Flags&FlagGone != 0:
			return probeError(on, ErrGone)
		}
		defer s.registry.looking()()
		return s.registry.whileMapped(func() error { return s.registry.whileFrozen(func() error { return s.registry.exchange(off, on) }) })
	})
}

func (rg *registry) exchange(off, on *Kprobe) error {
	both := []*Kprobe{on, off}
	was := [...]Flags{on.Flags, off.Flags}
	on.Flags &^= FlagDisabled
	off.Flags |= FlagDisabled
	failed, err := rg.refreshOf(both)
	if err == nil {
		return nil
	}
	on.Flags, off.Flags = was[0], was[1]
	_, undo := rg.refreshOf(both)
	return errors.Join(probeError(failed, err), undo)
}

// whileFrozen runs f while no thread of any address space runs.
func (rg *registry) whileFrozen(f func() error) error {
	for d := range rg.s.settled() {
		inner := f
		f = func() error { return d.space.Freeze(func(*ptrace.Frozen) error { return inner() }) }
	}
	return f()
}
