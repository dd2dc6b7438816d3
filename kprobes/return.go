package kprobes

import (
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/frames"
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
// Nothing on any stack is changed, unless the user asks for that (return_rewrite.go). So all readers of return addresses see true ones:
// unwinders of C++ and Rust, pthread_cancel, garbage collectors, profilers, Go's
// copying of stacks, shadow stacks, a debugger's user. When the tracer detaches or
// dies, no stack has to be repaired. The kernel rewrites the return address instead:
// for it that is cheaper, as its trampoline is no trap.
//
// Other threads may come by a return address at any time: they hit the site, no frame
// of theirs is known, and they go on through the instruction. The thread itself does
// the same when it is there for another reason.
//
// Which call is whose, and in which frame, is booked by package internal/frames.
//
// A call may end without a return. That is noticed when its frame is entered again, or by
// what uprobes do (kernel/events/uprobes.c, cleanup_return_instances): calls deeper on the
// stack than what is entered or returned from now are dead. But there may be other stacks,
// below this one; so a thread's instance is dead only if its return address is gone from its
// place, or if instances run out (C22).

// where tells frame and owner of the frame with the given CFA on regs' stack.
func where(regs *Regs, cfa arch.Addr, inGo bool) (frames.Frame, frames.Owner, bool) {
	if !inGo {
		return frames.Frame{PID: regs.PID(), CFA: cfa}, frames.Owner{TID: regs.TID()}, true
	}
	g, base, ok := host.Arch.Goroutine(regs, rawMemory{regs})
	return frames.Frame{PID: regs.PID(), Goroutine: g, CFA: base - cfa}, frames.Owner{PID: regs.PID(), Goroutine: g}, ok
}

// entered is the PreHandler of a Kretprobe's KP, as pre_handler_kretprobe.
func (rp *Kretprobe) entered(kp *Kprobe, regs *Regs) int {
	d, ts := regs.domain, regs.hit
	st, hit, sp := ts.site, ts.hit, regs.SP()
	word, cfa, err := host.Arch.Caller(regs, notedMemory{regs})
	ret := d.followed.relays.behind(word) // the function that has jumped here may have had its return address replaced
	f, own, ok := where(regs, cfa, st.calls.inGo)
	if err != nil || !ok {
		rp.missed.add(MissReturnAddress, 1)
		return 0
	}
	if f.Goroutine == 0 {
		d.followed.adoptFrame(f.PID, f.CFA, own)
	}
	if d.followed.loops(f, ret, ts) {
		kp.hits.Add(^uint64(0))
		return 0
	}
	d.followed.endReentered(f, word, hit)
	d.followed.endUnwound(own, f)
	ri := rp.take()
	if ri == nil {
		rp.search(d, own, f)
		ri = rp.take()
	}
	back := d.followed.wayBack(rp, st, word, ret)
	if ri == nil {
		rp.missed.add(MissMaxActive, 1)
		return 0
	}
	if back == nil {
		rp.missed.add(MissReturnAddress, 1)
		ri.put()
		return 0
	}
	if rp.EntryHandler != nil && d.session.handlers.guard(kp, func() int { return rp.EntryHandler(ri, regs) }) != 0 {
		ri.put()
		return 0
	}
	if !rp.live[ri] || d.released {
		return 0 // the handler has unregistered rp or ended the session
	}
	if ts.over {
		rp.missed.add(MissEnded, 1)
		ri.put()
		return 0
	}
	ri.word = word
	if back.addr != word && d.followed.rewrite(ri, regs, sp, back) != nil && d.followed.returnSite(rp, ret, st.calls.inGo) == nil {
		rp.missed.add(MissReturnAddress, 1)
		ri.put()
		return 0
	}
	ri.RetAddr, ri.entry, ri.hit, ri.sp = ret, st, hit, sp
	ri.enters(regs.thread)
	d.followed.link(ri, own, f)
	d.followed.entrust(rp, f, word, ri.word)
	return 0
}

// link begins to follow a call.
func (fo *followed) link(ri *KretprobeInstance, own frames.Owner, f frames.Frame) {
	ri.domain = fo.d
	fo.calls.Enter(&ri.call, ri, own, f)
	fo.hold(ri.word, 1)
	if ri.rewritten() {
		fo.relays.out++
	}
}

// unlink follows it no more.
func (fo *followed) unlink(ri *KretprobeInstance) {
	fo.calls.Leave(&ri.call)
	fo.hold(ri.word, -1)
}

// loops tells whether a hit is no call but a turn of a loop, whose head is a Go function's first
// instruction: Go's compiler does not make jumps of calls. In other languages a turn can't be
// told from a call by a jump.
func (fo *followed) loops(f frames.Frame, ret arch.Addr, ts *threadState) bool {
	top := fo.calls.Top(f)
	return top != nil && ts.site.calls.inGo && top.entry == ts.site && top.hit != ts.hit && top.RetAddr == ret && ts.site.jumps().back
}

// Copied implements ptrace.Handler. The child's Forked may come when the parent has returned.
func (s hooks) Copied(parent *ptrace.Thread, child *ptrace.Process) {
	d := s.spaces.Of(parent.Proc.Space)
	if d == nil {
		return
	}
	if d.followed.keepAddresses(child); !s.opts.Follow {
		return
	}
	d.followed.adoptStack(parent)
	var calls []KretprobeInstance
	for _, ri := range d.followed.calls.Of(frames.Owner{TID: parent.TID}) {
		was := *ri
		was.Data, was.earlier = slices.Clone(ri.Data), ri.halted()
		calls = append(calls, was)
		if top := d.followed.calls.Top(ri.call.Frame); top != nil {
			d.followed.entrust(top.probe, ri.call.Frame, top.word, top.word)
		}
	}
	s.forkedCalls.Keep(child.Space, &calls)
}

// copyCalls follows in a forked child the calls that its one thread is in, as uprobes do (C28).
func (fo *followed) copyCalls(child *ptrace.Process) {
	th := child.Leader()
	if th == nil {
		return
	}
	kept := &fo.d.session.forkedCalls
	if calls := kept.Of(child.Space); calls != nil {
		for i := range *calls {
			if ri := &(*calls)[i]; ri.probe.live != nil { // it is registered still
				fo.copyCall(ri, th)
			}
		}
	}
	kept.Keep(child.Space, nil)
}

func (fo *followed) copyCall(ri *KretprobeInstance, th *ptrace.Thread) {
	rp := ri.probe
	c := rp.take()
	if c == nil {
		rp.missed.add(MissMaxActive, 1)
		return
	}
	c.word = ri.RetAddr
	if !fo.copyWay(c, ri) {
		rp.missed.add(MissReturnAddress, 1)
		c.put()
		return
	}
	copy(c.Data, ri.Data)
	c.RetAddr, c.entry, c.hit, c.sp, c.began, c.earlier = ri.RetAddr, ri.entry, ri.hit, ri.sp, ri.began, ri.earlier
	f := ri.call.Frame
	f.PID = th.Proc.PID
	fo.link(c, frames.Owner{TID: th.TID}, f)
}

// endOfThread ends the calls that a thread is in at its end. Those on other stacks than the one
// that it is on may be finished by another thread: they have no owner any more.
func (fo *followed) endOfThread(th *ptrace.Thread) {
	own := frames.Owner{TID: th.TID}
	if !fo.d.followed.closed {
		fo.adoptStack(th)
	}
	regs, err := th.Regs()
	if err != nil || fo.calls.Latest(own) == nil {
		fo.endOf(own)
		return
	}
	stack := fo.d.look.stackOf(regs.SP())
	for _, ri := range slices.Backward(fo.calls.Of(own)) {
		if stack.Contains(ri.call.Frame.CFA) {
			fo.miss(ri, MissUnreturned)
		} else {
			fo.calls.Give(&ri.call, frames.Owner{})
		}
	}
}

// endOfProcess ends the calls of a process that leaves the address space.
func (fo *followed) endOfProcess(pid int) {
	for _, f := range fo.calls.Frames() {
		if f.PID == pid {
			fo.end(f, true)
		}
	}
}

// returned runs the Handlers of calls that return to st, those that were followed last first
// (C12).
func (hs *hits) returned(ts *threadState, st *site) {
	d, regs := st.domain, &ts.regs
	to := st.returnsTo()
	d.followed.adoptFrame(regs.PID(), regs.SP(), frames.Owner{TID: regs.TID()})
	f, own, top := d.followed.returnedFrom(regs, false)
	if top == nil && st.calls.fromGo {
		f, own, top = d.followed.returnedFrom(regs, true)
	}
	if to != st.addr {
		d.followed.arrived(top, regs.SP()-wordSize)
	}
	if top == nil {
		return
	}
	if top.RetAddr != to || to == st.addr && !host.Arch.Returned(regs, notedMemory{regs}, st.plan.Insn) {
		if f.PID == regs.PID() {
			d.followed.end(f, true)
		}
		return
	}
	hs.runReturns(ts, st, slices.Collect(d.followed.calls.In(top.call.Frame)))
	if !d.released && f.PID == regs.PID() {
		d.followed.end(f, false)
		d.followed.endUnwound(own, f)
	}
}

// returnedFrom finds the frame that ends where the stack pointer is now, and the latest call
// followed in it. A vfork child returns from its parent's frame first: the parent's call, which
// is to return yet, returns in the child as well (C28).
func (fo *followed) returnedFrom(regs *Regs, inGo bool) (f frames.Frame, own frames.Owner, top *KretprobeInstance) {
	f, own, ok := where(regs, regs.SP(), inGo)
	if !ok {
		return f, own, nil
	}
	if top = fo.calls.Top(f); top == nil {
		for _, p := range fo.d.space.Processes() {
			parents := frames.Frame{PID: p.PID, Goroutine: f.Goroutine, CFA: f.CFA}
			if top = fo.calls.Top(parents); top != nil {
				return parents, own, top
			}
		}
	}
	return f, own, top
}

func (hs *hits) runReturns(ts *threadState, st *site, calls []*KretprobeInstance) {
	regs := &ts.regs
	ip, to := regs.IP(), st.returnsTo()
	ts.enter(atReturn)
	defer ts.done()
	for _, ri := range calls {
		rp := ri.probe
		if rp == nil || !rp.live[ri] || st.domain.released {
			continue // a handler has seen to that
		}
		if ts.over {
			rp.missed.add(MissEnded, 1)
			continue
		}
		ri.returned = true
		ri.returns(regs.thread)
		rp.hits.Add(1)
		regs.running = &rp.KP
		regs.SetIP(to)
		if rp.KP.checked != nil {
			ticks, took := hs.s.took(ri.ended-ri.began, ri.halts())
			hs.s.records.interpret(ts, &rp.KP, callRegs{regs, ticks, &took})
		}
		if rp.Handler != nil {
			hs.s.handlers.guard(&rp.KP, func() int { return rp.Handler(ri, regs) })
		}
	}
	if !st.domain.released {
		regs.SetIP(ip)
	}
}

// endOf ends the calls of an owner that is gone.
func (fo *followed) endOf(own frames.Owner) {
	for ri := fo.calls.Latest(own); ri != nil; ri = fo.calls.Latest(own) {
		fo.end(ri.call.Frame, true)
	}
}

// end forgets all calls of a frame. Those that did not return are missed.
func (fo *followed) end(f frames.Frame, missed bool) {
	for ri := fo.calls.Top(f); ri != nil; ri = fo.calls.Top(f) {
		if missed {
			fo.miss(ri, MissUnreturned)
			continue
		}
		fo.unlink(ri)
		ri.put()
	}
}
