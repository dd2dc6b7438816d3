package kprobes

import (
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// Whether a site is reached by a jump is decided again whenever its probes change, or those
// around it (E19–E23).

// maxRegion is the length in bytes of the longest optimized region: four bytes and an
// instruction.
const maxRegion = 4 + 15

// qualifies says what a detour of st would do, or why st has a breakpoint.
func (opt *optimizer) qualifies(st *site) (w work, refusal string) {
	switch {
	case st.mask != nil && st.bare() && host.Detours != nil && !opt.d.memory.private && !st.noJump.rejected():
		return work{unblocks: true}, ""
	case opt.d.session.opts.NoOptimize:
		return work{}, "optimization is turned off"
	case opt.d.session.opts.NoBoost:
		return work{}, "boosting is turned off"
	case host.Detours == nil:
		return work{}, "this architecture has no optimized probes"
	case opt.d.memory.private:
		return work{}, "the process can't map memory for a detour"
	case st.linker:
		return work{}, "the dynamic linker is watched there"
	case st.calls.unwinds:
		return work{}, "the target's unwinder is entered there, and reads return addresses that were replaced"
	case st.noJump.rejected():
		return work{}, st.noJump.forGood
	case st.isRelay() && (len(st.probes) > 0 || st.calls.needTracer() != ""):
		return work{}, "it stands on stacks in the place of a return address, and its hits are the tracer's"
	}
	calls := st.calls.needTracer() // why the tracer is to see hits
	w.returns, w.recounted = st.calls.any(), st.calls.recounted
	for _, kp := range st.probes {
		switch refusal := kp.needsTracer(); {
		case !kp.enabled():
		case refusal != "":
			return work{}, refusal
		case kp.ret == nil && kp.PreHandler != nil && !kp.decides():
			calls = "the handler runs in the tracer"
		case kp.Program != nil && kp.Program.ReadsMemory() && opt.d.space.MayNotAnswer():
			calls = "the program reads memory, and a file is mapped whose file system may not answer, so the tracer reads"
		case kp.ret == nil && kp.Program != nil && w.program != nil:
			calls = "the programs of several probes run there, in the tracer"
		case kp.ret == nil && kp.Program != nil:
			w.program, w.since = kp, kp.registered
		case kp.ret == nil:
		case kp.ret.needsTracer() != "":
			calls = kp.ret.needsTracer()
		case st.calls.inGo:
			calls = "goroutines' calls are followed by the tracer"
		case w.follows != nil || w.returns:
			calls = "calls of several kretprobes begin or end there, which the tracer follows"
		default:
			w.follows, w.of = kp.ret, kp.ret.registered
		}
	}
	if calls == "" && w.program != nil && w.program.decides() && (w.follows != nil || w.returns) {
		calls = "a program decides there, and calls are followed"
	}
	if calls != "" {
		return opt.qualifiesToCall(st, calls)
	}
	w.unblocks = st.mask != nil
	w.counts = w.follows == nil && !w.returns || slices.ContainsFunc(st.probes, func(kp *Kprobe) bool { return kp.enabled() && kp.ret == nil })
	return w, ""
}

// bare tells that nobody wants hits of st.
func (st *site) bare() bool {
	return len(st.probes) == 0 && !st.calls.any() && !st.linker && !st.calls.unwinds
}

// qualifiesToCall is qualifies for a site whose hits the tracer deals with.
func (opt *optimizer) qualifiesToCall(st *site, why string) (w work, refusal string) {
	switch {
	case opt.d.guard.none:
		return work{}, why + ", and the target uses SIGTRAP itself"
	case hostUpcalls == nil:
		return work{}, why + ", which can't be called on this processor"
	}
	return work{upcall: true, notes: st.lookedAt(), unblocks: st.mask != nil}, ""
}

// lookedAt is the word of the stack that the tracer looks at when calls are followed from st, or to there.
func (st *site) lookedAt() arch.StackWord {
	switch {
	case st.calls.any():
		return arch.PoppedWord
	case slices.ContainsFunc(st.probes, func(kp *Kprobe) bool { return kp.enabled() && kp.ret != nil }):
		return arch.ReturnWord
	}
	return arch.NoWord
}

// needsTracer says why kp's hits can't be dealt with in the target.
func (kp *Kprobe) needsTracer() string {
	switch {
	case kp.PostHandler != nil:
		return "a post_handler needs a trap after the instruction"
	case kp.FaultHandler != nil:
		return "a fault_handler waits for faults of the instruction"
	case kp.jprobe != nil:
		return "a jprobe runs there"
	}
	return ""
}

// counted is the probes whose hits the target counts.
func (st *site) counted() (owners []*Kprobe) {
	if st.domain.session.registry.disarmed {
		return nil
	}
	for _, kp := range st.probes {
		if kp.enabled() && kp.ret == nil { // calls are counted where they are followed
			owners = append(owners, kp)
		}
	}
	return owners
}

// consider queues st if it has a breakpoint and might have a jump, or the other way round.
func (opt *optimizer) consider(st *site) {
	_, refusal := opt.qualifies(st)
	switch {
	case st.jump() != nil:
		if !st.wanted() || refusal != "" {
			opt.enqueue(st)
		}
	case refusal != "" || !st.armed():
		st.noJump.now(refusal)
		opt.leave(st)
		st.showOptimized()
	default:
		opt.want(st)
		st.showOptimized()
	}
}

// refreshJump makes a site that has a jump agree with its probes. done is false if it must
// have a breakpoint instead, which it has afterwards.
func (opt *optimizer) refreshJump(st *site) (done bool, err error) {
	det := st.jump()
	if st.wanted() {
		if w, refusal := opt.qualifies(st); refusal != "" || w != det.work {
			return false, opt.unoptimizeNow([]*site{st})
		}
	}
	det.count.give(st.counted())
	st.showOptimized()
	if !st.wanted() {
		opt.enqueue(st)
	}
	return true, opt.d.detours.turn(det, st.wanted())
}

// armedInside is a site with probes that are enabled in the region of another, nil if there is none.
func (opt *optimizer) armedInside(region arch.Range, of *site) *site {
	for a := region.Start; a < region.End; a++ {
		if st := opt.d.sites[a]; st != nil && st != of && (st.jump() != nil || st.armed() || st.next() != nil) {
			return st
		}
	}
	return nil
}

// covering lists the sites whose jumps or detours have instructions that sites hide a
// breakpoint in: they must have a breakpoint themselves first (E21).
func (opt *optimizer) covering(sites []*site) (outer []*site) {
	for _, st := range sites {
		for n := range arch.Addr(maxRegion) {
			o := opt.d.sites[st.addr-n-1]
			if o != nil && o.jump() != nil && o.jump().region().Contains(st.addr) && !slices.Contains(outer, o) {
				outer = append(outer, o)
			}
		}
	}
	return outer
}

// uncovered has sites considered again that were kept from a jump by one of those that are
// armed no more (E21).
func (opt *optimizer) uncovered(st *site) {
	for n := range arch.Addr(maxRegion) {
		if o := opt.d.sites[st.addr-n-1]; o != nil && o.jump() == nil && o.armed() {
			opt.consider(o)
		}
	}
}
