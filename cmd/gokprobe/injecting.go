package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// faulting is what is injected, into one process or several.
type faulting struct {
	std   stdio
	req   injectRequest
	sink  *sink
	whole bool // there may be several
	group inject.Group
	seed  sync.Once // tells it

	mu     sync.Mutex
	told   map[string]bool // what was said of places that are not probed
	others bool            // further processes may come, or those that are meant are not yet there
	over   bool
	spent  chan struct{} // closed when nothing can be injected any more, and no thread is delayed
}

// injecting is what is injected into one process.
type injecting struct {
	in    *inject.Injector
	fault *inject.Fault
}

func (r injectRequest) newFaulting(std stdio, records *sink, whole bool) *faulting {
	return &faulting{std: std, req: r, sink: records, whole: whole, told: map[string]bool{}, others: true, spent: make(chan struct{})}
}

// newWork is a workMaker.
func (r injectRequest) newWork(std stdio, req request, sess *kprobes.Session, output *os.File, color bool) *work {
	w := newWork(std, req, sess, output, color)
	w.faults = r.newFaulting(std, w.sink, false)
	return w
}

// newJoint is a jointMaker.
func (r injectRequest) newJoint(_ context.Context, s *several) (joint, error) {
	err := s.record()
	return r.newFaulting(s.std, s.sink, true), err
}

// arm injects into a process: everything is armed when it returns, or nothing.
func (f *faulting) arm(ctx context.Context, sess *kprobes.Session) (*injecting, error) {
	rule, err := f.req.ruleIn(sess.Symbols())
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.seed.Do(f.tellSeed)
	i := &injecting{in: inject.New(sess, inject.Options{
		Log:      func(s string) { f.warn(sess, s) },
		Injected: f.injected,
		Spent:    func(*inject.Fault) { go f.look() }, // not on the thread of a target
		// A followed child may fail when its parent can't any more.
		OneProcess: !f.req.follow,
	})}
	if i.fault, err = f.group.Add(ctx, i.in, rule); err != nil {
		return nil, injectError(err)
	}
	_ = sess.WaitForOptimizer(ctx)
	if skipped := i.fault.Skipped(); skipped != "" {
		f.warnOnce(fmt.Sprintf("some places of %s are not probed: %s", i.fault.Name(), skipped))
	}
	return i, nil
}

func (f *faulting) tellSeed() {
	if f.req.random {
		f.std.warn("the seed is %d; with -seed %d the same calls are chosen", f.req.seed, f.req.seed)
	}
}

// warn tells what is wrong in a process.
func (f *faulting) warn(sess *kprobes.Session, text string) {
	if f.whole {
		text = fmt.Sprintf("process %d: %s", sess.PID(), text)
	}
	f.std.warn("%s", text)
}

// warnOnce tells what is likely to be the same in all processes.
func (f *faulting) warnOnce(text string) {
	f.mu.Lock()
	told := f.told[text]
	f.told[text] = true
	f.mu.Unlock()
	if !told {
		f.std.warn("%s", text)
	}
}

// look ends the session when nothing can be injected any more: neither into the processes that are there, nor into others that come.
func (f *faulting) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over || f.group.Armed() || f.others && !f.group.Done() {
		return
	}
	f.over = true
	time.AfterFunc(time.Until(f.group.Delayed()), func() { close(f.spent) }) // a delay would end with the session
}

// done is closed when nothing can be injected any more; nil if that ends nothing.
func (f *faulting) done() <-chan struct{} {
	if f == nil || f.req.hold {
		return nil
	}
	return f.spent
}

// injected is called on the tracer's thread.
func (f *faulting) injected(e inject.Event) {
	if f.sink == nil || e.Log == 0 {
		return
	}
	f.sink.put(injectedHit(e))
}

// armed counts the places that are probed, and those in libraries that are not loaded.
func (i *injecting) armed() (n, waiting int) {
	for _, p := range i.fault.Stats().Places {
		if p.Waiting {
			waiting++
		} else {
			n++
		}
	}
	return n, waiting
}

// gone tells that no place is left, why, and that none will come back.
func (i *injecting) gone() (why string, gone bool) { return i.fault.Gone() }

