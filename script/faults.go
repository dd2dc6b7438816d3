package script

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// injection is what inject() returns: a fault.
type injection struct {
	s     *Script
	pos   syntax.Position
	rule  inject.Rule
	off   bool // stop() was called
	fn    starlark.Callable
	group inject.Group // of its faults, if there may be several
	parts []*faultPart // in the processes that are there
}

// faultPart is a fault in one process.
type faultPart struct {
	f     *injection
	m     *member
	fault *inject.Fault
	on    bool             // it was started last, not stopped
	sites map[string]*site // of the places where handler was called
}

// newInjection is inject(spec, …). The parameters name the actions, and their order is
// that of the actions.
func (s *Script) newInjection(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	f := &injection{s: s, pos: caller(thread), rule: inject.Rule{Attr: fault.Always(), Stopped: true}}
	f.rule.Attr.Seed = fault.Mix(s.o.Seed, uint64(len(s.injections)))
	if len(args) > 1 {
		return nil, fmt.Errorf("inject: got %d arguments, want a function; what is done is named, as in errno = \"EIO\"", len(args))
	}
	if len(args) == 1 {
		if err := f.setSpec(args[0]); err != nil {
			return nil, fmt.Errorf("inject: %w", err)
		}
	}
	for _, kw := range kwargs {
		name, _ := starlark.AsString(kw[0])
		if err := f.set(name, kw[1]); err != nil {
			return nil, parameterError(name, err)
		}
	}
	return f, f.declare()
}

// parameterError says once which parameter is wrong.
func parameterError(name string, err error) error {
	if strings.HasPrefix(err.Error(), name+": ") {
		return fmt.Errorf("inject: for parameter %w", err)
	}
	return fmt.Errorf("inject: for parameter %s: %w", name, err)
}

// setSpec takes a name, an address, or a list of names.
func (f *injection) setSpec(v starlark.Value) error {
	if n, ok := v.(starlark.Int); ok {
		var w word
		if err := w.Unpack(n); err != nil {
			return err
		}
		if f.s.several() {
			return fmt.Errorf("%v is an address in one process; name a function, or a place as in libc.so.6:0x1234", w.addr())
		}
		f.rule.Spec = w.addr().String()
		return nil
	}
	var names texts
	if err := names.Unpack(v); err != nil {
		return fmt.Errorf("for parameter spec: %w", err)
	}
	if len(names) == 1 {
		f.rule.Spec = names[0]
		return nil
	}
	f.rule.Specs = names
	return nil
}

// declare adds f to the scenario, and arms it at once in the process that is there if the scenario is. Other processes follow.
func (f *injection) declare() error {
	s := f.s
	m := s.present()
	switch {
	case s.over:
		return errors.New("inject: the scenario has ended")
	case m != nil && m.injector == nil:
		return errNoTarget
	case f.rule.Syscall == "" && f.rule.SyscallBy != kprobes.SyscallAuto:
		return errors.New("inject: syscall_by is about system calls, name some with syscall")
	case f.rule.Attr.TaskFilter:
		return errors.New("inject: task_filter marks no threads in a scenario: choose them with if_ = \"common_pid == TID\", or in handler")
	}
	var err error
	if f.rule.Do, err = inject.Combine(f.rule.Do); err != nil {
		return fmt.Errorf("inject: %w", err)
	}
	if f.rule.Name == "" && f.rule.Spec == "" && len(f.rule.Specs) > 0 {
		f.rule.Name = f.rule.Specs[0] + " …"
	}
	if s.begun && m != nil {
		if err := f.bring(m); err != nil {
			return fmt.Errorf("inject: %w", err)
		}
	}
	s.injections = append(s.injections, f)
	s.follow(m)
	return nil
}

var errNoTarget = errors.New("inject: there is no process")

