package kprobes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/patch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// The optimizer, as kprobe_optimizer in kernel/kprobes.c: a while after a site's probes have
// changed it replaces the breakpoints of all sites that qualify by jumps, and takes jumps
// back that nobody wants any more, all in one Freeze. In a process that is followed a site
// is queued when it is hit, not before (lazily); where an executed program has few that the target counts, they get their jumps before it begins (atOnce).
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

// # Slices
//
// A thread that comes to a breakpoint stands until the tracer has time for it, and all stand during a Freeze. So the work is done in slices: one prepares
// detours for sliceTime, in which nothing of the program's changes, and then writes in one Freeze what was prepared. Between two slices the tracer
// deals with all threads that have stopped meanwhile. What threads see then is what they may see after any pass: some sites of the queue have their
// jumps, whole, and the others their breakpoints, which count the same hits. Sites come in the order of their addresses, so the code of a
// page is read and decoded in one slice.

// sliceTime is how long one slice prepares, up to twice that where it takes so long until all threads stand: with many threads, and on a machine that has other
// work, most of the time would go into that. leastInSlice is how many sites it has at least, if there are
// as many: less would hardly be worth its Freeze. Tests have no time.
var sliceTime = 3 * time.Millisecond

const leastInSlice = 16

// batchSize is the number of sites that change in one Freeze at most.
const batchSize = 512

// optimizer is what a domain knows of jumps.
type optimizer struct {
	d     *domain
	queue map[*site]bool // to be optimized or, without enabled probes, put back
	order []*site        // the queue as it was when the last round began, what is left of it, by address
	// stopping is how long it took the last time until all threads stood.
	stopping time.Duration
	seen     lookedAt       // what the last slice has seen of mappings
	noted    time.Time      // when a slice of this round has read the actions for faults
	unhit    map[*site]bool // to be queued when they are hit; nil unless the optimizer is lazy
	jumps    map[arch.Addr]*pastJump
}

// enqueue puts st into the optimizer's queue.
func (opt *optimizer) enqueue(st *site) {
	opt.queue[st] = true
	opt.d.session.passes.kick()
}

// lazily makes sites wait for their first hit before they are queued. It is for processes that are followed: most of them, such as
// a shell's commands, end before they have called more than a few functions, and a detour for each of thousands costs a second.
func (opt *optimizer) lazily() { opt.unhit = map[*site]bool{} }

// want queues st for a jump, now or when it is hit.
func (opt *optimizer) want(st *site) {
	if opt.unhit == nil || opt.queue[st] || st.mask != nil { // which keeps threads from blocking SIGTRAP: it is to be whole at once
		opt.enqueue(st)
	} else {
		opt.unhit[st] = true
	}
}

// leave takes st off the optimizer's lists.
func (opt *optimizer) leave(st *site) {
	delete(opt.queue, st)
	delete(opt.unhit, st)
}

// hit is told of a hit of st's breakpoint.
func (opt *optimizer) hit(st *site) {
	if opt.unhit[st] {
		delete(opt.unhit, st)
		opt.enqueue(st)
	}
}

// hasten queues all that wait for a hit.
func (opt *optimizer) hasten() {
	for st := range opt.unhit {
		opt.hit(st)
	}
}

// hasWork tells whether a pass is to look at the optimizer's queue.
func (d *domain) hasWork() bool {
	return len(d.optimizer.queue) > 0 && !d.released && !d.linker.busy
}

// WaitForOptimizer waits until every site that can be optimized is, and those that are not
// wanted any more have their original code back (wait_for_kprobe_optimizer). It returns at once
// in a handler. With only it waits for the sites of those probes. The error matches that of ctx and its cause if ctx is done before, ErrExited or
// ErrClosed if the process or the session has ended.
func (s *Session) WaitForOptimizer(ctx context.Context, only ...*Kprobe) error {
	work := s.passes.all
	if len(only) > 0 {
		work = func() chan struct{} { return s.passes.of(only) }
	}
	for {
		var busy chan struct{}
		switch err := s.tracer.Do(func() {
			s.settled()
			busy = work()
		}); {
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
		return s.registry.whileMapped(func() error {
			var errs []error
			for d := range s.settled() {
				if !on {
					errs = append(errs, d.unlessEnding(d.optimizer.unoptimizeAll()))
				}
				for _, st := range d.sites {
					d.optimizer.consider(st)
				}
			}
			return errors.Join(errs...)
		})
	})
}

