package kprobes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/patch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// The optimizer, as kprobe_optimizer in kernel/kprobes.c: a while after a site's probes have
// changed it replaces the breakpoints of all sites that qualify by jumps, and takes jumps
// back that nobody wants any more, all in one Freeze.
//
//	            queue                         pass
//	breakpoint ────────> breakpoint, queued ────────> jump, switched on
//	     ^  <──────────          │                        │     ^
//	     │      dequeue          │                disable │     │ enable (rescue)
//	     │                       │                        v     │
//	     │ force (a PostHandler, a probe inside …)   jump, switched off
//	     └────────────────────────────────────────────────┘ pass: the original code
//
// # What other threads see
//
// A jump is written, or taken back, only while all threads of the address space are stopped
// and none has an exception that is not reported yet (ptrace.Space.Freeze). Each of them
// stands in front of an instruction. There are four cases.
//
//  1. It stands at the site: it executes the jump, whole, or afterwards the breakpoint or
//     the original instruction.
//  2. It stands at the head of an instruction inside the five bytes, or will come there: by
//     a branch, a return, from a signal's handler, as a goroutine that was preempted there.
//     The byte at each such head traps, and then the tracer sends the thread to the copy of
//     that instruction; or the jump has the same bytes as the original code from this head
//     on. Which, optimize has chosen. When the jump is taken back the original is there.
//  3. It stands in the detour. Nothing there changes as long as a thread may be inside.
//     The detour ends in the original code behind what was displaced.
//  4. It stands anywhere else: nothing has changed for it.
//
// No thread can stand between two heads: optimize refuses a function with a branch to such a
// place. Processors serialise when they return to user mode (SDM vol. 3A "Handling Self- and
// Cross-Modifying Code"), so none has stale bytes of the code.
//
// The switch is one byte of the detour's first instruction, a short jump's displacement. A
// thread jumps to one place or the other; both are right for the site.

// optimizeDelay is how long changes are collected: the kernel's OPTIMIZE_DELAY of 5 jiffies.
const optimizeDelay = 20 * time.Millisecond

// batchSize is the number of sites that change in one Freeze.
const batchSize = 512

// optimizer is what a domain knows of jumps.
type optimizer struct {
	queue          map[*site]bool // to be optimized or, without enabled probes, put back
	detours        map[arch.Addr]*detour
	heads          map[arch.Addr]*detour // trapping heads of armed jumps
	counters       map[*counter]bool
	jumps          map[arch.Addr]*pastJump
	retiredDetours int
}

func (o *optimizer) init() {
	o.queue, o.heads, o.counters = map[*site]bool{}, map[arch.Addr]*detour{}, map[*counter]bool{}
	o.detours, o.jumps = map[arch.Addr]*detour{}, map[arch.Addr]*pastJump{}
}

// enqueue has the optimizer look at st.
func (d *domain) enqueue(st *site) {
	d.queue[st] = true
	d.session.kick()
}

// kick starts the optimizer after a while, if it does not wait already.
func (s *Session) kick() {
	if s.optimizing != nil || s.closed {
		return
	}
	s.optimizing = make(chan struct{})
	time.AfterFunc(optimizeDelay, s.optimizeLater)
}

// optimizeLater runs passes until the queues are empty.
func (s *Session) optimizeLater() {
	again := true
	for again {
		if s.do(func() error { again = s.pass(); return nil }) != nil {
			return // the session is closed
		}
	}
}

// WaitForOptimizer waits until every site that can be optimized is, and those that are not
// wanted any more have their original code back (wait_for_kprobe_optimizer). It returns at once
// in a handler. The error matches that of ctx and its cause if ctx is done before, ErrExited or ErrClosed if the process or the session has ended.
func (s *Session) WaitForOptimizer(ctx context.Context) error {
	for {
		var busy chan struct{}
		switch err := s.tracer.Do(func() { busy = s.optimizing }); {
		case err != nil:
			return ErrClosed
		case busy == nil, s.tracer.Own():
			return nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return over(ctx)
		case <-s.done:
			if s.exit.Load() != nil {
				return ErrExited
			}
			return ErrClosed
		}
	}
}

// SetOptimization is the kernel's sysctl debug.kprobes-optimization. Turning it on returns at
// once; turning it off returns when all jumps are gone (E32).
func (s *Session) SetOptimization(on bool) error {
	return s.do(func() error {
		s.opts.NoOptimize = !on
		return s.whileMapped(func() error {
			var errs []error
			for d := range s.domains {
				if !on {
					errs = append(errs, d.unlessEnding(d.unoptimizeAll()))
				}
				for _, st := range d.sites {
					d.consider(st)
				}
			}
			return errors.Join(errs...)
		})
	})
}

// pass works on one batch of each domain, and reports whether more is to be done. If not, it
// is the last until the next kick.
func (s *Session) pass() (again bool) {
	defer func() {
		if !again && s.optimizing != nil {
			close(s.optimizing)
			s.optimizing = nil
		}
	}()
	for d := range s.domains {
		if len(d.queue) == 0 || d.released || d.busy {
			continue
		}
		d.survey = nil
		if err := d.unlessEnding(d.optimizeBatch()); err != nil && !s.dying() {
			s.warn("optimizing probes: %v", err)
		}
		d.survey = nil
		again = again || len(d.queue) > 0
	}
	return again
}