// bring injects in the process whose handler has declared it. The caller has the turn, and is on the process' thread.
func (f *injection) bring(m *member) error {
	parts, err := m.add(context.Background(), []*injection{f})
	if err != nil {
		return err
	}
	f.parts = append(f.parts, parts...)
	if err := parts[0].switchTo(true); err != nil {
		return err
	}
	parts[0].on = true
	return nil
}

// in is f in one process, nil if it is not there.
func (f *injection) in(m *member) *faultPart {
	for _, fp := range f.parts {
		if fp.m == m {
			return fp
		}
	}
	return nil
}

// injectAll registers faults in m, stopped, and makes them known.
func (m *member) injectAll(ctx context.Context, all []*injection) error {
	parts, err := m.add(ctx, all)
	defer m.s.turn.take(nil)()
	for _, fp := range parts {
		fp.f.parts = append(fp.f.parts, fp)
	}
	if err != nil {
		m.refused[all[len(parts)]] = true
	}
	return err
}

// add registers faults in m, stopped. Of one process' faults all are or none; of several processes those before the first that can't be.
func (m *member) add(ctx context.Context, all []*injection) (parts []*faultPart, err error) {
	if m.injector == nil {
		return nil, errNoTarget
	}
	rules := make([]inject.Rule, len(all))
	for i, f := range all {
		fp := &faultPart{f: f, m: m, sites: map[string]*site{}}
		rules[i] = f.rule
		if f.fn != nil {
			rules[i].Handler = fp.handle
		}
		parts = append(parts, fp)
	}
	if !m.s.several() {
		faults, err := m.injector.AddAll(ctx, rules)
		if err != nil {
			return nil, m.s.ruleError(all, err)
		}
		for i, fp := range parts {
			fp.fault = faults[i]
		}
		return parts, nil
	}
	for i, fp := range parts {
		if fp.fault, err = fp.f.group.Add(ctx, m.injector, rules[i]); err != nil {
			return parts[:i], m.s.ruleError(all[i:], err)
		}
	}
	return parts, nil
}

// switchTo arms the fault, or disarms it and keeps it.
func (fp *faultPart) switchTo(on bool) error {
	if on {
		return fp.fault.Start()
	}
	return fp.fault.Stop()
}

// ruleError tells the place of the inject() whose rule can't be followed.
func (s *Script) ruleError(all []*injection, err error) error {
	f := all[0]
	var rule *inject.RuleError
	if errors.As(err, &rule) {
		for _, one := range all {
			if name := one.name(); name == rule.Rule {
				f = one
				break
			}
		}
		err = rule.Err
	}
	for inner := err; inner != nil && strings.HasPrefix(inner.Error(), f.name()+": "); inner = errors.Unwrap(inner) {
		if next := errors.Unwrap(inner); next != nil {
			err = next
		}
	}
	return s.errorAt(f.pos, fmt.Errorf("cannot inject into %s: %w", escape.Spec(f.name()), err))
}

func (f *injection) name() string {
	for _, name := range []string{f.rule.Name, f.rule.Spec, f.rule.Syscall} {
		if name != "" {
			return name
		}
	}
	return "inject()"
}

// handle is the rule's Handler: the scenario's function is asked.
func (fp *faultPart) handle(c *inject.Call) bool {
	f := fp.f
	defer f.s.turn.take(fp.m)()
	if f.s.over || f.off || fp.m.left {
		return false
	}
	at := fp.sites[c.Place()]
	if at == nil {
		at = fp.newSite(c)
		fp.sites[c.Place()] = at
	}
	moment := atPre
	if c.AtReturn() {
		moment = atReturn
	}
	ctx := at.part.context(at, injected{c.Regs, c}, moment)
	ctx.call = &followed{}
	ctx.values = map[string]starlark.Value{}
	for _, name := range f.rule.Args {
		name, _, _ = strings.Cut(name, "=")
		if arg, v, ok := c.Value(name); ok {
			ctx.values[name] = fetched(arg.Type, v)
		}
	}
	v, err := ctx.handler(f.fn)
	if err != nil {
		if err := f.enable(fp.m, false); err != nil {
			f.s.warn("the fault of %s can't be stopped: %v", f.name(), err)
		}
		return false
	}
	return v != starlark.False
}

