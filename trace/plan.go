package trace

import (
	"regexp"
	"slices"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
	"github.com/gokprobe/gokprobe/symbols"
)

// plan says who handles a point's hits: the session, which only counts them; a program in the target, which counts or records the hits that
// meet the filter; or, with the zero plan, handlers that stop the thread.
type plan struct {
	capture        *capture // what the target records; nil if it records nothing
	countsInTarget bool     // the target counts the hits that meet the filter
	exact          bool     // the target's filter is all of it: records that were lost met it
}

// makePlan chooses the plan that costs the target least, and sets up pt's probe for it.
func (pt *point) makePlan() {
	if pt.onlyCounted() || pt.countInTarget() || pt.recordInTarget() {
		return
	}
	if pt.ret != nil {
		pt.follow()
	} else {
		pt.kp.PreHandler = pt.hit
	}
}

// onlyCounted tells that the session's own count is all that is wanted.
func (pt *point) onlyCounted() bool {
	return !pt.probe.wantsHits() && !pt.Waits && !pt.filtered()
}

// wantsHits tells that hits are looked at one by one.
func (p *Probe) wantsHits() bool { return p.queue != nil || p.want.limit > 0 }

// countInTarget makes the target count pt's hits that meet the filter, if it can tell them.
func (pt *point) countInTarget() bool {
	if pt.probe.session.byStops() || pt.probe.wantsHits() || pt.Waits || pt.ret != nil || !pt.same() {
		return false
	}
	if pt.misreads() || pt.fetch.Moves { // nobody would notice that the file is mapped elsewhere
		return false
	}
	cond, exact := pt.fetch.Filter.Cond(pt.fetch.Layout)
	if !exact {
		return false
	}
	made, err := program.Build(pt.Name, 0, pt.fetch.Layout.Regs(), cond, program.CountHit{Shards: 4})
	if err == nil {
		_, err = program.Check(made)
	}
	if err != nil {
		return false
	}
	pt.kp.Program, pt.plan.countsInTarget = made, true
	return true
}

// misreads tells that the target may find another address in memory than the true one, and can't filter by it.
func (pt *point) misreads() bool {
	return pt.probe.session.kprobes.ReplacesReturns() && pt.fetch.Layout.ReadsAddresses()
}

// recordInTarget makes the target record pt's hits, if a record can hold all that is wanted of them.
func (pt *point) recordInTarget() bool {
	p := pt.probe
	if p.session.byStops() || p.queue == nil || p.want.limit > 0 || pt.Waits || pt.stack > 0 || !pt.recordable() {
		return false
	}
	c, err := pt.recording(true)
	if err != nil && c != nil && c.spares { // a record may be too small for everything
		c, err = pt.recording(false)
	}
	if err != nil {
		return false
	}
	pt.plan.capture, p.recordsInTarget = c, true
	pt.kp.Program, pt.kp.RecordHandler = c.made, pt.recorded
	return true
}

// recording makes what records pt's hits, also what is spare of them if spare is set. It is not nil if it can be made at all.
func (pt *point) recording(spare bool) (c *capture, err error) {
	if c, err = pt.newCapture(spare); err != nil {
		return nil, err
	}
	f := pt.fetch
	if f == nil {
		return c, c.build(pt.Name, ring)
	}
	c.add(f.Layout)
	by := f.Filter
	if pt.misreads() || f.Moves {
		by = nil // the tracer filters
	}
	pt.plan.exact, err = c.plan(pt.Name, by, f.Layout)
	return c, err
}

// recordable reports whether a program in the target can record the wanted values. They must be fetched in the same way in all followed
// processes, and exist where the program runs: at a return it does not see the entry's.
func (pt *point) recordable() bool {
	if !pt.same() || len(pt.probe.want.goExprs) > 0 {
		return false
	}
	if pt.ret != nil {
		return !pt.probe.want.args && (pt.fetch == nil || pt.fetch.Layout.Saved() == 0)
	}
	return !pt.probe.want.args && !pt.probe.want.locals || !pt.probe.session.options.kprobes.Follow
}

// same reports whether Fetch and If are compiled to the same in each file that a followed process may execute: they need neither debug
// information nor the address of a variable or of a function.
func (pt *point) same() bool {
	if !pt.probe.session.options.kprobes.Follow || pt.fetch == nil {
		return true
	}
	w := pt.probe.want
	if pt.fetch.Outside || len(pt.fetch.Read()) > 0 || slices.ContainsFunc(w.fetch, atVariable.MatchString) || atVariable.MatchString(w.filter) {
		return false
	}
	_, err := w.wish(pt.Return).At(pt.probe.session.kprobes.Symbols(), values.Place{Waits: true})
	return err == nil
}

// atVariable finds @SYMBOL in fetch arguments.
var atVariable = regexp.MustCompile(`@[^0-9]`)

