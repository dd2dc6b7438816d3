package inject

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// Fault is a rule in one process, with its probes. Its methods may be called from any goroutine, also from handlers.
type Fault struct {
	in      *Injector
	rule    Rule
	places  trace.Growing[*place]
	waits   trace.Awaiting // patterns
	later   []trace.Place  // those that have no place when the fault begins
	skipped trace.Skipped  // places of patterns that can't be probed, by reason
	decider *Decider       // the rule's, or one of the fault's own
	group   *Group         // whose fault it is in this process, if it is one's
	sum     tally          // what the places' programs count together
	static  bool           // they do the static part

	// The rest is guarded by mu.
	mu       sync.Mutex
	armed    bool
	cut      bool        // it has ended while calls could still fail: those that the target has chosen by then are missed if they come later
	expiry   *time.Timer // of Attr.For
	unwatch  func()      // of threads and processes
	eligible uint64      // as far as the tracer counts them
	injected uint64
	refused  uint64   // calls that were chosen, and could not be injected
	did      []uint64 // by Rule.Do
	warned   bool
	delayed  time.Time // until when threads are delayed
	jitters  uint64    // delays of random length so far
}

// newFault prepares a rule. Nothing is registered.
func (in *Injector) newFault(ctx context.Context, r Rule, g *Group) (*Fault, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	f := &Fault{in: in, rule: r, decider: r.Decider, group: g, did: make([]uint64, len(r.Do))}
	var err error
	switch {
	case f.shares():
	case g != nil:
		f.decider, err = g.deciderFor(r.Attr)
	default:
		f.decider, err = NewDecider(r.Attr)
	}
	if err != nil {
		return nil, err
	}
	places, err := f.resolve(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range places {
		if err := f.read(ctx, p); err != nil {
			return nil, err
		}
	}
	return f, f.prepare(places)
}

// read reads the symbols and debug information that the rule needs for a place, so that later steps are quick.
func (f *Fault) read(ctx context.Context, p *place) error {
	if ctx.Done() == nil || p.isCall() || p.Waits {
		return ctx.Err()
	}
	table := f.in.session.Symbols()
	if err := table.Ready(ctx, p.Addr); err != nil {
		return err
	}
	return table.ReadyParams(ctx, p.Addr)
}

// Rule is the fault's rule.
func (f *Fault) Rule() Rule { return f.rule }

// Name is the fault's name in events.
func (f *Fault) Name() string { return f.rule.name() }

// Symbols are those of the process whose calls the fault is about.
func (f *Fault) Symbols() *symbols.Table { return f.in.session.Symbols() }

// Start arms the fault's probes, after Stop or after its times were used up. Counters go on. The time of Attr.For begins anew,
// except in a Group. With a Rule.Decider it arms the probes only if some call can fail by the present attributes.
func (f *Fault) Start() error { return f.arm(context.Background(), true) }

// Stop disarms the fault's probes, until Start.
func (f *Fault) Stop() error { return f.arm(context.Background(), false) }

// Remove ends the fault. Its counts can still be asked for.
func (f *Fault) Remove() error { return f.in.remove([]*Fault{f}) }

func (f *Fault) arm(ctx context.Context, on bool) error {
	if err := f.in.usable(); err != nil {
		return err
	}
	if !on {
		f.cutOff()
		return f.followArmed(ctx)
	}
	f.mu.Lock()
	f.switchTo(true)
	f.mu.Unlock()
	return f.followArmed(ctx)
}

// switchTo notes whether the fault is armed, and starts or stops its time and its watch. f.mu is held.
func (f *Fault) switchTo(on bool) {
	if f.expiry != nil {
		f.expiry.Stop()
		f.expiry = nil
	}
	if on && !f.shares() {
		if left := f.startTime(); f.rule.Attr.For > 0 {
			f.expiry = time.AfterFunc(left, f.expire)
		}
	}
	f.armed, f.cut = on, f.cut && !on
	f.watch(on)
}

// startTime begins the time of Attr.For, and returns how much of it is left. In a group the time begins only once.
func (f *Fault) startTime() (left time.Duration) {
	f.decider.Do(func(d *fault.Decider) {
		now := time.Now()
		if f.group == nil {
			d.Start(now)
		}
		left = d.Begin(now)
	})
	return left
}

// shares reports whether the rule has a Decider of the user's. The user changes that, and tells it which threads have ended.
func (f *Fault) shares() bool { return f.rule.Decider != nil }

// watch begins or ends the watch for threads or processes that end. Their counters are dropped then, since a new one may get
// the same ID. f.mu is held.
func (f *Fault) watch(on bool) {
	switch {
	case !on && f.unwatch != nil:
		f.unwatch()
		f.unwatch = nil
	case on && f.unwatch == nil && !f.shares():
		forget := func(id int) { f.Decide(func(d *fault.Decider) { d.Forget(id) }) }
		w := kprobes.ThreadWatcher{Ended: forget}
		if f.rule.Attr.PerThread {
			w = kprobes.ThreadWatcher{Gone: forget}
		}
		f.unwatch = f.in.session.WatchThreads(w)
	}
}

// followArmed arms or disarms the probes as isNeeded says. Other goroutines and handlers may change that meanwhile, and don't wait;
// so it looks again until the two agree.
func (f *Fault) followArmed(ctx context.Context) error {
	for {
		on := f.isNeeded()
		if err := f.enable(ctx, on); err != nil || f.isNeeded() == on {
			return err
		}
	}
}

// isNeeded reports whether the probes must be armed. They are off while a shared Decider lets no call fail.
func (f *Fault) isNeeded() bool { return f.Armed() && !(f.shares() && f.decider.isDone()) }

// expire ends the fault when its time is over. If that is just when a call uses up the last of Times, it is ended once.
func (f *Fault) expire() {
	f.mu.Lock()
	f.cut = f.cut || f.armed
	f.mu.Unlock()
	f.endArmed()
}

// cutOff disarms the fault, whatever calls could still fail.
func (f *Fault) cutOff() {
	f.mu.Lock()
	f.cut = f.cut || f.armed
	f.switchTo(false)
	f.mu.Unlock()
}

// endArmed disarms the fault when no further call can fail, so that calls cost nothing any more, and reports whether it was armed before.
func (f *Fault) endArmed() (ends bool) {
	f.mu.Lock()
	ends = f.armed
	f.switchTo(false)
	f.mu.Unlock()
	if !ends {
		return false
	}
	_ = f.followArmed(context.Background()) // a probe that can't be disarmed lets all calls pass
	if f.in.options.Spent != nil {
		f.in.options.Spent(f)
	}
	return true
}

// Armed reports whether the fault chooses among calls. It ends with Stop and, unless the rule has a Decider, when no further call
// can fail.
func (f *Fault) Armed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.armed
}