// optimizeBatch takes a batch of sites off the queue: those that qualify get a detour, then
// the code changes.
func (d *domain) optimizeBatch() error {
	var put, take []*site
	for st := range d.queue {
		if len(put)+len(take) == batchSize {
			break
		}
		delete(d.queue, st)
		switch {
		case d.sites[st.addr] != st:
		case st.jump() != nil:
			if !st.wanted() || st.jump().demoted() {
				take = append(take, st)
			}
		case st.patch() == nil || !st.patch().Armed():
		default:
			if st.refusal = d.prepare(st); st.refusal == "" {
				put = append(put, st)
			} else {
				st.showOptimized()
			}
		}
	}
	if len(put)+len(take) == 0 {
		return nil
	}
	defer d.collectDetours()
	return d.space.Freeze(func(frozen *ptrace.Frozen) error {
		if len(d.rings) > 0 {
			d.noteAll()
		}
		return errors.Join(d.unoptimize(frozen, take), d.optimize(frozen, put))
	})
}

// prepare makes st ready for a jump, or says why it gets none.
func (d *domain) prepare(st *site) (refusal string) {
	w, refusal := d.qualifies(st)
	if refusal != "" {
		return refusal
	}
	if !st.bare() && d.beset(st) {
		return besetRefusal
	}
	det, err := d.makeDetour(st, w)
	if err != nil {
		return err.Error()
	}
	if inner := d.armedInside(det.region(), st); inner != nil {
		d.discardDetour(det)
		return fmt.Sprintf("another probe lies in the optimized region, at %s", inner.addr)
	}
	st.planJump(det)
	return ""
}

// optimize replaces breakpoints by jumps.
func (d *domain) optimize(frozen *ptrace.Frozen, sites []*site) error {
	sites = slices.DeleteFunc(slices.Clone(sites), d.changedSince)
	var errs []error
	for _, st := range sites {
		det := st.next()
		d.remember(det)
		d.noteTorn(det)
		d.noteStrays(det)
		d.guardDetour(det)
		errs = append(errs, d.turn(det, true))
	}
	d.noteFaults(sites)
	err := d.exchange(frozen, wantsOf(sites), sites)
	for _, st := range sites {
		if p, ok := d.text.Find(st.addr); ok && p.Range().Len() == uint64(len(st.next().jump)) {
			d.jumping(st, p)
		} else {
			d.giveUp(st, err)
		}
	}
	if err != nil {
		errs = append(errs, err, d.rearm(sites))
	}
	return errors.Join(errs...)
}

// wantsOf is the jumps that sites are about to get.
func wantsOf(sites []*site) []patch.Want {
	wants := make([]patch.Want, len(sites))
	for i, st := range sites {
		wants[i] = patch.Want{At: st.addr, Expect: st.next().displaced(), Replacement: st.next().jump}
	}
	return wants
}

// jumping notes that st's jump, p, stands. If it was not written whole, nor could be taken back, it
// may lead to the detour all the same.
func (d *domain) jumping(st *site, p *patch.Patch) {
	st.written(p)
	det := st.jump()
	for _, h := range det.heads {
		d.heads[h] = det
	}
	det.count.give(st.counted())
}

// unoptimize takes jumps back: sites that are wanted get their breakpoints, the others their
// original code. A jump that can't be written over stays, and so does its detour.
func (d *domain) unoptimize(frozen *ptrace.Frozen, sites []*site) error {
	for _, st := range sites {
		d.lateHeads(st.jump())
	}
	taken, err := d.takeAway(frozen, sites)
	sites = nil
	for _, t := range taken {
		st, det := t.site, t.jump
		sites = append(sites, st)
		if det.demoted() {
			st.refusal = det.demotedFor()
			st.rejected = true
		}
		switch {
		case det.beside:
			st.refusal, st.rejected = besideRefusal, true
		case det.beset:
			st.refusal, st.rejected = besetRefusal, true
		}
		if !t.changed { // else threads may still come to what is left of it
			d.forgetHeads(det)
			d.retireDetour(det)
		}
		st.showOptimized()
	}
	if err = errors.Join(err, d.rearm(sites)); err != nil {
		return fmt.Errorf("taking back jumps: %w", err)
	}
	for _, st := range sites {
		if d.settleUnused(st); st.patch() == nil {
			d.uncovered(st)
		}
	}
	return nil
}

// forgetHeads says that no byte of det's jump traps any more.
func (d *domain) forgetHeads(det *detour) {
	for _, h := range det.heads {
		delete(d.heads, h)
		d.unguard(h)
	}
}

// settleUnused ends a site whose probes have gone while it had a jump.
func (d *domain) settleUnused(st *site) {
	if len(st.probes) > 0 || st.wanted() || d.sites[st.addr] != st {
		return
	}
	delete(d.sites, st.addr)
	if err := d.region.Retire(st.slot.Addr); err != nil {
		d.session.warn("retiring the slot of %s: %v", st.addr, err)
	}
}

// unoptimizeNow is unoptimize for whoever can't wait (the kernel's force).
func (d *domain) unoptimizeNow(sites []*site) error {
	sites = slices.DeleteFunc(slices.Clone(sites), func(st *site) bool { return st.jump() == nil })
	if len(sites) == 0 {
		return nil
	}
	return d.space.Freeze(func(frozen *ptrace.Frozen) error { return d.unoptimize(frozen, sites) })
}

func (d *domain) unoptimizeAll() error {
	var sites []*site
	for _, st := range d.sites {
		if st.jump() != nil {
			sites = append(sites, st)
		}
	}
	return d.unoptimizeNow(sites)
}

// abandonJump forgets the jump to det of a site whose code is gone.
func (d *domain) abandonJump(det *detour) {
	for _, h := range det.heads {
		delete(d.heads, h)
	}
	d.retireDetour(det)
}
