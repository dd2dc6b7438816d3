package kprobes

import (
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
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
	tid       int // 0 if it is a goroutine, of pid
	pid       int
	goroutine arch.Addr
}

// where tells frame and owner of the frame with the given CFA on regs' stack.
func where(regs *Regs, cfa arch.Addr, inGo bool) (frame, owner, bool) {
	if !inGo {
		return frame{pid: regs.PID(), cfa: cfa}, owner{tid: regs.TID()}, true
	}
	g, base, ok := host.Arch.Goroutine(regs, rawMemory{regs})
	return frame{regs.PID(), g, base - cfa}, owner{pid: regs.PID(), goroutine: g}, ok
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
	st, hit, sp := ts.site, ts.hit, regs.SP()
	ret, cfa, err := host.Arch.Caller(regs, notedMemory{regs})
	f, own, ok := where(regs, cfa, st.inGo)
	if err != nil || !ok {
		rp.nmissed.Add(1)
		return 0
	}
	if f.goroutine == 0 {
		d.adoptFrame(f.pid, f.cfa, own)
	}
	if d.loops(f, ret, ts) {
		kp.hits.Add(^uint64(0))
		return 0
	}
	d.endReentered(f, ret, hit)
	d.endUnwound(own, f)
	ri := rp.take()
	if ri == nil {
		rp.search(d, own, f)
		ri = rp.take()
	}
	back := d.returnSite(rp, ret, st.inGo)
	if ri == nil || back == nil {
		rp.nmissed.Add(1)
		ri.put()
		return 0
	}
	if rp.EntryHandler != nil && d.session.guard(kp, func() int { return rp.EntryHandler(ri, regs) }) != 0 {
		ri.put()
		return 0
	}
	if !rp.live[ri] || d.released {
		return 0 // the handler has unregistered rp or ended the session
	}
	if ts.over {
		rp.nmissed.Add(1)
		ri.put()
		return 0
	}
	ri.RetAddr, ri.entry, ri.hit, ri.sp = ret, st, hit, sp
	ri.domain, ri.owner, ri.frame = d, own, f
	if rp.timed() {
		ri.began = host.Ticks()
	}
	d.link(ri)
	d.entrust(rp, f, ret)
	return 0
}

func (d *domain) link(ri *KretprobeInstance) {
	ri.below, d.calls[ri.frame] = d.calls[ri.frame], ri
	d.give(ri, ri.owner)
	d.hold(ri.RetAddr, 1)
}

// give makes ri the latest call of own.
func (d *domain) give(ri *KretprobeInstance, own owner) {
	ri.owner, ri.before, ri.after = own, d.owners[own], nil
	if ri.before != nil {
		ri.before.after = ri
	}
	d.owners[own] = ri
}

// disown is the opposite of give.
func (d *domain) disown(ri *KretprobeInstance) {
	switch {
	case ri.after != nil:
		ri.after.before = ri.before
	case ri.before != nil:
		d.owners[ri.owner] = ri.before
	default:
		delete(d.owners, ri.owner)
	}
	if ri.before != nil {
		ri.before.after = ri.after
	}
}

func (d *domain) unlink(ri *KretprobeInstance) {
	above := (*KretprobeInstance)(nil)
	for at := d.calls[ri.frame]; at != ri; at = at.below {
		above = at
	}
	switch {
	case above != nil:
		above.below = ri.below
	case ri.below != nil:
		d.calls[ri.frame] = ri.below
	default:
		delete(d.calls, ri.frame)
	}
	d.disown(ri)
	d.hold(ri.RetAddr, -1)
}

// end forgets all calls of a frame. Those that did not return are missed.
func (d *domain) end(f frame, missed bool) {
	for ri := d.calls[f]; ri != nil; ri = d.calls[f] {
		d.endCall(ri, missed)
	}
}

func (d *domain) endCall(ri *KretprobeInstance, missed bool) {
	d.unlink(ri)
	if missed && !ri.returned {
		ri.probe.nmissed.Add(1)
	}
	ri.put()
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
	for ri := d.owners[own]; ri != nil; ri = d.owners[own] {
		if !ri.frame.deeper(f) || own.tid != 0 && d.holdsReturn(ri) {
			return
		}
		d.end(ri.frame, true)
	}
}

// forkedCalls are the calls that a thread was in when it forked, in the order of their entries.
type forkedCalls []KretprobeInstance

// Copied implements ptrace.Sharer. The child's Forked may come when the parent has returned.
func (s hooks) Copied(parent *ptrace.Thread, child *ptrace.Process) {
	d := domainOf(parent)
	if d == nil || !s.opts.Follow {
		return
	}
	d.adoptStack(parent)
	var calls forkedCalls
	for _, ri := range d.callsOf(owner{tid: parent.TID}) {
		was := *ri
		was.Data = slices.Clone(ri.Data)
		calls = append(calls, was)
		if top := d.calls[ri.frame]; top != nil {
			d.entrust(top.probe, ri.frame, ri.RetAddr)
		}
	}
	if th := child.Leader(); th != nil {
		th.Local = calls
	}
}

