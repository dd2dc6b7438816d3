package main

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// faulting is what is injected in a session of work.
type faulting struct {
	req    injectRequest
	in     *inject.Injector
	faults []*inject.Fault
	stats  []inject.Stats // since the session has ended

	mu    sync.Mutex
	left  int           // faults that can still be injected
	spent chan struct{} // closed when none can, and no thread is delayed any more
}

// newWork is a workMaker.
func (r injectRequest) newWork(std stdio, req request, sess *kprobes.Session, output *os.File, color bool) *work {
	w := newWork(std, req, sess, output, color)
	f := &faulting{req: r, spent: make(chan struct{})}
	f.in = inject.New(sess, inject.Options{Log: func(s string) { std.warn("%s", s) }, Injected: w.injected, Spent: f.ended, OneProcess: !r.follow})
	w.faults = f
	return w
}

// placeFaults arms all faults, or none.
func (w *work) placeFaults(ctx context.Context) error {
	f := w.faults
	rules, err := f.req.rules(w.sess.Symbols())
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	f.left = len(rules)
	if f.req.random {
		w.std.warn("the seed is %d; with -seed %d the same calls are chosen", f.req.seed, f.req.seed)
	}
	if f.faults, err = f.in.AddAll(ctx, rules); err != nil {
		return injectError(err)
	}
	_ = w.sess.WaitForOptimizer(ctx)
	for _, fault := range f.faults {
		if skipped := fault.Skipped(); skipped != "" {
			w.std.warn("some places of %s are not probed: %s", fault.Name(), skipped)
		}
	}
	return nil
}

// armed counts the places that are probed, and those in libraries that are not loaded.
func (f *faulting) armed() (n, waiting int) {
	for _, fault := range f.faults {
		for _, p := range fault.Stats().Places {
			if p.Waiting {
				waiting++
			} else {
				n++
			}
		}
	}
	return n, waiting
}

// done is closed when nothing can be injected any more; nil if there is nothing to be.
func (f *faulting) done() <-chan struct{} {
	if f == nil || f.req.hold {
		return nil
	}
	return f.spent
}

// ended: one of the faults can't be injected any more.
func (f *faulting) ended(*inject.Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left--; f.left != 0 {
		return
	}
	rest := time.Duration(0)
	for _, fault := range f.in.Faults() {
		rest = max(rest, time.Until(fault.Delayed()))
	}
	time.AfterFunc(rest, func() { close(f.spent) }) // a delay would end with the session
}

// injected is called on the tracer's thread.
func (w *work) injected(e inject.Event) {
	if w.sink == nil || e.Log == 0 {
		return
	}
	w.sink.put(injectedHit(w.sess.Symbols(), e))
}

// injectedHit is an injected call as a record.
func injectedHit(table *symbols.Table, e inject.Event) *trace.Hit {
	h := &trace.Hit{
		Time: e.Time, PID: e.PID, TID: e.TID, Comm: e.Comm, Probe: e.Place, Kind: faultKind(e.Fault), Addr: e.Addr, Symbol: e.Symbol, Module: e.Module,
		Args:     trace.FetchedArgs(e.Args, e.Values),
		Injected: &trace.Injected{N: e.N, Actions: e.What, DryRun: e.Fault.Rule().DryRun},
	}
	if e.Stack != nil {
		h.Stack = trace.Frames(table, e.Stack)
	}
	return h
}

// faultKind is the word for a fault's probes.
func faultKind(f *inject.Fault) string {
	switch r := f.Rule(); {
	case r.Syscall != "":
		return "syscall"
	case r.After:
		return "kretprobe"
	}
	return "kprobe"
}

// look ends the faults and takes their last counts: no call is injected after that. What can't be unregistered the session's end tells.
func (f *faulting) look() {
	if f == nil {
		return
	}
	_ = f.in.Close()
	for _, fault := range f.faults {
		f.stats = append(f.stats, fault.Stats())
	}
}

// summarize adds what was injected to a summary.
func (f *faulting) summarize(sum *event.Summary, req request) {
	if f == nil {
		return
	}
	for i, fault := range f.faults {
		st := f.stats[i]
		out := event.FaultSummary{
			Fault: fault.Name(), Calls: st.Calls, Eligible: st.Eligible, Injected: st.Injected, Refused: st.Refused, Missed: st.Missed,
			Seed: f.req.seed, DryRun: f.req.dryRun,
		}
		for _, a := range st.Actions {
			out.Actions = append(out.Actions, event.ActionSummary{Action: a.Action, N: a.N})
		}
		sum.Faults = append(sum.Faults, out)
		for _, p := range st.Places {
			sum.Probes = append(sum.Probes, placeSummary(p, faultKind(fault), req))
		}
	}
}

func placeSummary(p inject.PlaceStats, kind string, req request) event.ProbeSummary {
	out := event.ProbeSummary{
		Probe: p.Name, Kind: kind, Addr: p.Addr, Symbol: p.Symbol, Hits: p.Calls, NMissed: p.Missed, Decides: p.Decides,
	}
	how := p.By()
	if how == "" {
		how = missing(p.Waiting)
	}
	out.Mechanism, out.Reason = req.explained(p.Mechanism, how, p.Reason)
	return out
}
