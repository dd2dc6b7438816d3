package kprobes

import (
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Following calls. At a function's entry the return address is on the stack; a site is made
// there, and the call that returns to it is known by its frame:
//
//	entry:  int3 ── stop ── [sp] is the return address R, sp + 8 the frame's CFA
//	                        a site at R, EntryHandler, instance linked under the frame
//	R:      int3 ── stop ── sp is the CFA of an instance: Handlers, then as any hit
//
// Nothing on any stack is changed, so whatever reads return addresses reads true ones:
// unwinders of C++ and Rust, pthread_cancel, garbage collectors, profilers, Go's copying of
// stacks, shadow stacks, a debugger's user. When the tracer detaches or dies, no stack has to
// be repaired. The kernel rewrites the return address instead: for it that is cheaper, as its
// trampoline is no trap.
//
// Other threads may come by a return address at any time: they hit the site, no frame of
// theirs is known, and they go on through the instruction. So does the thread itself when it
// is there for another reason.
//
// A frame is known by its CFA in the address space. For as long as the call lasts no other
// frame has it, whichever thread runs on that stack: coroutines may move between threads. In
// Go stacks move as well, and are told by their goroutine and the distance from their base.
//
// A call may end without a return. That is noticed when its frame is entered again, or by
// what uprobes do (kernel/events/uprobes.c, cleanup_return_instances): calls deeper on the
// stack than what is entered or returned from now are dead. But there may be other stacks,
// below this one; so a thread's instance is dead only if its return address is gone from its
// place, or if instances run out (C22).

// frame names the activation of a function. A vfork child has its own though it is on its
// parent's stack: what it calls is deeper than that, or in the place of the call of vfork.
type frame struct {
	pid       int
	goroutine arch.Addr // 0 outside of Go
	cfa       arch.Addr // in Go, the distance from the stack's base to it
}

// owner is who has entered a function.
type owner struct {
	tid       int // 0 if it is a goroutine
	goroutine arch.Addr
}

// where tells frame and owner of the frame with the given CFA on regs' stack.
func where(regs *Regs, cfa arch.Addr, inGo bool) (frame, owner, bool) {
	if !inGo {
		return frame{pid: regs.PID(), cfa: cfa}, owner{tid: regs.TID()}, true
	}
	g, base, ok := ptrace.Host.Goroutine(regs, rawMemory{regs})
	return frame{regs.PID(), g, base - cfa}, owner{goroutine: g}, ok
}

// deeper: f was entered from a frame of the same stack that is further from its base than
// other is, or from a function that other has called.
func (f frame) deeper(other frame) bool {
	if f.goroutine != 0 {
		return f.cfa > other.cfa
	}
	return f.cfa < other.cfa
}

// entered is the PreHandler of a Kretprobe's KP, as pre_handler_kretprobe.
func (rp *Kretprobe) entered(kp *Kprobe, regs *Regs) int {
	d, ts := regs.domain, regs.thread.Local.(*threadState)
	ret, cfa, err := ptrace.Host.Caller(regs, rawMemory{regs})
	f, own, ok := where(regs, cfa, ts.site.inGo)
	if err != nil || !ok {
		rp.nmissed.Add(1)
		return 0
	}
	if d.loops(f, ret, ts) {
		kp.hits.Add(^uint64(0))
		return 0
	}
	d.endReentered(f, ret, ts.hit)
	d.endUnwound(own, f)
	ri := rp.take()
	if ri == nil {
		rp.search(d, own, f)
		ri = rp.take()
	}
	back := d.returnSite(rp, ret, ts.site.inGo)
	if ri == nil || back == nil {
		rp.nmissed.Add(1)
		ri.put()
		return 0
	}
	if rp.EntryHandler != nil && d.session.guard(kp, func() int { return rp.EntryHandler(ri, regs) }) != 0 {
		ri.put()
		return 0
	}
	if rp.KP.session == nil || d.released || ts.over {
		return 0
	}
	ri.RetAddr, ri.entry, ri.hit, ri.sp = ret, ts.site, ts.hit, regs.SP()
	ri.owner, ri.frame = own, f
	d.link(ri)
	return 0
}

func (d *domain) link(ri *KretprobeInstance) {
	ri.below = d.calls[ri.frame]
	d.calls[ri.frame] = ri
	d.owners[ri.owner] = append(d.owners[ri.owner], ri)
}

// end forgets all calls of a frame. Those that did not return are missed.
func (d *domain) end(f frame, missed bool) {
	top := d.calls[f]
	delete(d.calls, f)
	for ri := top; ri != nil; {
		below := ri.below
		rest := d.owners[ri.owner]
		i := len(rest) - 1
		for i >= 0 && rest[i] != ri {
			i--
		}
		if rest = slices.Delete(rest, i, i+1); len(rest) == 0 {
			delete(d.owners, ri.owner)
		} else {
			d.owners[ri.owner] = rest
		}
		if missed && ri.probe != nil {
			ri.probe.nmissed.Add(1)
		}
		ri.put()
		ri = below
	}
}

// loops tells whether a hit is no call but a turn of a loop, whose head is a Go function's first
// instruction: Go's compiler does not make jumps of calls. In other languages a turn can't be
// told from a call by a jump.
func (d *domain) loops(f frame, ret arch.Addr, ts *threadState) bool {
	top := d.calls[f]
	return top != nil && ts.site.inGo && top.entry == ts.site && top.hit != ts.hit && top.RetAddr == ret && ts.site.jumps().back
}

// endReentered ends what was followed in a frame that is entered now: the calls in it have
// ended, unless they share the hit, or may have made this call by a jump (C24).
func (d *domain) endReentered(f frame, ret arch.Addr, hit uint64) {
	top := d.calls[f]
	if top != nil && top.hit != hit && (top.RetAddr != ret || !top.entry.jumpsAway()) {
		d.end(f, true)
	}
}

// endUnwound ends calls of own that are deeper than f. On a goroutine's one stack those are
// gone; a thread may have several.
func (d *domain) endUnwound(own owner, f frame) {
	for {
		rest := d.owners[own]
		if len(rest) == 0 {
			return
		}
		last := rest[len(rest)-1]
		if !last.frame.deeper(f) || own.tid != 0 && d.holdsReturn(last) {
			return
		}
		d.end(last.frame, true)
	}
}

// holdsReturn tells whether ri's return address is where it was at the entry.
func (d *domain) holdsReturn(ri *KretprobeInstance) bool {
	r := ptrace.Host.NewRegs()
	r.SetSP(ri.sp)
	ret, _, err := ptrace.Host.Caller(r, d.space)
	return err == nil && ret == ri.RetAddr
}

// search looks for instances of rp that are dead, since it has run out of them. f is where
// own is now. Where there are none a search would only cost, so it is not repeated at once.
func (rp *Kretprobe) search(d *domain, own owner, f frame) {
	if rp.short > 0 {
		rp.short--
		return
	}
	rp.short = rp.MaxActive
	var stack arch.Range
	for at, ri := range d.calls {
		switch {
		case ri.probe != rp:
		case ri.frame.goroutine == 0 && !d.holdsReturn(ri):
			d.end(at, true)
		case ri.owner == own && own.tid != 0 && ri.frame.deeper(f):
			if stack.Len() == 0 {
				stack = d.mappingOf(f.cfa)
			}
			if stack.Contains(ri.frame.cfa) {
				d.end(at, true)
			}
		}
	}
}

// mappingOf is the extent of the mapping at at.
func (d *domain) mappingOf(at arch.Addr) arch.Range {
	d.survey = nil
	defer func() { d.survey = nil }()
	m, err := d.surveyed().mapping(d, at)
	if err != nil || m == nil {
		return arch.Range{Start: at, End: at + 1}
	}
	return m.Range
}

// disown forgets calls in flight whose probes are unregistered: they return as if they had
// never been followed (C18).
func (d *domain) disown(gone func(*Kprobe) bool) {
	for f, top := range d.calls {
		followed := false
		for ri := top; ri != nil; ri = ri.below {
			if ri.probe != nil && gone(&ri.probe.KP) {
				ri.probe = nil
			}
			followed = followed || ri.probe != nil
		}
		if !followed {
			d.end(f, false)
		}
	}
}

// copyCalls follows in a forked child the calls that its one thread is in, as uprobes do (C28).
func (d *domain) copyCalls(to *domain, child *ptrace.Process) {
	th := child.Leader()
	regs, err := th.Regs()
	if err != nil {
		return
	}
	for _, parent := range d.space.Threads() {
		now, err := parent.Regs()
		if !parent.Stopped() || err != nil || now.SP() != regs.SP() {
			continue
		}
		for _, ri := range d.owners[owner{tid: parent.TID}] {
			to.copyCall(ri, th)
		}
	}
}

func (d *domain) copyCall(ri *KretprobeInstance, th *ptrace.Thread) {
	rp := ri.probe
	if rp == nil {
		return
	}
	c := rp.take()
	if c == nil || d.returnSite(rp, ri.RetAddr, false) == nil {
		rp.nmissed.Add(1)
		c.put()
		return
	}
	copy(c.Data, ri.Data)
	c.RetAddr, c.entry, c.hit, c.sp = ri.RetAddr, ri.entry, ri.hit, ri.sp
	c.owner, c.frame = owner{tid: th.TID}, ri.frame
	c.frame.pid = th.Proc.PID
	d.link(c)
}

// endOfThread ends the calls that a thread is in at its end. Those on other stacks than the one
// that it is on may be finished by another thread: they have no owner any more.
func (d *domain) endOfThread(th *ptrace.Thread) {
	own := owner{tid: th.TID}
	regs, err := th.Regs()
	if err != nil || len(d.owners[own]) == 0 {
		d.endOf(own)
		return
	}
	stack := d.mappingOf(regs.SP())
	for _, ri := range slices.Clone(d.owners[own]) {
		if d.calls[ri.frame] != nil && stack.Contains(ri.frame.cfa) {
			d.end(ri.frame, true)
		}
	}
	for _, ri := range d.owners[own] {
		ri.owner = owner{}
	}
	d.owners[owner{}] = append(d.owners[owner{}], d.owners[own]...)
	delete(d.owners, own)
}

// endOf ends the calls of an owner that is gone.
func (d *domain) endOf(own owner) {
	for len(d.owners[own]) > 0 {
		rest := d.owners[own]
		d.end(rest[len(rest)-1].frame, true)
	}
}

// returned runs the Handlers of calls that return to st, those that were followed last first
// (C12).
func (s *Session) returned(ts *threadState, st *site) {
	d, regs := st.domain, &ts.regs
	f, own, _ := where(regs, regs.SP(), false)
	top := d.calls[f]
	if top == nil && st.returnsGo {
		var inGo bool
		if f, own, inGo = where(regs, regs.SP(), true); inGo {
			top = d.calls[f]
		}
	}
	lent := top == nil
	if lent {
		top = d.lent(f)
	}
	if top == nil {
		return
	}
	if top.RetAddr != st.addr || !ptrace.Host.Returned(regs, rawMemory{regs}, st.plan.Insn) {
		if !lent {
			d.end(f, true)
		}
		return
	}
	var calls []*KretprobeInstance
	for ri := top; ri != nil; ri = ri.below {
		calls = append(calls, ri)
	}
	s.runReturns(ts, st, calls)
	if !lent && !d.released && d.calls[f] == top {
		d.end(f, false)
		d.endUnwound(own, f)
	}
}

// lent is the calls that another process of the address space is in at f: a vfork child comes
// back from its parent's call first, which is to return to the parent yet.
func (d *domain) lent(f frame) *KretprobeInstance {
	for _, p := range d.space.Processes() {
		f.pid = p.PID
		if top := d.calls[f]; top != nil {
			return top
		}
	}
	return nil
}

func (s *Session) runReturns(ts *threadState, st *site, calls []*KretprobeInstance) {
	regs := &ts.regs
	ip := regs.IP()
	regs.SetIP(st.addr)
	ts.handling = true
	defer func() { ts.handling, regs.running = false, nil }()
	for _, ri := range calls {
		rp := ri.probe
		if rp == nil || st.domain.released {
			continue
		}
		rp.hits.Add(1)
		regs.running = &rp.KP
		if rp.Handler != nil {
			s.guard(&rp.KP, func() int { return rp.Handler(ri, regs) })
		}
	}
	if !st.domain.released {
		regs.SetIP(ip)
	}
}
