// Package inject makes calls of a live process fail. A Rule says which calls (by package fault and
// the kernel's filters) and which actions are taken instead of, before or after the function's body.
//
//	in := inject.New(session, inject.Options{Injected: func(e inject.Event) { … }})
//	f, err := in.Add(ctx, inject.Rule{Spec: "libc.so.6:open", Attr: fault.Always(), Do: []inject.Action{inject.Return{Errno: unix.ENOENT}}})
//
// Counters, probabilities and values at hand can decide in the target: a program there (package
// program) counts and compares, and calls that pass never stop. Anything else, such as stacks,
// threads, and strings that are compared whole, is for the tracer to decide. Counters count the
// calls that meet the rule's condition, and random numbers depend on the seed alone. So the
// same calls fail whether the target decides or the tracer.
package inject

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/gokprobe/gokprobe/internal/escape"
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
	// OneProcess says that the session follows no children. Attr.FailNth counts in each process; with only one, a fault is
	// spent when that call has failed.
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

// ErrClosed is the error of adding rules, and starting or stopping faults, after the injector was closed. It matches kprobes.ErrClosed.
var ErrClosed error = closed{}

type closed struct{}

// Error implements error.
func (closed) Error() string { return "the injector is closed" }

// Unwrap returns the error that it matches.
func (closed) Unwrap() error { return kprobes.ErrClosed }

// Add injects by a rule. When it returns, all its probes are armed or, after an error, none. The error is a *RuleError; it wraps
// the error of kprobes or symbols if a place can't be probed. If ctx or the session's context is done before all probes are
// armed, the error matches that context's.
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

// Replace is Add of a rule that takes the place of f, which may be nil. No call is decided by both: f ends before the new fault
// begins, and calls between the two pass. After an error f goes on, unless the new fault's probes could not be armed: then f has
// ended.
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

// add makes and arms faults of rules in place of old, as part of g if it is not nil.
func (in *Injector) add(ctx context.Context, old []*Fault, rules []Rule, g *Group) ([]*Fault, error) {
	if err := in.usable(); err != nil {
		return nil, err
	}
	programs := in.session.Programs()
	executed := func() bool { return in.session.Programs() != programs } // so what was found out is of the program before
	refused := func(r *Rule, err error) error {
		if ctx.Err() == nil && in.usable() == nil && executed() {
			err = kprobes.ErrExecuted
		}
		return &RuleError{Rule: r.name(), Err: err}
	}
	faults := make([]*Fault, len(rules))
	for i := range rules {
		var err error
		if faults[i], err = in.newFault(ctx, rules[i], g); err != nil {
			return nil, refused(&rules[i], err)
		}
	}
	for i, f := range faults {
		err := f.register(ctx)
		if err == nil && executed() {
			err = kprobes.ErrExecuted
		}
		if err != nil {
			return nil, errors.Join(refused(&f.rule, err), unregister(faults[:i+1]))
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
			return nil, errors.Join(refused(&f.rule, err), in.remove(faults))
		}
		f.spent() // it may be by its attributes
	}
	return faults, nil
}

// usable returns an error if the injector or its session is closed.
func (in *Injector) usable() error {
	in.mu.Lock()
	closed := in.closed
	in.mu.Unlock()
	if closed {
		return ErrClosed
	}
	return in.session.Do(func() {})
}

// Remove ends faults of this injector, unless Close or the session's end has done so. When it returns, they inject into no call.
func (in *Injector) Remove(faults ...*Fault) error { return in.remove(faults) }

func (in *Injector) remove(faults []*Fault) error {
	in.mu.Lock()
	in.faults = slices.DeleteFunc(in.faults, func(f *Fault) bool { return slices.Contains(faults, f) })
	in.mu.Unlock()
	return unregister(faults)
}

// Faults lists the faults in the order in which they were added.
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

// RuleError is the error of a rule that can't be added.
type RuleError struct {
	Rule string // the name that its Fault would have
	Err  error
}

// Error implements error.
func (e *RuleError) Error() string {
	return fmt.Sprintf("cannot inject into %s: %v", escape.Spec(e.Rule), e.Err)
}

// Unwrap returns the cause.
func (e *RuleError) Unwrap() error { return e.Err }