// enable starts f or stops it: in m, whose thread we are on, at once. Other processes follow.
func (f *injection) enable(m *member, on bool) (err error) {
	f.off = !on
	if !f.s.begun {
		return nil
	}
	if fp := f.in(m); fp != nil {
		if err = fp.switchTo(on); err == nil {
			fp.on = on
		}
	}
	f.s.follow(m)
	return err
}

// newSite is a place for a context of a fault's call.
func (fp *faultPart) newSite(c *inject.Call) *site {
	f := fp.f
	at := &site{Place: trace.Place{Name: c.Place()}, kp: &kprobes.Kprobe{}}
	for _, p := range fp.fault.Stats().Places {
		if p.Name == at.Name {
			at.kp.Addr = p.Addr
		}
	}
	at.part = &part{p: &probe{s: f.s, spec: f.name(), pos: f.pos, enabled: true, fault: f}, m: fp.m}
	at.part.places.Add(at)
	return at
}

// injected is a call of a fault as a hit: it returns as the fault wants to know of it.
type injected struct {
	*kprobes.Regs
	call *inject.Call
}

// ReturnNow implements hit.
func (c injected) ReturnNow(value uint64) error {
	if err := c.call.Return(value); err != nil {
		return err
	}
	c.call.Note("return %#x", value)
	return nil
}

func (f *injection) String() string        { return fmt.Sprintf("<fault %s>", f.name()) }
func (f *injection) Type() string          { return "fault" }
func (f *injection) Freeze()               {}
func (f *injection) Truth() starlark.Bool  { return true }
func (f *injection) Hash() (uint32, error) { return 0, errors.New("unhashable type: fault") }

// AttrNames implements starlark.HasAttrs.
func (f *injection) AttrNames() []string {
	return []string{"armed", "calls", "eligible", "injected", "missed", "name", "refused", "start", "stop"}
}

// Attr implements starlark.HasAttrs.
func (f *injection) Attr(name string) (starlark.Value, error) {
	switch name {
	case "name":
		return starlark.String(f.name()), nil
	case "start", "stop":
		return f.switcher(name), nil
	case "armed":
		return starlark.Bool(slices.ContainsFunc(f.parts, func(fp *faultPart) bool { return fp.fault.Armed() })), nil
	}
	stats := f.counts()
	switch name {
	case "calls":
		return starlark.MakeUint64(stats.Calls), nil
	case "eligible":
		return starlark.MakeUint64(stats.Eligible), nil
	case "injected":
		return starlark.MakeUint64(stats.Injected), nil
	case "refused":
		return starlark.MakeUint64(stats.Refused), nil
	case "missed":
		return starlark.MakeUint64(stats.Missed), nil
	}
	return nil, nil
}

func (f *injection) switcher(name string) starlark.Value {
	return starlark.NewBuiltin(name, func(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		if err := starlark.UnpackArgs(b.Name(), args, kwargs); err != nil {
			return nil, err
		}
		return starlark.None, f.enable(f.s.present(), name == "start")
	})
}

// counts is what became of f's calls up to now, in all processes.
func (f *injection) counts() (st inject.Stats) {
	switch {
	case f.s.several():
		return f.group.Counts()
	case len(f.parts) > 0:
		return f.parts[0].fault.Counts()
	}
	return st
}

// stats is counts, and what is known of the places.
func (f *injection) stats() inject.Stats {
	if f.s.several() || len(f.parts) == 0 {
		return f.group.Stats()
	}
	return f.parts[0].fault.Stats()
}

// Fault is what became of one inject().
type Fault struct {
	Name  string
	Stats inject.Stats
	Seed  uint64
}
