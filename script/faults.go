package script

import (
	"errors"
	"fmt"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/kprobes"
)

// injection is what inject() returns: a fault.
type injection struct {
	s     *Script
	pos   syntax.Position
	rule  inject.Rule
	fault *inject.Fault // nil until it is armed
	off   bool          // stop() was called before
	fn    starlark.Callable
	sites map[string]*site // of the places where handler was called
}

// newInjection is inject(spec, …). The parameters name the actions, and their order is
// that of the actions.
func (s *Script) newInjection(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	f := &injection{s: s, pos: caller(thread), rule: inject.Rule{Attr: fault.Always()}, sites: map[string]*site{}}
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

// declare adds f to the scenario, and arms it at once if the scenario is.
func (f *injection) declare() error {
	s := f.s
	if s.over {
		return errors.New("inject: the scenario has ended")
	}
	if _, ok := s.session.(*kprobes.Session); !ok {
		return errors.New("inject: there is no process")
	}
	if f.rule.Syscall == "" && f.rule.SyscallBy != kprobes.SyscallAuto {
		return errors.New("inject: syscall_by is about system calls, name some with syscall")
	}
	if f.rule.Attr.TaskFilter {
		return errors.New("inject: task_filter marks no threads in a scenario: choose them with if_ = \"common_pid == TID\", or in handler")
	}
	var err error
	if f.rule.Do, err = inject.Combine(f.rule.Do); err != nil {
		return fmt.Errorf("inject: %w", err)
	}
	if f.fn != nil {
		f.rule.Handler = f.handle
	}
	if f.rule.Name == "" && f.rule.Spec == "" && len(f.rule.Specs) > 0 {
		f.rule.Name = f.rule.Specs[0] + " …"
	}
	if s.armed {
		if err := s.inject([]*injection{f}); err != nil {
			return fmt.Errorf("inject: %w", err)
		}
	}
	s.injections = append(s.injections, f)
	return nil
}

// inject arms faults: all or none.
func (s *Script) inject(all []*injection) error {
	if len(all) == 0 {
		return nil
	}
	rules := make([]inject.Rule, len(all))
	for i, f := range all {
		rules[i] = f.rule
	}
	faults, err := s.injectorOf().AddAll(s.heeded(), rules)
	if err != nil {
		return s.ruleError(all, err)
	}
	for i, f := range all {
		if f.fault = faults[i]; f.off {
			err = errors.Join(err, f.fault.Stop())
		}
	}
	return err
}

// injectorOf makes the injector when it is wanted first; nil if there is no process.
func (s *Script) injectorOf() *inject.Injector {
	if session, ok := s.session.(*kprobes.Session); ok && s.injector == nil {
		s.injector = inject.New(session, inject.Options{Log: s.o.Log, Injected: s.o.Injected})
	}
	return s.injector
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
	return s.errorAt(f.pos, fmt.Errorf("cannot inject into %s: %w", f.name(), err))
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
func (f *injection) handle(c *inject.Call) bool {
	if f.s.over || f.off {
		return false
	}
	at := f.sites[c.Place()]
	if at == nil {
		at = f.newSite(c)
		f.sites[c.Place()] = at
	}
	moment := atPre
	if c.AtReturn() {
		moment = atReturn
	}
	ctx := at.probe.context(at, injected{c.Regs, c}, moment)
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
		f.off = true
		if err := f.fault.Stop(); err != nil {
			f.s.warn("the fault of %s can't be stopped: %v", f.name(), err)
		}
		return false
	}
	return v != starlark.False
}

// newSite is a place for a context of a fault's call.
func (f *injection) newSite(c *inject.Call) *site {
	at := &site{name: c.Place(), kp: &kprobes.Kprobe{}}
	for _, p := range f.fault.Stats().Places {
		if p.Name == at.name {
			at.kp.Addr = p.Addr
		}
	}
	at.probe = &probe{s: f.s, spec: f.name(), pos: f.pos, enabled: true, places: []*site{at}, fault: f}
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
		return starlark.Bool(f.fault != nil && f.fault.Armed()), nil
	}
	var stats inject.Stats
	if f.fault != nil {
		stats = f.fault.Stats()
	}
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
		f.off = name == "stop"
		switch {
		case f.fault == nil:
			return starlark.None, nil
		case f.off:
			return starlark.None, f.fault.Stop()
		}
		return starlark.None, f.fault.Start()
	})
}

// Fault is what became of one inject().
type Fault struct {
	Name  string
	Stats inject.Stats
	Seed  uint64
}
