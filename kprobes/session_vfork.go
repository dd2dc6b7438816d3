package kprobes

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/gokprobe/gokprobe/internal/recovery"
	"github.com/gokprobe/gokprobe/ptrace"
)

// A thread inside vfork(2) can't be stopped, and where a process has no other one, nobody can make system calls for us there: no memory can be mapped, and
// no action of a signal changed. Its child runs in the same memory meanwhile, with its own actions, which it has from before the call. It ends the call within
// microseconds as a rule, by exec or its end. So
//
//	code is patched      when there is a guard, by which who comes to the code outlives us, or the call has lasted for vforkGrace
//	the guard is made    at the latest when the call ends (VforkEnded)
//	all is given back    when the call has ended, or has lasted for vforkGrace (Close)

// vforkGrace is how long we wait for a process that is inside vfork(2).
const vforkGrace = time.Second

// errInsideVfork is why something has not been done.
var errInsideVfork = recovery.ErrInsideVfork

// insideVfork tells whether a process of the address space is inside vfork(2). In a Freeze it is certain.
func (d *domain) insideVfork() bool {
	return slices.ContainsFunc(d.space.Processes(), (*ptrace.Process).InsideVfork)
}

// outsideVfork is do for an f that patches code. Where a guard can't be had while a process is inside vfork(2), f is done again after a while. A handler
// can't wait. All of that ends with ctx.
func (he *heed) outsideVfork(ctx context.Context, f func() error) error {
	own, end := he.s.tracer.Own(), time.Now().Add(vforkGrace)
	for {
		waits := false
		err := he.s.do(func() error {
			defer func(before bool) { he.patient = before }(he.patient)
			he.patient = !own && time.Now().Before(end)
			defer he.until(ctx)()
			if err := he.wanted(); err != nil {
				return err
			}
			if waits = he.patient && he.anyInsideVfork(func(d *domain) bool { return d.guard.lacksGuard() }); waits {
				return nil
			}
			if !he.patient && !own {
				he.hasWaited()
			}
			err := f()
			waits = he.patient && (errors.Is(err, errInsideVfork) || errors.Is(err, ptrace.ErrNoThread))
			return err
		})
		if !waits {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// anyInsideVfork tells whether a process of a domain that is like this is known to be inside vfork(2). It stops nobody, so one may be about to be.
func (he *heed) anyInsideVfork(like func(*domain) bool) bool {
	for d := range he.s.settled() {
		if like(d) && d.insideVfork() {
			return true
		}
	}
	return false
}

// hasWaited notes the present calls, so that nobody waits for them again.
func (he *heed) hasWaited() {
	for d := range he.s.settled() {
		d.guard.waited = d.guard.waited || d.insideVfork()
	}
}

// lacksGuard tells that a guard is still to be made, and is worth waiting for.
func (g *guard) lacksGuard() bool {
	return !g.d.memory.private && !g.d.guard.none && !g.d.guard.waited && (!g.d.guard.tried || g.d.guard.incomplete)
}

// unguarded is why code is not to be patched yet. In a followed child it is: nobody would try again there.
func (g *guard) unguarded() error {
	if g.d.session.heed.patient && g.d == g.d.session.mainDomain() && g.d.guard.incomplete && !g.d.guard.waited && g.d.insideVfork() {
		return errInsideVfork
	}
	return nil
}

// VforkEnded implements ptrace.Handler: now th can set the actions of its process.
func (s hooks) VforkEnded(th *ptrace.Thread) {
	defer s.heirs.within()()
	d := s.spaces.Of(th.Proc.Space)
	if d != nil {
		d.guard.waited = false
	}
	if d == nil || d.guard.tried && !d.guard.incomplete || d.guard.none || d.memory.private || d.released {
		return
	}
	s.settled()
	for _, key := range d.masks.unfinished {
		delete(d.masks.searched, key)
	}
	d.masks.unfinished = nil
	defer d.look.anew()()
	if d.guard.incomplete = false; len(d.sites) == 0 {
		return
	}
	d.guard.guardSites(slices.Collect(maps.Values(d.sites)))
	for _, st := range d.sites {
		if st.jump() != nil {
			d.guard.guardDetour(st.jump())
		}
	}
}
