package kprobes

import (
	"errors"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
)

// proceed sends a thread whose PreHandlers have run through the instruction. There are
// five ways, and the thread's own registers are the only state that they change: other
// threads may be anywhere in the same slot at the same time.
//
//   - Boosted: nobody looks after the copy. A thread may be seen before the copy or
//     behind it, at the jump back.
//   - Stepped, if there is a PostHandler, or for the reason that the plan gives: the copy
//     ends at a breakpoint.
//   - Emulated: near branches. Only the processor knows the details of an exception, so
//     a branch that would fault is traced instead. A branch of a target that steps
//     itself, and expects a trap after it, is traced, too.
//   - Traced: the copy leaves for elsewhere; the processor's single-step trap comes
//     before anything there is executed. Then Resume moves the outcome to where it would
//     have been. A copy that raises an exception has not been executed and is retried.
//   - System call: the copy enters the kernel, which stops the thread before the call is
//     made. There Resume moves the thread to the original address, so that everything the
//     kernel does from then on (block, restart, fork, deliver signals, return) it does
//     there. No thread is ever blocked in a slot.
func (hs *hits) proceed(th *ptrace.Thread, ts *threadState, st *site, regs arch.Regs) ptrace.Verdict {
	ts.sampling = notSampling
	switch {
	case st.plan.Method == arch.SystemCall:
		regs.SetIP(st.slot.Step)
		return ptrace.IntoKernel(st.slot.Next, st.slot.Trap)
	case st.plan.Method == arch.Emulated && !regs.TrapFlag() && hs.emulated(ts, st, regs):
		th.Go(ptrace.RunOn())
		hs.post(ts, st)
		ts.site = nil
		return ptrace.AsTold()
	case st.plan.Method == arch.Emulated, st.plan.Leaves && st.step:
		return ts.trace(st, regs)
	case st.step, hs.samples(ts, st, regs):
		if !st.step {
			ts.sampling, ts.sampled = inCopy, th.Halts().Count()
		}
		regs.SetIP(st.slot.Step)
		return ptrace.IntoCopyUntil(st.slot.Trap.Add(int64(host.Arch.BreakpointAdvance())))
	}
	regs.SetIP(st.slot.Boost)
	ts.site = nil
	return ptrace.IntoCopy()
}

// trace single-steps the copy.
func (ts *threadState) trace(st *site, regs arch.Regs) ptrace.Verdict {
	ts.site, ts.traps = st, regs.TrapFlag()
	regs.SetIP(st.addr)
	ts.start = regs.Clone()
	regs.SetIP(st.slot.Step)
	return ptrace.StepOnce()
}

// emulated performs the instruction for the thread, if that needs no exception.
func (hs *hits) emulated(ts *threadState, st *site, regs arch.Regs) bool {
	regs.SetIP(st.addr)
	err := st.plan.Emulate(regs, &ts.regs)
	var fault *arch.FaultError
	if err != nil && !errors.As(err, &fault) {
		hs.s.warn("emulating the instruction at %s: %v", st.addr, err)
	}
	return err == nil
}

// stepped ends a hit whose copy was trapped after.
func (hs *hits) stepped(th *ptrace.Thread, d *domain, st *site, regs arch.Regs) ptrace.Verdict {
	ts := hs.stateOf(th, d)
	if ts.sampling != notSampling && ts.site == st && hs.sample(th, ts) {
		regs.SetIP(st.slot.Trap)
		return ptrace.IntoCopyUntil(st.slot.Trap.Add(int64(host.Arch.BreakpointAdvance())))
	}
	if hs.trapped(th, ts, st, regs); !ts.over {
		ts.site = nil
	}
	return ptrace.AsTold()
}

// trapped comes after the copy in front of slot.Trap. The thread is told before PostHandlers run.
func (hs *hits) trapped(th *ptrace.Thread, ts *threadState, st *site, regs arch.Regs) {
	regs.SetIP(st.slot.Next)
	th.Go(ptrace.RunOn())
	hs.rerecord(th, st)
	ts.regs.Regs = regs
	hs.post(ts, st)
}

// post runs the PostHandlers of a hit in progress, if its site is still there. One that was
// missed has none (B31).
func (hs *hits) post(ts *threadState, st *site) {
	if d := st.domain; ts.outer == nil && ts.site == st && !d.released && d.siteAt(st.addr) == st {
		hs.runPost(ts, st)
	}
}