// newCapture is what pt's records hold beside what Fetch wants.
func (pt *point) newCapture(spare bool) (*capture, error) {
	table, w := pt.probe.session.kprobes.Symbols(), pt.probe.want
	var names []string
	if w.regs {
		names = host.Arch.NewRegs().Names()
	}
	if pt.ret == nil {
		var all symbols.Variables
		if w.args {
			params, _ := parameters(table, pt, pt.Addr)
			all.Params = w.shown(params)
		}
		if w.locals {
			seen, _ := pt.variables(table, pt.Addr)
			all.Locals = w.shown(seen.Locals)
		}
		c, err := newCapture(names, slices.Concat(briefly(all.Params), briefly(all.Locals), pt.fetch.Read()), spare)
		if err == nil {
			c.locals, c.wholes = len(all.Locals), len(pt.fetch.Read())
		}
		return c, err
	}
	results, err := table.Results(pt.Addr)
	results = w.shown(results)
	c, cerr := newCapture(append(names, returnRegister, durationRegister), slices.Concat(briefly(results), pt.fetch.Read()), spare)
	if cerr == nil {
		c.typed, c.wholes = err == nil, len(pt.fetch.Read())
	}
	return c, cerr
}

// Registers of a return's record, beside those of the results.
var returnRegister = host.C.Results[0]

const durationRegister = "duration" // kprobes.Kretprobe.KP

// hit is the PreHandler of a point.
func (pt *point) hit(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
	p := pt.probe
	k := pt.there(regs)
	p.catchUp()
	if k == nil {
		pt.unread.Add(1)
		return 0
	}
	fetched, err := k.fetched(regs, nil)
	if err != nil {
		pt.unread.Add(1)
		p.session.warn("a hit of %s is not printed: %v", pt.Name, err)
		return 0
	}
	if k.fetch.KeepsAt(regs, regs, fetched, regs.Comm(), regs.TID()) && p.record(time.Now(), func() *Hit {
		h := pt.newHit(k, regs)
		if len(k.params) > 0 {
			h.Args = arguments(k.params, regs)
		}
		if p.want.locals {
			h.Locals = arguments(k.locals, regs)
		}
		h.Args = pt.withGo(pt.withFetched(h.Args, k.fetch, fetched, arguments(k.fetch.Whole(), regs)), regs)
		h.Globals = pt.globals(k.fetch, regs, regs)
		pt.addState(h, regs, k.addr)
		return h
	}) {
		pt.kept.Add(1)
	}
	return 0
}

// recorded is the RecordHandler of a point.
func (pt *point) recorded(_ *kprobes.Kprobe, rec *kprobes.HitRecord) {
	k, c := pt.notice(), pt.plan.capture
	if pt.isBlind(k) || pt.fetch != nil && !k.isRecorded { // the record is of variables that lie elsewhere now
		pt.unread.Add(1)
		return
	}
	s := c.decode(rec.Payload)
	if s == nil {
		pt.short.Add(1)
		return
	}
	fetched := c.values(rec.Payload, values.Host(pt.probe.session.kprobes.Symbols(), rec.Comm, rec.ReturnPlace))
	h := &Hit{
		Time: rec.Time, PID: rec.PID, TID: rec.TID, Comm: rec.Comm,
		Probe: pt.Name, Label: pt.probe.want.label, Kind: pt.kind(), Addr: k.addr, Symbol: k.symbol, Module: k.module,
	}
	if rec.Foreign { // the function of that name is elsewhere
		h.Addr, h.Module = 0, ""
	}
	if pt.ret != nil {
		pt.addReturn(h, s, rec)
	}
	if !k.fetch.KeepsAt(s, s, fetched, rec.Comm, rec.TID, returnValues(h)...) {
		return
	}
	pt.kept.Add(1)
	pt.probe.record(rec.Time, func() *Hit {
		at, wholes := k.addr, argumentsFrom(c.wholly()[:len(pt.fetch.Whole())], s, s)
		if pt.ret != nil {
			ip, _ := s.Get(host.Roles.IP)
			at = arch.Addr(ip)
		} else {
			all := argumentsFrom(c.own(), s, s)
			n := len(all) - c.locals
			if h.Args = all[:n:n]; pt.probe.want.locals {
				h.Locals = all[n:]
			}
		}
		h.Args = pt.withFetched(h.Args, pt.fetch, fetched, wholes)
		h.Globals = pt.globals(pt.fetch, s, s)
		if pt.probe.want.regs {
			h.Args = appendRegs(h.Args, processorRegs{s}, at)
		}
		return h
	})
}

