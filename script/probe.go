package script

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// probe is what kprobe() and kretprobe() return: the probes at all places of a
// specification, which have the same handlers.
type probe struct {
	s    *Script
	spec string
	pos  syntax.Position // of the call that made it

	pre, post  starlark.Callable // of a kprobe
	entry, ret starlark.Callable // of a kretprobe
	returns    bool
	maxActive  int
	wish       *values.Wish // args and filter; nil if there are none

	fault *injection // it stands for this fault's handler; nil for a probe

	parts   []*part // in the processes that are there
	gone    Probe   // the sum of those of processes that have ended
	enabled bool
	broken  bool // a handler has failed
}

// site is one place of a probe, in one process.
type site struct {
	trace.Place // of one that has come for a pattern, Waits
	part        *part
	kp          *kprobes.Kprobe
	rp          *kprobes.Kretprobe // nil for a kprobe
	values      *values.Values     // of args and filter; nil if there are none
	last        kprobes.Status     // before the session ended
	convention  *fetch.ABI         // nil until it is wanted
	foreign     atomic.Uint64      // hits in processes for which values are wrong
}

// newKprobe is kprobe(spec, …).
func (s *Script) newKprobe(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	p := &probe{s: s, pos: caller(thread), enabled: true}
	var spec starlark.Value
	var pre, post function
	var fetched texts
	var filter string
	err := starlark.UnpackArgs(b.Name(), args, kwargs, "spec", &spec, "pre?", &pre, "post?", &post,
		"args?", &fetched, "filter?", &filter, "enabled?", &p.enabled)
	if err != nil {
		return nil, err
	}
	if post.Callable != nil && filter != "" {
		return nil, errors.New("kprobe: a filter decides about pre, not about post; test in post itself")
	}
	p.pre, p.post = pre.Callable, post.Callable
	return p, p.declare(b.Name(), spec, fetched, filter)
}

// newKretprobe is kretprobe(spec, …).
func (s *Script) newKretprobe(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	p := &probe{s: s, pos: caller(thread), enabled: true, returns: true, maxActive: trace.ManyActive}
	var spec starlark.Value
	var entry, ret function
	var fetched texts
	var filter string
	err := starlark.UnpackArgs(b.Name(), args, kwargs, "spec", &spec, "entry?", &entry, "ret?", &ret,
		"args?", &fetched, "filter?", &filter, "maxactive?", &p.maxActive, "enabled?", &p.enabled)
	if err != nil {
		return nil, err
	}
	if p.maxActive < 1 {
		return nil, errors.New("kretprobe: maxactive must be at least 1")
	}
	p.entry, p.ret = entry.Callable, ret.Callable
	return p, p.declare(b.Name(), spec, fetched, filter)
}

// declare finds p's places in the process that is there. They are registered when the whole file has been executed,
// or at once if it has. Other processes follow.
func (p *probe) declare(by string, spec starlark.Value, fetched texts, filter string) error {
	s := p.s
	if s.over {
		return errors.New(by + ": the scenario has ended")
	}
	switch v := spec.(type) {
	case starlark.String:
		p.spec = string(v)
	case starlark.Int:
		var w word
		if err := w.Unpack(v); err != nil {
			return fmt.Errorf("%s: %w", by, err)
		}
		if s.several() {
			return fmt.Errorf("%s: %v is an address in one process; name a function, or a place as in libc.so.6:0x1234", by, w.addr())
		}
		p.spec = w.addr().String()
	default:
		return fmt.Errorf("%s: for parameter spec: got %s, want a string or an address", by, spec.Type())
	}
	if p.wish = p.newWish(fetched, filter); p.wish != nil {
		if err := p.wish.Check(); err != nil {
			return fmt.Errorf("%s: %w", by, wishError(err))
		}
	}
	m := s.present()
	if m != nil {
		pt, err := p.newPart(s.heeded(), m)
		if err == nil && s.begun {
			err = pt.bring()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", by, err)
		}
		p.parts = append(p.parts, pt)
	}
	s.probes = append(s.probes, p)
	s.follow(m)
	return nil
}

// handle sets the handlers of a place.
func (pt *part) handle(at *site) {
	p := pt.p
	if p.returns {
		at.rp.MaxActive = p.maxActive
		at.rp.DataSize = 8
		at.rp.EntryHandler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
			return pt.runEntry(at, ri, regs)
		}
		at.rp.Handler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
			pt.runReturn(at, ri, regs)
			return 0
		}
		return
	}
	if p.pre != nil {
		at.kp.PreHandler = func(_ *kprobes.Kprobe, regs *kprobes.Regs) int { return pt.runPre(at, regs) }
	}
	if p.post != nil {
		at.kp.PostHandler = func(_ *kprobes.Kprobe, regs *kprobes.Regs, _ uint64) { pt.runPost(at, regs) }
	}
}

// kind is the word for p in messages and summaries.
func (p *probe) kind() string {
	if p.fault != nil {
		return "fault"
	}
	if p.returns {
		return "kretprobe"
	}
	return "kprobe"
}

// what names p in an error.
func (p *probe) what(handler string) string {
	if p.fault != nil {
		return "handler of fault " + p.spec
	}
	return fmt.Sprintf("%s handler of %s %s", handler, p.kind(), p.spec)
}

// fails disables p after a handler of it has failed, in m.
func (p *probe) fails(m *member, err error) {
	p.broken = true
	p.s.problem(err)
	if p.fault != nil {
		return // which stops itself
	}
	if err := p.enable(m, false); err != nil {
		p.s.warn("%s %s can't be disabled: %v", p.kind(), p.spec, err)
	}
}

// wanted tells that p is to be armed.
func (p *probe) wanted() bool { return p.enabled && !p.broken }