// Delayed returns until when the fault's Delays hold threads; the zero time if there were none.
func (f *Fault) Delayed() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.delayed
}

// Decide calls do with the fault's Decider, as Decider.Do does.
func (f *Fault) Decide(do func(d *fault.Decider)) { f.decider.Do(do) }

// register registers all probes, disabled, or none.
func (f *Fault) register(ctx context.Context) error {
	if f.rule.Syscall != "" {
		return f.registerCalls(ctx)
	}
	kept, err := trace.Register(ctx, f.places.All(), f.registerAll, f.leaveOut)
	f.places.Set(kept)
	switch {
	case err != nil:
		return err
	case len(kept) == 0 && len(f.later) == 0:
		return f.nowhere()
	}
	var there []trace.Placed
	for _, p := range kept {
		for _, at := range append(p.also, p.Place) {
			there = append(there, trace.Placed{Place: at, Kprobe: p.kp})
		}
	}
	err = f.waits.Await(ctx, f.later, there)
	if refused := (*trace.PlaceError)(nil); errors.As(err, &refused) {
		return refused.Err // the rule is named by who asks
	}
	return err
}

// leaveOut leaves a place of a pattern out that can't be probed. Any other is an error.
func (f *Fault) leaveOut(p *place, err error) error {
	if p.Optional && trace.Skippable(err) {
		f.skipped.Add(err)
		return nil
	}
	return err
}

func (f *Fault) registerAll(ctx context.Context, places []*place) error {
	if !f.rule.After {
		return f.in.session.RegisterKprobes(ctx, kprobesOf(places))
	}
	rps := make([]*kprobes.Kretprobe, len(places))
	for i, p := range places {
		rps[i] = p.rp
	}
	return f.in.session.RegisterKretprobes(ctx, rps)
}

func kprobesOf(places []*place) []*kprobes.Kprobe {
	kps := make([]*kprobes.Kprobe, len(places))
	for i, p := range places {
		kps[i] = p.kp
	}
	return kps
}

func (f *Fault) enable(ctx context.Context, on bool) error {
	if f.rule.Syscall != "" {
		return f.enableCalls(on)
	}
	s := f.in.session
	if on {
		return s.EnableWhenThere(ctx, kprobesOf(f.places.All()))
	}
	var errs []error
	for _, p := range f.places.All() {
		errs = append(errs, s.DisableKprobe(p.kp))
	}
	return errors.Join(errs...)
}

// unregister unregisters the probes. It stores their status before, and their final counts when no handler runs any more.
func (f *Fault) unregister() error {
	f.cutOff()
	f.waits.Remove() // first, lest more come
	for _, p := range f.places.All() {
		p.look()
	}
	var err error
	if f.rule.Syscall != "" {
		err = f.unregisterCalls()
	} else {
		err = f.in.session.UnregisterKprobes(kprobesOf(f.places.All()))
	}
	if f.group != nil {
		f.group.ended(f)
	}
	if errors.Is(err, kprobes.ErrClosed) {
		return nil // the session has ended them
	}
	return err
}
