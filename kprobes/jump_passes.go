package kprobes

import (
	"sync"
	"time"
)

// passes is when a session's optimizer works.
type passes struct {
	s          *Session
	optimizing chan struct{} // closed when the optimizer has nothing to do; nil if it has not
	working    sync.Mutex    // held while passes run, until all threads are given back: the next ones would stop whom these let go, for ever
}

// kick starts the optimizer after a while, if it does not wait already.
func (ps *passes) kick() {
	if ps.optimizing != nil || ps.s.closed {
		return
	}
	ps.optimizing = make(chan struct{})
	time.AfterFunc(optimizeDelay, ps.optimizeLater)
}

// all is closed when the optimizer has nothing to do, in followed processes either; nil if that is so now.
func (ps *passes) all() chan struct{} {
	for d := range ps.s.settled() {
		d.optimizer.hasten()
	}
	return ps.optimizing
}

// of is closed when the optimizer may have come to what it has to do for kps; nil if that is nothing.
func (ps *passes) of(kps []*Kprobe) chan struct{} {
	waits := false
	for _, kp := range kps {
		for _, pl := range kp.placements {
			opt := pl.domain.optimizer
			opt.hit(pl.site)
			waits = waits || opt.queue[pl.site]
		}
	}
	if !waits {
		return nil
	}
	return ps.optimizing
}

// optimizeLater runs passes until the queues are empty.
func (ps *passes) optimizeLater() {
	ps.working.Lock()
	defer ps.working.Unlock()
	again := true
	for again {
		ps.stopIdle()
		err := ps.s.doApart(func() error { again = ps.pass(); return nil })
		ps.letIdle()
		if err != nil {
			return // the session is closed
		}
	}
}

// stopIdle has threads that wait in system calls stand before the pass that is about to come, where there are many. Once code of the user's has had them all given back
// it leaves the rest to the pass: it might begin anew for ever.
func (ps *passes) stopIdle() {
	given := uint(0)
	for first, more := true, true; more; first = false {
		more = false
		if ps.s.doApart(func() error { // no domain is changed; heirs have nothing for a pass to do
			if first {
				given = ps.s.tracer.GivenBack()
			} else if given != ps.s.tracer.GivenBack() {
				return nil
			}
			for d := range ps.s.domains {
				if began := time.Now(); d.hasWork() {
					more = d.space.StopIdle() || more
					d.optimizer.stopping += time.Since(began)
				}
			}
			return nil
		}) != nil {
			return
		}
	}
}

// letIdle gives them back, also if the session is about to be closed.
func (ps *passes) letIdle() {
	for more := true; more; {
		if ps.s.tracer.Do(func() { more = ps.s.tracer.LetIdle() }) != nil {
			return
		}
	}
}

// fewSites is how many sites get their jumps at once: to make one costs as much as some ten hits of a breakpoint.
const fewSites = 8

// atOnce optimizes the sites of a program that has not begun, if there are few: all its threads stand, and a program that ends before the next pass would stop at
// each of its hits.
func (opt *optimizer) atOnce() {
	var sites []*site
	for st := range opt.unhit {
		if w, refusal := opt.qualifies(st); refusal == "" && !w.upcall { // the tracer sees hits of others in any case
			sites = append(sites, st)
		}
	}
	if len(sites) == 0 || len(sites) > fewSites || len(opt.queue) > 0 {
		return
	}
	for _, st := range sites {
		delete(opt.unhit, st)
		opt.queue[st] = true
	}
	defer opt.d.look.joined()()
	if err := opt.d.unlessEnding(opt.optimizeSlice()); err != nil && !opt.d.session.dying() {
		opt.d.session.warn("optimizing probes: %v", err)
	}
	if opt.endRound(); len(opt.queue) > 0 {
		opt.d.session.passes.kick()
	}
}