// rerecord puts right what the FPU has recorded: the address of the copy.
func (hs *hits) rerecord(th *ptrace.Thread, st *site) {
	if !st.plan.Recorded {
		return
	}
	if err := th.MoveLastFPUInsn(st.slot.Step, st.addr); err != nil && !errors.Is(err, ptrace.ErrExited) {
		hs.s.warn("the FPU keeps the address of a copy of the instruction at %s: %v", st.addr, err)
	}
}

// SingleStepped implements ptrace.Handler: a traced copy has been executed.
func (s hooks) SingleStepped(th *ptrace.Thread) ptrace.Verdict {
	defer s.heirs.within()()
	ts := s.hits.states.Of(th)
	if d := s.domainOf(th); d != nil && ts != nil && ts.leaving != nil {
		return s.hits.steppedInDetour(th, d, ts)
	}
	if ts == nil || ts.site == nil {
		return ptrace.AsTold()
	}
	s.settled()
	st := ts.site
	own, err := s.hits.resume(th, ts)
	if err != nil {
		s.hits.undoHit(th, ts, st, err)
		return ptrace.AsTold()
	}
	if s.hits.post(ts, st); !ts.over {
		ts.site = nil
	}
	if own {
		return ptrace.NotOurs()
	}
	return ptrace.AsTold()
}

// undoHit comes after a copy whose outcome could not be moved: the thread is back in front of the instruction, and nobody else ever came to
// know that it had been executed. It would come back here for ever, so the place is left alone from now on; if that
// can't be had either the session ends.
func (hs *hits) undoHit(th *ptrace.Thread, ts *threadState, st *site, cause error) {
	ts.site = nil
	hs.s.warn("the instruction at %s can't be executed elsewhere, its probes are disabled now: %v", st.addr, cause)
	for _, kp := range slices.Clone(st.probes) {
		_ = hs.s.DisableKprobe(kp)
	}
	if !st.domain.released && st.domain.siteAt(st.addr) == st && st.armed() {
		hooks{hs.s}.abort()
	}
}

// resume moves the outcome of a traced copy to where the original is, and tells the thread, before PostHandlers run. It reports whether
// the trap is one that the program waits for. After an error the thread is where the hit began: the copy has
// changed its registers, which have their values back, and at most what lies below the stack pointer, for a call's return address.
func (hs *hits) resume(th *ptrace.Thread, ts *threadState) (own bool, err error) {
	st := ts.site
	regs, err := th.Regs()
	if err != nil {
		return false, nil // killed meanwhile
	}
	ts.regs.Regs = regs
	from := regs.IP()
	if err := st.plan.Resume(regs, &ts.regs, st.slot.Step); err != nil {
		regs.CopyFrom(ts.start)
		th.Go(ptrace.RunOn())
		return false, err
	}
	if ts.traps {
		th.Go(ptrace.WithSignal())
		hs.translate(th, from, regs.IP())
	} else {
		th.Go(ptrace.RunOn())
	}
	return ts.traps, nil
}

// Entered implements ptrace.Handler: the copy of a system-call instruction has brought the
// thread into the kernel.
func (s hooks) Entered(th *ptrace.Thread) (untilReturn bool) {
	ts := s.hits.states.Of(th)
	if ts == nil || ts.site == nil {
		return false
	}
	st := ts.site
	if regs, err := th.Regs(); err == nil {
		_ = st.plan.Resume(regs, &ts.regs, st.slot.Step) // touches registers only
	}
	if st.armed() {
		ts.call = st
	}
	if st.step && st.hasPost() && ts.outer == nil {
		return true
	}
	ts.site = nil
	return false
}

// Returned implements ptrace.Handler. A call that the kernel is going to restart is not
// done yet: it comes back here, by way of its breakpoint or if a signal handler ends it.
// Then its result is what the kernel has so far: -ERESTARTSYS and its like.
func (s hooks) Returned(th *ptrace.Thread) {
	defer s.heirs.within()()
	ts := s.hits.states.Of(th)
	if ts == nil || ts.site == nil || th.Restarts() {
		return
	}
	s.settled()
	if regs, err := th.Regs(); err == nil {
		ts.regs.Regs = regs
		s.hits.post(ts, ts.site)
	}
	ts.site, ts.call = nil, nil
}