// enable arms p, or disables it and keeps it: in m, whose thread we are on, at once. Other processes follow.
func (p *probe) enable(m *member, on bool) (err error) {
	p.enabled = on
	if !p.s.begun {
		return nil
	}
	if pt := p.in(m); pt != nil {
		if err = pt.switchTo(context.Background(), on); err == nil {
			pt.on = on
		}
	}
	p.s.follow(m)
	return err
}

// in is p in one process, nil if it is not there.
func (p *probe) in(m *member) *part {
	for _, pt := range p.parts {
		if pt.m == m {
			return pt
		}
	}
	return nil
}

// counts is how many hits, or returns, were handled, and how many were missed.
func (p *probe) counts() (hits, missed uint64) {
	sum := p.gone.Misses
	hits = p.gone.Hits
	for _, pt := range p.parts {
		h, m := pt.counts()
		hits, sum = hits+h, sum.Plus(m)
	}
	return hits, sum.Sum()
}

// counts is that of one process.
func (pt *part) counts() (hits uint64, missed kprobes.Misses) {
	for _, at := range pt.places.All() {
		if at.rp != nil {
			hits += at.rp.Hits()
			missed = missed.Plus(at.rp.Misses())
		} else {
			hits += at.kp.Hits()
		}
		missed = missed.Plus(at.kp.Misses())
		missed[kprobes.MissForeign] += at.foreign.Load()
	}
	if pt.p.pre != nil || pt.p.ret != nil {
		hits = pt.handled
	}
	return hits, missed
}

func (p *probe) String() string        { return fmt.Sprintf("<%s %s>", p.kind(), p.spec) }
func (p *probe) Type() string          { return p.kind() }
func (p *probe) Freeze()               {}
func (p *probe) Truth() starlark.Bool  { return true }
func (p *probe) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable type: %s", p.kind()) }

// Attr implements starlark.HasAttrs.
func (p *probe) Attr(name string) (starlark.Value, error) {
	hits, missed := p.counts()
	switch name {
	case "spec":
		return starlark.String(p.spec), nil
	case "hits":
		return starlark.MakeUint64(hits), nil
	case "missed":
		return starlark.MakeUint64(missed), nil
	case "enabled":
		return starlark.Bool(p.enabled), nil
	case "addrs":
		pt := p.in(p.s.present())
		if pt == nil {
			return nil, fmt.Errorf("addrs: %w", errNoProcess)
		}
		var all []starlark.Value
		for _, at := range pt.places.All() {
			all = append(all, starlark.MakeUint64(uint64(at.kp.Addr)))
		}
		return starlark.NewList(all), nil
	case "start":
		return p.switcher("start", true), nil
	case "stop":
		return p.switcher("stop", false), nil
	}
	return nil, nil
}

// AttrNames implements starlark.HasAttrs.
func (p *probe) AttrNames() []string {
	return []string{"addrs", "enabled", "hits", "missed", "spec", "start", "stop"}
}

func (p *probe) switcher(name string, on bool) starlark.Value {
	return starlark.NewBuiltin(name, func(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		if err := starlark.UnpackArgs(b.Name(), args, kwargs); err != nil {
			return nil, err
		}
		return starlark.None, p.enable(p.s.present(), on)
	})
}

// summary is what became of p.
func (p *probe) summary() Probe {
	sum := p.gone
	for _, pt := range p.parts {
		sum = sum.plus(pt.summary())
	}
	sum.Spec, sum.Kind = p.spec, p.kind()
	return sum
}

// summary is what became of the probe in one process.
func (pt *part) summary() Probe {
	hits, missed := pt.counts()
	skipped := pt.waits.Skipped()
	sum := Probe{Spec: pt.p.spec, Kind: pt.p.kind(), Hits: hits, Missed: missed.Sum(), Misses: missed, Skipped: pt.skipped + skipped.Len(), Patterns: pt.waits.Found()}
	for _, at := range pt.waits.Without() {
		sum.Reason = at.Reason
	}
	for _, at := range pt.places.All() {
		if sum.Places++; sum.Places == 1 {
			sum.Mechanism, sum.Reason = at.last.Mechanism, at.last.Reason
		}
	}
	return sum
}

// plus adds the same probe in another process.
func (p Probe) plus(o Probe) Probe {
	p.Hits, p.Missed, p.Misses = p.Hits+o.Hits, p.Missed+o.Missed, p.Misses.Plus(o.Misses)
	p.Places, p.Skipped = max(p.Places, o.Places), max(p.Skipped, o.Skipped)
	p.Patterns = trace.AddPatterns(p.Patterns, o.Patterns)
	if p.Mechanism == kprobes.NoMechanism && (o.Mechanism != kprobes.NoMechanism || o.Reason != "") {
		p.Mechanism, p.Reason = o.Mechanism, o.Reason
	}
	return p
}

// Disarm ends the scenario: only its functions for the end are still called, and
// nothing is injected. It notes the mechanisms of the probes, which are known only
// while the session lasts. Call it before the sessions are closed.
func (s *Script) Disarm() (err error) {
	give := s.turn.take(nil)
	s.over = true
	members := slices.Clone(s.members)
	give()
	for _, m := range members {
		err = errors.Join(err, m.quit())
	}
	return err
}

// Placed is how many places have a probe, in all processes.
func (s *Script) Placed() (n int) {
	var faults []*inject.Fault
	give := s.turn.take(nil)
	for _, p := range s.probes {
		for _, pt := range p.parts {
			n += len(pt.kprobes()) + len(pt.waits.Without())
		}
	}
	for _, f := range s.injections {
		for _, fp := range f.parts {
			faults = append(faults, fp.fault)
		}
	}
	give()
	for _, f := range faults {
		n += len(f.Stats().Places)
	}
	return n
}
