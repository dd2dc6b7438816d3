// Package inject makes calls of a live process fail: rules say which calls (package fault, and the kernel's filters) and what happens
// to them instead of, before or after what they do.
//
//	in := inject.New(session, inject.Options{Injected: func(e inject.Event) { … }})
//	f, err := in.Add(ctx, inject.Rule{Spec: "libc.so.6:open", Attr: fault.Always(), Do: []inject.Action{inject.Return{Errno: unix.ENOENT}}})
//
// Where counters and what is known at the hit decide, a program in the target does, and calls that pass never stop; so it is
// with probabilities. Whatever else decides (stacks, threads, strings that are compared whole) is looked at by the tracer.
// Counters count the calls that meet the rule's condition, and the seed says which of them fail: whoever decides, the same calls do.
package inject

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/gokprobe/gokprobe/kprobes"
)

// Options of an Injector. Their functions are called on the tracer's thread, must not block, and may be nil.
type Options struct {
	// Log gets warnings of things that went on: one sentence, no newline. nil gives them to slog.Default.
	Log func(string)
	// Injected is called for every injected call, in the order in which they happen.
	Injected func(Event)
	// Spent is called when no call of the fault can be injected any more: its times or its time are used up. Unlike the others it
	// may be called on any goroutine.
	Spent func(f *Fault)
	// OneProcess tells that the session follows no children: a fault is spent then when its Attr.FailNth has come, which counts in each
	// process.
	OneProcess bool
}

// Injector injects faults into one session's processes. Its methods may be called from any goroutine, also from handlers.
type Injector struct {
	session  *kprobes.Session
	options  Options
	returner *Returner

	mu     sync.Mutex
	faults []*Fault
	closed bool
}

// New makes an Injector, which does nothing yet.
func New(s *kprobes.Session, o Options) *Injector {
	return &Injector{session: s, options: o, returner: NewReturner(s)}
}

// ErrClosed is why a rule can't be added any more, and a fault not be started or stopped. It matches kprobes.ErrClosed.
var ErrClosed error = closed{}

type closed struct{}

// Error implements error.
func (closed) Error() string { return "the injector is closed" }

// Unwrap is what it matches.
func (closed) Unwrap() error { return kprobes.ErrClosed }

// Add injects by a rule. All its probes are armed when it returns or, after an error, none: that is a *RuleError, around kprobes'
// or symbols' where a place can't be probed. If ctx or the session's context is done before all probes are armed, none is: the error matches that context's.
func (in *Injector) Add(ctx context.Context, r Rule) (*Fault, error) {
	fs, err := in.AddAll(ctx, []Rule{r})
	if err != nil {
		return nil, err
	}
	return fs[0], nil
}

// AddAll is Add for several rules: all of them or, after an error, none.
func (in *Injector) AddAll(ctx context.Context, rules []Rule) ([]*Fault, error) {
	return in.add(ctx, nil, rules, nil)
}

// Replace is Add of a rule that takes the place of f, which may be nil: no call is decided by both. Calls between the end of the one and the
// beginning of the other pass. After an error f is as it was, unless that is one of arming the new one: then f has ended.
func (in *Injector) Replace(ctx context.Context, f *Fault, r Rule) (*Fault, error) {
	var old []*Fault
	if f != nil {
		old = []*Fault{f}
	}
	fs, err := in.add(ctx, old, []Rule{r}, nil)
	if err != nil {
		return nil, err
	}
	return fs[0], nil
}

// add follows rules in place of old, as part of a group if there is one.
func (in *Injector) add(ctx context.Context, old []*Fault, rules []Rule, g *Group) ([]*Fault, error) {
	if err := in.usable(); err != nil {
		return nil, err
	}
	faults := make([]*Fault, len(rules))
	for i, r := range rules {
		var err error
		if faults[i], err = in.newFault(ctx, r, g); err != nil {
			return nil, &RuleError{Rule: r.name(), Err: err}
		}
	}
	for i, f := range faults {
		if err := f.register(ctx); err != nil {
			return nil, errors.Join(&RuleError{Rule: f.rule.name(), Err: err}, unregister(faults[:i+1]))
		}
	}
	if err := in.remove(old); err != nil {
		return nil, errors.Join(err, unregister(faults))
	}
	in.mu.Lock()
	closed := in.closed
	if !closed {
		in.faults = append(in.faults, faults...)
	}
	in.mu.Unlock()
	if closed {
		return nil, errors.Join(ErrClosed, unregister(faults))
	}
	for _, f := range faults {
		if f.rule.Stopped {
			continue
		}
		if err := f.arm(ctx, true); err != nil {
			return nil, errors.Join(&RuleError{Rule: f.rule.name(), Err: err}, in.remove(faults))
		}
		f.spent() // it may be by its attributes
	}
	return faults, nil
}

// usable is ErrClosed if the injector is closed, or its session's.
func (in *Injector) usable() error {
	in.mu.Lock()
	closed := in.closed
	in.mu.Unlock()
	if closed {
		return ErrClosed
	}
	return in.session.Do(func() {})
}

// Remove ends faults of this injector, if Close or the session's end has not: no call is injected any more when it returns.
func (in *Injector) Remove(faults ...*Fault) error { return in.remove(faults) }

func (in *Injector) remove(faults []*Fault) error {
	in.mu.Lock()
	in.faults = slices.DeleteFunc(in.faults, func(f *Fault) bool { return slices.Contains(faults, f) })
	in.mu.Unlock()
	return unregister(faults)
}

// Faults lists what is injected, in the order in which it was added.
func (in *Injector) Faults() []*Fault {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.faults)
}

// Close ends all faults. The counts of a Fault can still be asked for. A second call does nothing.
func (in *Injector) Close() error {
	in.mu.Lock()
	faults := in.faults
	in.faults, in.closed = nil, true
	in.mu.Unlock()
	return unregister(faults)
}

func unregister(faults []*Fault) error {
	var errs []error
	for _, f := range faults {
		errs = append(errs, f.unregister())
	}
	return errors.Join(errs...)
}

func (in *Injector) log(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if in.options.Log == nil {
		slog.Warn(text, "pid", in.session.PID())
		return
	}
	in.options.Log(text)
}

// RuleError is why a rule can't be followed.
type RuleError struct {
	Rule string // as its faults are named
	Err  error
}

// Error implements error.
func (e *RuleError) Error() string { return fmt.Sprintf("cannot inject into %s: %v", e.Rule, e.Err) }

// Unwrap is the cause.
func (e *RuleError) Unwrap() error { return e.Err }