// addReturn adds what a record tells of a return.
func (pt *point) addReturn(h *Hit, s *snapshot, rec *kprobes.HitRecord) {
	ticks, _ := s.Get(durationRegister)
	h.took(pt.probe.session.kprobes.Took(rec, ticks))
	v, _ := s.Get(returnRegister)
	typed := s.c.typed && !rec.Foreign
	if typed {
		h.Results = argumentsFrom(s.c.own(), s, s)
	}
	h.Ret = returnWord(v, s.c.own(), typed)
}

// processorRegs is a snapshot's registers that the processor has.
type processorRegs struct{ *snapshot }

// Names implements arch.Regs.
func (s processorRegs) Names() []string {
	return slices.DeleteFunc(slices.Clone(s.snapshot.Names()), func(n string) bool { return n == durationRegister })
}

// fetched is the values that Fetch and If want of a stopped thread's hit.
func (k *known) fetched(regs *kprobes.Regs, saved []uint64) ([]fetch.Value, error) {
	if k.fetch == nil {
		return nil, nil
	}
	return k.fetch.Layout.Fetch(regs, regs, saved, values.Host(regs.Symbols(), regs.Comm(), regs.ReturnPlace))
}

// withFetched adds those of the values that Fetch wants.
func (pt *point) withFetched(args []Arg, by *values.Values, fetched []fetch.Value, wholes []Arg) []Arg {
	if by == nil {
		return args
	}
	shown := make([]Arg, len(by.Shown))
	all := fetchedArgs(by.Args, fetched, by.Bounds.Bytes)
	for i, x := range by.Shown {
		if x.IsWhole {
			shown[i] = wholes[x.Index]
		} else {
			shown[i] = all[x.Index]
		}
	}
	return replace(args, shown)
}

// globals are the values of the variables that Globals wants; nil without.
func (pt *point) globals(by *values.Values, regs arch.Regs, mem arch.Memory) []Arg {
	if len(pt.probe.want.globals) == 0 || by == nil {
		return nil
	}
	return argumentsFrom(by.Globals, regs, mem)
}

// notice comes with every hit. A probe may be where it was not when it was registered.
func (pt *point) notice() *known {
	if k := pt.known.Load(); k != nil && k.addr == pt.kp.Addr && pt.isSettled(k, k.addr) {
		return k
	}
	s := pt.probe.session
	if err := pt.describe(); err != nil && pt.from.tells() {
		s.warn("a probe prints no arguments: %v", values.NoParams(s.kprobes.Symbols(), pt.kp.Addr, err))
	}
	st := s.kprobes.Status(pt.kp)
	pt.last.Store(&st)
	return pt.known.Load()
}

// catchUp hands on the records that lie in the target, before a hit that is handled: a thread's
// hits come in their order.
func (p *Probe) catchUp() {
	if p.recordsInTarget || p.want.queue != nil { // probes of one queue may record too
		p.session.kprobes.FlushRecords()
	}
}

// record puts one hit, of a time, into the queue and counts it. Once the limit is reached it does neither and
// reports false.
func (p *Probe) record(at time.Time, hit func() *Hit) bool {
	if p.queue == nil {
		hit = func() *Hit { return nil }
	}
	if p.budget.spent() {
		p.silence()
		return false
	}
	if p.want.only != nil && !p.want.only() || !p.want.pace.allows(at) {
		return true
	}
	h := hit() // before others are made to wait
	put := func() bool { return h == nil || p.queue.Put(h) }
	if !p.budget.limited {
		put()
		return true
	}
	within, spent := p.budget.spend(put)
	if spent {
		p.silence()
		p.endQueue()
	}
	return within
}

// silence disables all points at once, so that no thread stops for a hit that is not wanted any more.
func (p *Probe) silence() {
	if p.silenced.CompareAndSwap(false, true) {
		p.disable()
	}
}

func (p *Probe) disable() {
	for _, pt := range p.points.All() {
		_ = p.session.kprobes.DisableKprobe(pt.kp) // the session's end puts the code back in any case
	}
}

func (pt *point) newHit(k *known, regs *kprobes.Regs) *Hit {
	return &Hit{
		Time: time.Now(), PID: regs.PID(), TID: regs.TID(), Comm: regs.Comm(),
		Probe: pt.Name, Label: pt.probe.want.label, Kind: pt.kind(), Addr: k.addr, Symbol: k.symbol, Module: k.module,
	}
}

// addState adds the registers and the stack of the thread, if they are wanted. The instruction pointer is shown as at.
func (pt *point) addState(h *Hit, regs *kprobes.Regs, at arch.Addr) {
	if pt.probe.want.regs {
		h.Args = appendRegs(h.Args, regs, at)
	}
	if pt.stack > 0 && pt.stacks != 0 {
		pt.stacks = max(pt.stacks-1, -1)
		h.Stack = Frames(regs.Symbols(), regs.Backtrace(pt.stack))
	}
}