// pass works on one batch of each domain, and reports whether more is to be done. If not, it
// is the last until the next kick.
func (ps *passes) pass() (again bool) {
	defer func() {
		if !again && ps.optimizing != nil {
			close(ps.optimizing)
			ps.optimizing = nil
		}
	}()
	for _, d := range ps.s.heirs.settledLike((*domain).hasWork) {
		if !d.hasWork() {
			continue // what was done for another one has changed that
		}
		end := d.look.anew()
		d.look.resume(&d.optimizer.seen)
		if err := d.unlessEnding(d.optimizer.optimizeSlice()); err != nil && !ps.s.dying() {
			ps.s.warn("optimizing probes: %v", err)
		}
		d.optimizer.endRound()
		end()
	}
	for d := range ps.s.domains {
		again = again || d.hasWork()
	}
	return again
}

// endRound forgets what was found for the slices of a round when the last of them is done.
func (opt *optimizer) endRound() {
	if len(opt.queue) == 0 {
		opt.seen, opt.order, opt.noted = lookedAt{}, nil, time.Time{}
	}
}

// queued is the sites of the queue in the order in which they are dealt with, the first of which belong to this slice.
func (opt *optimizer) queued(yield func(*site) bool) {
	lasts := min(max(sliceTime, opt.stopping), 2*sliceTime)
	for began, n := time.Now(), 0; len(opt.queue) > 0 && n < batchSize && (n < leastInSlice || time.Since(began) < lasts); {
		if len(opt.order) == 0 {
			opt.order = slices.SortedFunc(maps.Keys(opt.queue), func(a, b *site) int { return cmp.Compare(a.addr, b.addr) })
		}
		st := opt.order[0]
		if opt.order = opt.order[1:]; !opt.queue[st] {
			continue // it has left the queue since
		}
		if n++; !yield(st) {
			return
		}
	}
}

// optimizeSlice takes some sites off the queue: those that qualify get a detour, then
// the code changes.
func (opt *optimizer) optimizeSlice() error {
	var put, take []*site
	for st := range opt.queued {
		opt.leave(st)
		switch {
		case opt.d.sites[st.addr] != st:
		case st.jump() != nil:
			if !st.wanted() || st.jump().demoted() {
				take = append(take, st)
			}
		case st.patch() == nil || !st.patch().Armed():
		default:
			why, err := opt.prepare(st)
			switch st.noJump.now(why); {
			case errors.Is(err, ptrace.ErrNoThread) && opt.d.space.Ending(): // nobody will map memory any more: not for the thousands behind it either
				clear(opt.queue)
			case why == "":
				put = append(put, st)
			default:
				st.showOptimized()
			}
		}
	}
	if len(put)+len(take) == 0 {
		return nil
	}
	defer opt.d.detours.collect()
	opt.d.guard.expect(put)
	asked := time.Now()
	return opt.d.space.Freeze(func(frozen *ptrace.Frozen) error {
		opt.stopping = time.Since(asked)
		if len(opt.d.recorder.rings) > 0 {
			opt.d.recorder.noteAll()
		}
		return errors.Join(opt.unoptimize(frozen, take), opt.optimize(frozen, put))
	})
}

// prepare makes st ready for a jump, or says why it gets none; err is an error that made it so.
func (opt *optimizer) prepare(st *site) (refusal string, err error) {
	w, refusal := opt.qualifies(st)
	if refusal != "" {
		return refusal, nil
	}
	if !st.bare() && opt.d.neighbours.besetSite(st) {
		return besetRefusal, nil
	}
	det, err := opt.d.detours.make(st, w)
	if err != nil {
		return err.Error(), err
	}
	if inner := opt.armedInside(det.region(), st); inner != nil {
		opt.d.detours.discard(det)
		return fmt.Sprintf("another probe lies in the optimized region, at %s", inner.addr), nil
	}
	st.planJump(det)
	return "", nil
}

