package script

import (
	"errors"
	"fmt"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/kprobes"
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
	values     *fetching // args and filter; nil if there are none

	fault *injection // it stands for this fault's handler; nil for a probe

	places  []*site
	enabled bool
	broken  bool   // a handler has failed
	handled uint64 // hits or returns that met the filter, if there is a pre or ret
	skipped int    // places of a pattern that can't be probed
}

// site is one place of a probe.
type site struct {
	probe      *probe
	name       string // as records show it
	kp         *kprobes.Kprobe
	rp         *kprobes.Kretprobe // nil for a kprobe
	waits      bool               // its library is not loaded yet
	option     bool               // of a pattern: skipped if it can't be probed
	last       kprobes.Status     // before the session ended
	gone       bool               // it is not registered
	convention *fetch.ABI         // nil until it is wanted
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
	p := &probe{s: s, pos: caller(thread), enabled: true, returns: true, maxActive: manyActive}
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

// declare finds p's places. They are registered when the whole file has been executed,
// or at once if it has.
func (p *probe) declare(by string, spec starlark.Value, fetched texts, filter string) error {
	if p.s.over {
		return errors.New(by + ": the scenario has ended")
	}
	var err error
	switch v := spec.(type) {
	case starlark.String:
		p.spec = string(v)
	case starlark.Int:
		var w word
		if err := w.Unpack(v); err != nil {
			return fmt.Errorf("%s: %w", by, err)
		}
		p.spec = w.addr().String()
	default:
		return fmt.Errorf("%s: for parameter spec: got %s, want a string or an address", by, spec.Type())
	}
	if p.places, err = p.resolve(); err != nil {
		return fmt.Errorf("%s: %w", by, err)
	}
	if p.values, err = p.newFetching(fetched, filter); err != nil {
		return fmt.Errorf("%s: %w", by, err)
	}
	for _, at := range p.places {
		p.handle(at)
	}
	if p.s.armed {
		if err := p.s.arm([]*probe{p}); err != nil {
			return fmt.Errorf("%s: %w", by, err)
		}
	}
	p.s.probes = append(p.s.probes, p)
	return nil
}

// manyActive is as much as the kernel's trace events allow (KRETPROBE_MAXACTIVE_MAX in
// kernel/trace/trace_kprobe.c).
const manyActive = 4096

// handle sets the handlers of a place.
func (p *probe) handle(at *site) {
	at.probe = p
	if p.returns {
		at.rp.MaxActive = p.maxActive
		at.rp.DataSize = 8
		at.rp.EntryHandler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
			return p.runEntry(at, ri, regs)
		}
		at.rp.Handler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
			p.runReturn(at, ri, regs)
			return 0
		}
		return
	}
	if p.pre != nil {
		at.kp.PreHandler = func(_ *kprobes.Kprobe, regs *kprobes.Regs) int { return p.runPre(at, regs) }
	}
	if p.post != nil {
		at.kp.PostHandler = func(_ *kprobes.Kprobe, regs *kprobes.Regs, _ uint64) { p.runPost(at, regs) }
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

// fails disables p after a handler of it has failed.
func (p *probe) fails(err error) {
	p.broken = true
	p.s.problem(err)
	if p.fault != nil {
		return // which stops itself
	}
	if err := p.enable(false); err != nil {
		p.s.warn("%s %s can't be disabled: %v", p.kind(), p.spec, err)
	}
}

// enable arms p, or disables it and keeps it.
func (p *probe) enable(on bool) error {
	p.enabled = on
	if !p.s.armed {
		return nil
	}
	if on {
		return p.s.session.EnableKprobes(p.s.heeded(), p.kprobes())
	}
	var errs []error
	for _, kp := range p.kprobes() {
		errs = append(errs, p.s.session.DisableKprobe(kp))
	}
	return errors.Join(errs...)
}

func (p *probe) kprobes() []*kprobes.Kprobe {
	var all []*kprobes.Kprobe
	for _, at := range p.places {
		if !at.gone {
			all = append(all, at.kp)
		}
	}
	return all
}

// counts is how many hits, or returns, were handled, and how many were missed.
func (p *probe) counts() (hits, missed uint64) {
	for _, at := range p.places {
		if at.rp != nil {
			hits += at.rp.Hits()
			missed += at.rp.NMissed()
		} else {
			hits += at.kp.Hits()
		}
		missed += at.kp.NMissed()
	}
	if p.pre != nil || p.ret != nil {
		hits = p.handled
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
		var all []starlark.Value
		for _, at := range p.places {
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
		return starlark.None, p.enable(on)
	})
}

// summary is what became of p.
func (p *probe) summary() Probe {
	hits, missed := p.counts()
	sum := Probe{Spec: p.spec, Kind: p.kind(), Hits: hits, Missed: missed, Skipped: p.skipped}
	for _, at := range p.places {
		if at.gone {
			continue
		}
		if sum.Places++; sum.Places == 1 {
			sum.Mechanism, sum.Reason = at.last.Mechanism, at.last.Reason
		}
	}
	return sum
}

// Disarm ends the scenario: only its functions for the end are still called, and
// nothing is injected. It notes the mechanisms of the probes, which are known only
// while the session lasts. Call it before the session is closed.
func (s *Script) Disarm() error {
	s.onThread(func() {
		s.over = true
		for _, p := range s.probes {
			for _, at := range p.places {
				at.last = s.session.Status(at.kp)
			}
		}
	})
	if s.injector == nil {
		return nil
	}
	return s.injector.Close()
}

// onThread runs f on the thread that runs the scenario, or here if that has ended.
func (s *Script) onThread(f func()) {
	if s.session.Do(f) != nil {
		f()
	}
}

// Placed is how many places have a probe.
func (s *Script) Placed() (n int) {
	s.onThread(func() {
		for _, p := range s.probes {
			n += len(p.kprobes())
		}
		for _, f := range s.injections {
			n += len(f.fault.Stats().Places)
		}
	})
	return n
}
