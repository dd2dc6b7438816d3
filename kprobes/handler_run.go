package kprobes

import (
	"github.com/gokprobe/gokprobe/ptrace"
)

// runPre runs the PreHandlers of the enabled probes. It reports whether one of them
// took over: the thread then goes on where that handler left it (B2, B19).
func (hs *hits) runPre(ts *threadState, st *site) (diverted bool) {
	if hs.s.registry.disarmed {
		return false
	}
	regs := &ts.regs
	ts.enter(atSite)
	defer ts.done()
	for _, kp := range st.probes {
		if !kp.enabled() || kp.session == nil || ts.over || diverted && !kp.forCalls {
			continue
		}
		kp.hits.Add(1)
		regs.running = kp
		if !hs.wantsHandler(ts, kp) {
			continue
		}
		takesOver := kp.PreHandler != nil && hs.s.handlers.guard(kp, func() int { return kp.PreHandler(kp, regs) }) != 0
		ts.noted = false
		if takesOver || ts.left {
			if diverted = true; !ts.changedCall() {
				return true
			}
		}
	}
	return diverted
}

func (hs *hits) runPost(ts *threadState, st *site) {
	regs := &ts.regs
	defer func() { regs.running = nil }()
	for _, kp := range st.probes {
		if kp.enabled() && kp.session != nil && kp.PostHandler != nil && !ts.over {
			regs.running = kp
			hs.s.handlers.guard(kp, func() int { kp.PostHandler(kp, regs, 0); return 0 })
		}
	}
}

// guard keeps a handler's panic from the target, which goes on as if the handler had
// returned 0. The probe is disabled: it would panic again. While Close waits for functions that
// handlers have called, no other handler begins.
func (hd *handlers) guard(kp *Kprobe, f func() int) (ret int) {
	if hd.s.closed {
		return 0
	}
	if hd.s.records.taken.Len() > 0 {
		hd.s.records.drain() // what the tracer has recorded before comes first
		if hd.s.closed || kp.session != hd.s {
			return 0 // a RecordHandler has seen to that
		}
	}
	hd.s.tracer.LetAllIdle() // it may wait for another thread
	hd.running = append(hd.running, runningHandler{kp: kp})
	defer func() {
		hd.handlerEnds()
		if p := recover(); p != nil {
			if ptrace.Faulted(p) {
				panic(p)
			}
			hd.s.warn("%v in a handler, probe %s is disabled now: %v", ErrPanic, kp.name(), p)
			_ = hd.s.DisableKprobe(kp)
			ret = 0
		}
	}()
	return f()
}