// optimize replaces breakpoints by jumps.
func (opt *optimizer) optimize(frozen *ptrace.Frozen, sites []*site) error {
	sites = slices.DeleteFunc(slices.Clone(sites), opt.changedSince)
	var errs []error
	for _, st := range sites {
		det := st.next()
		opt.remember(det)
		opt.d.neighbours.noteTorn(det)
		opt.d.neighbours.noteStrays(det)
		opt.d.guard.guardDetour(det)
		errs = append(errs, opt.d.detours.turn(det, true))
	}
	opt.noteFaults(sites)
	err := opt.exchange(frozen, wantsOf(sites), sites)
	for _, st := range sites {
		if p, ok := opt.d.text.Find(st.addr); ok && p.Range().Len() == uint64(len(st.next().jump)) {
			opt.jumping(st, p)
		} else {
			opt.giveUp(st, err)
		}
	}
	if err != nil {
		errs = append(errs, err, opt.rearm(sites))
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

// jumping notes that st's jump, p, stands. If it was not written whole and could not be
// taken back, it may still lead to the detour.
func (opt *optimizer) jumping(st *site, p *patch.Patch) {
	st.written(p)
	det := st.jump()
	for _, h := range det.heads {
		opt.d.detours.heads[h] = det
	}
	det.count.give(st.counted())
}

// unoptimize takes jumps back: sites that are wanted get their breakpoints, the others
// their original code. A jump that can't be written over stays, and its detour stays,
// too.
func (opt *optimizer) unoptimize(frozen *ptrace.Frozen, sites []*site) error {
	for _, st := range sites {
		opt.d.detours.lateHeads(st.jump())
	}
	taken, err := opt.takeAway(frozen, sites)
	sites = nil
	for _, t := range taken {
		st, det := t.site, t.jump
		sites = append(sites, st)
		if det.demoted() {
			st.noJump.ever(det.demotedFor())
		}
		switch {
		case det.beside:
			st.noJump.ever(besideRefusal)
		case det.beset:
			st.noJump.ever(besetRefusal)
		}
		if !t.changed { // else threads may still come to what is left of it
			opt.forgetHeads(det)
			opt.d.detours.retire(det)
		}
		st.showOptimized()
	}
	if err = errors.Join(err, opt.rearm(sites)); err != nil {
		return fmt.Errorf("taking back jumps: %w", err)
	}
	for _, st := range sites {
		if opt.settleUnused(st); st.patch() == nil {
			opt.uncovered(st)
		}
	}
	return nil
}

// forgetHeads says that no byte of det's jump traps any more.
func (opt *optimizer) forgetHeads(det *detour) {
	for _, h := range det.heads {
		delete(opt.d.detours.heads, h)
		opt.d.guard.unguard(h)
	}
}

// settleUnused ends a site whose probes have gone while it had a jump.
func (opt *optimizer) settleUnused(st *site) {
	if len(st.probes) > 0 || st.wanted() || opt.d.sites[st.addr] != st {
		return
	}
	delete(opt.d.sites, st.addr)
	opt.d.slots.give(st)
}

// unoptimizeNow is unoptimize for whoever can't wait (the kernel's force).
func (opt *optimizer) unoptimizeNow(sites []*site) error {
	sites = slices.DeleteFunc(slices.Clone(sites), func(st *site) bool { return st.jump() == nil })
	if len(sites) == 0 {
		return nil
	}
	return opt.d.space.Freeze(func(frozen *ptrace.Frozen) error { return opt.unoptimize(frozen, sites) })
}

func (opt *optimizer) unoptimizeAll() error {
	var sites []*site
	for _, st := range opt.d.sites {
		if st.jump() != nil {
			sites = append(sites, st)
		}
	}
	return opt.unoptimizeNow(sites)
}

// abandonJump forgets the jump to det of a site whose code is gone.
func (opt *optimizer) abandonJump(det *detour) {
	for _, h := range det.heads {
		delete(opt.d.detours.heads, h)
		_ = opt.d.region.ClearResume(h)
	}
	opt.d.detours.retire(det)
}
