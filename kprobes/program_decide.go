package kprobes

import (
	"errors"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Programs that decide whether the PreHandler runs. Where the tracer has the hit, the
// interpreter decides (runPre). In an optimized site the detour runs them. Hits that
// are not chosen go on there, are counted there, and stop nobody. A chosen one comes to
// a breakpoint of the body, with all registers as at the site. From then on it is a
// breakpoint's hit, and the program is not run again. Nothing behind the program has
// been done then, so the tracer counts.
//
// # What other threads see
//
// A chosen thread stands at a breakpoint in code that nobody changes as long as a thread is inside. Its decision
// has been made, and is in the state: it must have its hit, even if the jump is taken back meanwhile, or if a
// signal waits for it to leave. When the session ends, or has died, it goes on at the first copy.

// errDecides refuses a program that decides where there is no PreHandler of the user's.
var errDecides = errors.New("only the Program of a Kprobe can decide whether a handler runs")

// decides tells whether kp's PreHandler runs only where its Program says so.
func (kp *Kprobe) decides() bool {
	return kp.Program != nil && kp.Program.Decides && kp.PreHandler != nil
}

// decides tells whether det's program is one that does.
func (det *detour) decides() bool { return det.record != nil && det.record.checked.Decides }

// chosenHit is the hit of a thread at a breakpoint that leaves a hit with a program that decides to the tracer: the program has chosen it,
// or has no stack to run on. The thread may be on its way out of det for a signal that waits: then hit takes it further.
func (hs *hits) chosenHit(th *ptrace.Thread, d *domain, det *detour, why arch.StopReason, regs arch.Regs) ptrace.Verdict {
	ts := hs.stateOf(th, d)
	if why == arch.StopChosen {
		ts.chosen = det.record.kp
	}
	if ts.leaving != nil {
		th.Go(ptrace.Undecided()) // the handlers see the program's own trap flag
	}
	v := hs.hitInDetour(th, d, det, regs)
	ts.chosen = nil
	return v
}

// wantsHandler runs kp's Program, unless the target has, and tells whether the PreHandler is to run.
func (hs *hits) wantsHandler(ts *threadState, kp *Kprobe) bool {
	switch {
	case kp.checked == nil, kp.ret != nil, ts.chosen == kp:
		return true
	case kp.forCalls && ts.changedCall(): // its registers are not those at the site: the SyscallProbe looks at them
		return true
	}
	chosen := hs.s.records.interpret(ts, kp, &ts.regs)
	return chosen || !kp.Program.Decides
}

// hasLeft ends the way out of a detour for a signal that waits, if the thread, whose hit has ended, was on it.
func (ts *threadState) hasLeft(regs arch.Regs) ptrace.Verdict {
	if ts.leaving != nil && !ts.regs.domain.released && !ts.over {
		return ts.leave(regs, regs.IP())
	}
	return ptrace.AsTold()
}

// missChosen counts the hit of a thread that was chosen, and whose handler will not run: the session ends.
func (det *detour) missChosen() {
	if det.count == nil {
		return
	}
	for _, kp := range det.count.owners {
		if kp == det.record.kp {
			kp.missed.add(MissEnded, 1)
		} else {
			kp.hits.Add(1)
		}
	}
}