// close ends the fault and takes its last counts: no call is injected after that. What can't be unregistered the session's end tells.
func (i *injecting) close() {
	if i != nil {
		_ = i.in.Close()
	}
}

func (f *faulting) join(ctx context.Context, h *holding) (err error) {
	h.injecting, err = f.arm(ctx, h.sess)
	return err
}

func (f *faulting) leave(held []*holding) {
	var wg sync.WaitGroup
	for _, h := range held {
		wg.Go(h.injecting.close)
	}
	wg.Wait()
	f.look()
}

func (f *faulting) complete(_ context.Context, others bool) error {
	f.mu.Lock()
	f.others = others
	f.mu.Unlock()
	f.look()
	return nil
}

func (f *faulting) places() (n int) {
	for _, ps := range f.group.ByProcess() {
		n += len(ps.Places)
	}
	return n
}

func (f *faulting) gone(h *holding) (why string, gone bool) { return h.injecting.gone() }

func (f *faulting) tell(s *several, disturbed uint64, giveUp <-chan struct{}) error {
	return s.tellRecords(f.summarize, disturbed, giveUp)
}

// summarize tells of several processes.
func (f *faulting) summarize(sum *event.Summary) {
	all := f.group.Stats()
	sum.Patterns = all.Patterns
	f.summarizeStats(all, &sum.Probes, &sum.Faults)
	for _, ps := range f.group.ByProcess() {
		p := event.ProcessSummary{PID: ps.PID, Comm: ps.Comm, Hits: ps.Calls, NMissed: ps.Missed}
		f.summarizeStats(ps.Stats, &p.Probes, &p.Faults)
		sum.Processes = append(sum.Processes, p)
	}
}

// summarizeOne tells of the only process.
func (f *faulting) summarizeOne(sum *event.Summary, i *injecting) {
	st := i.fault.Stats()
	sum.Patterns = st.Patterns
	f.summarizeStats(st, &sum.Probes, &sum.Faults)
}

func (f *faulting) summarizeStats(st inject.Stats, probes *[]event.ProbeSummary, faults *[]event.FaultSummary) {
	out := event.FaultSummary{
		Fault: f.req.rule.Name, Calls: st.Calls, Eligible: st.Eligible, Injected: st.Injected, Refused: st.Refused, Missed: st.Missed,
		Seed: f.req.seed, DryRun: f.req.dryRun,
	}
	for _, a := range st.Actions {
		out.Actions = append(out.Actions, event.ActionSummary{Action: a.Action, N: a.N})
	}
	*faults = append(*faults, out)
	for _, p := range st.Places {
		*probes = append(*probes, placeSummary(p, faultKind(f.req.rule), f.req.request))
	}
}

// injectedHit is an injected call as a record.
func injectedHit(e inject.Event) *trace.Hit {
	h := &trace.Hit{
		Time: e.Time, PID: e.PID, TID: e.TID, Comm: e.Comm, Probe: e.Place, Kind: faultKind(e.Fault.Rule()), Addr: e.Addr, Symbol: e.Symbol, Module: e.Module,
		Args:     trace.FetchedArgs(e.Args, e.Values),
		Injected: &trace.Injected{N: e.N, Actions: e.What, DryRun: e.Fault.Rule().DryRun},
	}
	if e.Stack != nil {
		h.Stack = trace.Frames(e.Fault.Symbols(), e.Stack)
	}
	return h
}

// faultKind is the word for a rule's probes.
func faultKind(r inject.Rule) string {
	switch {
	case r.Syscall != "":
		return "syscall"
	case r.After:
		return "kretprobe"
	}
	return "kprobe"
}

func placeSummary(p inject.PlaceStats, kind string, req request) event.ProbeSummary {
	out := event.ProbeSummary{
		Probe: p.Name, Kind: kind, Addr: p.Addr, Symbol: p.Symbol, Hits: p.Calls, NMissed: p.Missed, Misses: misses(p.Misses), Decides: p.Decides,
	}
	how := p.By()
	if how == "" {
		how = missing(p.Waiting)
	}
	out.Mechanism, out.Reason = req.explained(p.Mechanism, how, p.Reason)
	return out
}
