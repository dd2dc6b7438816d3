package script

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// timers holds functions and the times of their calls. Handlers add to it while Run
// waits for the first.
type timers struct {
	mu      sync.Mutex
	all     []*timer
	changed chan struct{} // buffered: the first may be another
}

type timer struct {
	when  time.Time
	every time.Duration // 0: once
	// delay is when, for a timer of a file: it begins to run when the probes are armed.
	delay time.Duration
	fn    starlark.Callable
	pos   syntax.Position
	dead  bool
}

func (t *timers) empty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all) == 0
}

func (t *timers) add(one *timer) {
	t.mu.Lock()
	t.all = append(t.all, one)
	t.mu.Unlock()
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// begin sets those going that were made before now.
func (t *timers) begin(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.all {
		one.when = now.Add(one.delay)
	}
}

// first is the one that is due next, the earlier made one of two; nil if there is none.
func (t *timers) first() *timer {
	t.mu.Lock()
	defer t.mu.Unlock()
	var first *timer
	kept := t.all[:0]
	for _, one := range t.all {
		if one.dead {
			continue
		}
		kept = append(kept, one)
		if first == nil || one.when.Before(first.when) {
			first = one
		}
	}
	clear(t.all[len(kept):])
	t.all = kept
	return first
}

// again sets a timer that has been called for its next time. Times that have passed
// meanwhile are left out.
func (t *timers) again(one *timer, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.every == 0 {
		one.dead = true
		return
	}
	one.when = one.when.Add(one.every)
	if one.when.Before(now) {
		one.when = now.Add(one.every)
	}
}

func (t *timers) kill(one *timer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one.dead = true
}

// newTimer is after(d, f) and every(d, f). Its result has a stop().
func (s *Script) newTimer(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var d duration
	var fn starlark.Callable
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "duration", &d, "f", &fn); err != nil {
		return nil, err
	}
	t := &timer{delay: time.Duration(d), when: time.Now().Add(time.Duration(d)), fn: fn, pos: caller(thread)}
	if b.Name() == "every" {
		if t.every = t.delay; d < duration(time.Millisecond) {
			return nil, fmt.Errorf("every: %v is too often, at least 1ms lies between two calls", t.every)
		}
	}
	s.timers.add(t)
	return handle{t, &s.timers}, nil
}

// Run calls due functions until the scenario calls stop(), ctx ends or, if it was loaded for one process, that does.
func (s *Script) Run(ctx context.Context) {
	var ended <-chan struct{}
	if m := s.only(); m != nil {
		ended = m.session.Done()
	}
	var wake *time.Timer
	for {
		var due <-chan time.Time
		next := s.timers.first()
		if next != nil {
			wake = time.NewTimer(time.Until(next.when))
			due = wake.C
		}
		select {
		case <-ctx.Done():
			return
		case <-ended:
			return
		case <-s.stopped:
			return
		case <-s.timers.changed:
		case <-due:
			s.fire(next)
		}
		if next != nil {
			wake.Stop()
		}
	}
}

// fire calls a timer's function: between two stops of the target if there is one.
func (s *Script) fire(t *timer) {
	m := s.only()
	call := func() {
		defer s.turn.take(m)()
		if s.over || t.dead {
			return
		}
		where := "function of after()"
		if t.every != 0 {
			where = "function of every()"
		}
		if _, err := s.call(m, where, s.o.Steps, t.fn); err != nil {
			s.problem(err)
			s.timers.kill(t)
		}
	}
	if m == nil {
		call()
	} else {
		_ = m.session.Do(call) // a closed session has ended the scenario
	}
	s.timers.again(t, time.Now())
}

// stop is stop(): no handler and no timer is called any more, and Run returns.
func (s *Script) stop(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if err := starlark.UnpackArgs(b.Name(), args, kwargs); err != nil {
		return nil, err
	}
	s.over = true
	s.stopOne.Do(func() { close(s.stopped) })
	return starlark.None, nil
}

// handle is a timer as the scenario sees it.
type handle struct {
	t   *timer
	all *timers
}

func (handle) String() string        { return "timer" }
func (handle) Type() string          { return "timer" }
func (handle) Freeze()               {}
func (handle) Truth() starlark.Bool  { return true }
func (handle) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable type: timer") }

// Attr implements starlark.HasAttrs.
func (h handle) Attr(name string) (starlark.Value, error) {
	if name != "stop" {
		return nil, nil
	}
	return starlark.NewBuiltin("stop", func(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		if err := starlark.UnpackArgs(b.Name(), args, kwargs); err != nil {
			return nil, err
		}
		h.all.kill(h.t)
		return starlark.None, nil
	}), nil
}

// AttrNames implements starlark.HasAttrs.
func (h handle) AttrNames() []string { return []string{"stop"} }
