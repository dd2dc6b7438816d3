package script

import (
	"context"
	"fmt"
	"time"

	"go.starlark.net/starlark"

	"github.com/gokprobe/gokprobe/internal/escape"
)

const (
	// DefaultSteps is the budget of one call of a handler or a timer: some tens of
	// milliseconds of the interpreter's time. A step is one of its instructions, an element of
	// a list, or 16 bytes of text.
	DefaultSteps = 1_000_000
	// LoadFactor is how many such budgets executing a file has, and a function that runs at
	// the scenario's end.
	LoadFactor = 20

	// patience is how long a call may take, without the time in ctx.call. Nothing
	// should ever come to it: steps bound everything. It bounds operations that nobody
	// thought of.
	patience = 10 * time.Second
	// looks is after how many steps the clock is looked at.
	looks = 20_000
)

// budget is what one call of a function of the scenario may use.
type budget struct {
	thread *starlark.Thread
	steps  uint64 // in all
	began  time.Time
	waited time.Duration // for functions of the target
	outer  *budget       // of a call that waits meanwhile
	of     *member       // the process of the hit, or the only one; nil if there is no such
	deep   bool          // a value was nested deeper than maxNesting
}

// present is the process that the function which runs is about: that of the hit, or the only one; nil if there is no such.
func (s *Script) present() *member {
	if s.running == nil {
		return nil
	}
	return s.running.of
}

// wait lets others run while the function that runs, in a handler of m, waits for its process.
func (s *Script) wait(m *member, f func()) {
	b, began := s.running, time.Now()
	s.running = nil
	defer func() {
		s.running = b
		b.waited += time.Since(began)
	}()
	s.turn.lend(m, f)
}

// run calls f with a thread of its own and a budget. m is what present says, where is what errors call it.
func (s *Script) run(m *member, where string, steps uint64, f func(*starlark.Thread) error) error {
	thread := &starlark.Thread{Name: where, Print: func(_ *starlark.Thread, text string) { s.print(text) }}
	b := &budget{thread: thread, steps: steps, began: time.Now(), outer: s.running, of: m}
	thread.OnMaxSteps = func(*starlark.Thread) { b.look() }
	thread.SetMaxExecutionSteps(min(steps, looks))
	s.running = b
	defer func() { s.running = b.outer }()
	stop := context.AfterFunc(s.heeded(), func() { thread.Cancel("the scenario is not to begin any more") })
	err := f(thread)
	stop()
	if b.outer != nil {
		b.outer.waited += time.Since(b.began)
	}
	if err == nil {
		return nil
	}
	return s.raised(err, where)
}

// call calls a function of the scenario.
func (s *Script) call(m *member, where string, steps uint64, fn starlark.Callable, args ...starlark.Value) (v starlark.Value, err error) {
	err = s.run(m, where, steps, func(thread *starlark.Thread) (err error) {
		v, err = starlark.Call(thread, fn, accepted(fn, args), nil)
		return err
	})
	return v, err
}

// accepted is args, or nothing for a function without parameters: not every handler wants
// to know.
func accepted(fn starlark.Callable, args []starlark.Value) starlark.Tuple {
	if f, ok := fn.(*starlark.Function); ok && f.NumParams() == 0 {
		return nil
	}
	return args
}

// look ends a call that has used its budget up, and gives it the next portion otherwise.
func (b *budget) look() {
	switch used := b.thread.ExecutionSteps(); {
	case used >= b.steps:
		b.thread.Cancel(fmt.Sprintf("cut off after %s; an endless loop? -steps allows more", escape.Count(b.steps, "step")))
	case time.Since(b.began)-b.waited > patience:
		b.thread.Cancel(fmt.Sprintf("cut off after %v", patience))
	default:
		b.thread.SetMaxExecutionSteps(min(b.steps, used+looks))
	}
}

var errNested = fmt.Errorf("cut off: a value is nested deeper than %d", maxNesting)

// charge takes steps for work that the interpreter does not count, before it is done. The
// error is that there are not as many left.
func (b *budget) charge(steps uint64) error {
	b.thread.Steps += min(steps, b.steps)
	if b.thread.Steps < b.steps {
		return nil
	}
	if b.deep {
		return errNested
	}
	return fmt.Errorf("cut off: this takes more than what is left of %s; -steps allows more", escape.Count(b.steps, "step"))
}