// copyCalls follows in a forked child the calls that its one thread is in, as uprobes do (C28).
func (d *domain) copyCalls(child *ptrace.Process) {
	th := child.Leader()
	if th == nil {
		return
	}
	calls, _ := th.Local.(forkedCalls)
	th.Local = nil
	for i := range calls {
		if calls[i].probe.live != nil { // it is registered still
			d.copyCall(&calls[i], th)
		}
	}
}

// callsOf is own's calls in the order in which they were entered.
func (d *domain) callsOf(own owner) []*KretprobeInstance {
	var calls []*KretprobeInstance
	for ri := d.owners[own]; ri != nil; ri = ri.before {
		calls = append(calls, ri)
	}
	slices.Reverse(calls)
	return calls
}

func (d *domain) copyCall(ri *KretprobeInstance, th *ptrace.Thread) {
	rp := ri.probe
	c := rp.take()
	if c == nil || d.returnSite(rp, ri.RetAddr, false) == nil {
		rp.nmissed.Add(1)
		c.put()
		return
	}
	copy(c.Data, ri.Data)
	c.RetAddr, c.entry, c.hit, c.sp, c.began = ri.RetAddr, ri.entry, ri.hit, ri.sp, ri.began
	c.domain, c.owner, c.frame = d, owner{tid: th.TID}, ri.frame
	c.frame.pid = th.Proc.PID
	d.link(c)
}

// endOfThread ends the calls that a thread is in at its end. Those on other stacks than the one
// that it is on may be finished by another thread: they have no owner any more.
func (d *domain) endOfThread(th *ptrace.Thread) {
	own := owner{tid: th.TID}
	if !d.followed.closed {
		d.adoptStack(th)
	}
	regs, err := th.Regs()
	if err != nil || d.owners[own] == nil {
		d.endOf(own)
		return
	}
	stack := d.mappingOf(regs.SP())
	for ri := d.owners[own]; ri != nil; {
		before := ri.before
		if stack.Contains(ri.frame.cfa) {
			d.endCall(ri, true)
		} else {
			d.disown(ri)
			d.give(ri, owner{})
		}
		ri = before
	}
}

// endOfProcess ends the calls of a process that leaves the address space.
func (d *domain) endOfProcess(pid int) {
	for f := range d.calls {
		if f.pid == pid {
			d.end(f, true)
		}
	}
}

// endOf ends the calls of an owner that is gone.
func (d *domain) endOf(own owner) {
	for ri := d.owners[own]; ri != nil; ri = d.owners[own] {
		d.end(ri.frame, true)
	}
}

// returned runs the Handlers of calls that return to st, those that were followed last first
// (C12).
func (s *Session) returned(ts *threadState, st *site) {
	d, regs := st.domain, &ts.regs
	d.adoptFrame(regs.PID(), regs.SP(), owner{tid: regs.TID()})
	f, own, top := d.returnedFrom(regs, false)
	if top == nil && st.returnsGo {
		f, own, top = d.returnedFrom(regs, true)
	}
	if top == nil {
		return
	}
	if top.RetAddr != st.addr || !host.Arch.Returned(regs, notedMemory{regs}, st.plan.Insn) {
		if f.pid == regs.PID() {
			d.end(f, true)
		}
		return
	}
	var calls []*KretprobeInstance
	for ri := top; ri != nil; ri = ri.below {
		calls = append(calls, ri)
	}
	s.runReturns(ts, st, calls)
	if !d.released && f.pid == regs.PID() {
		d.end(f, false)
		d.endUnwound(own, f)
	}
}

// returnedFrom finds the frame that ends where the stack pointer is now, and the latest call
// followed in it. A vfork child returns from its parent's frame first: the parent's call, which
// is to return yet, returns in the child as well (C28).
func (d *domain) returnedFrom(regs *Regs, inGo bool) (f frame, own owner, top *KretprobeInstance) {
	f, own, ok := where(regs, regs.SP(), inGo)
	if !ok {
		return f, own, nil
	}
	if top = d.calls[f]; top == nil {
		for _, p := range d.space.Processes() {
			parents := frame{p.PID, f.goroutine, f.cfa}
			if top = d.calls[parents]; top != nil {
				return parents, own, top
			}
		}
	}
	return f, own, top
}

func (s *Session) runReturns(ts *threadState, st *site, calls []*KretprobeInstance) {
	regs := &ts.regs
	ip := regs.IP()
	ts.handling, ts.atReturn = true, true
	defer func() { ts.handling, ts.atReturn, regs.running = false, false, nil }()
	for _, ri := range calls {
		rp := ri.probe
		if rp == nil || !rp.live[ri] || st.domain.released {
			continue // a handler has seen to that
		}
		if ts.over {
			rp.nmissed.Add(1)
			continue
		}
		ri.returned = true
		rp.hits.Add(1)
		regs.running = &rp.KP
		regs.SetIP(st.addr)
		if rp.KP.checked != nil {
			s.interpret(ts, &rp.KP, callRegs{regs, host.Ticks() - ri.began})
		}
		if rp.Handler != nil {
			s.guard(&rp.KP, func() int { return rp.Handler(ri, regs) })
		}
	}
	if !st.domain.released {
		regs.SetIP(ip)
	}
}
