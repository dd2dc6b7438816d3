package kprobes

import (
	"context"
	"errors"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Placing probes may take long: files of symbols are read, and all code may be
// searched, on the tracer's thread, where nobody can be left alone with it. So work
// there heeds a context: it is checked between short steps, and before anything of the
// target is changed. Files are read on a goroutine that is not waited for once the
// context is done (symbols, Table.Aside).

// heed is what bounds the thing that a session's tracer is doing.
type heed struct {
	s       *Session
	heeds   context.Context // it ends with this; nil: with nothing
	patient bool            // it can be done again, and is not to be done while a process is inside vfork(2)
}

// until has what is done from now on, on the tracer's thread, end when ctx does; what it returns ends that.
func (he *heed) until(ctx context.Context) (end func()) {
	before := he.heeds
	he.heeds = ctx
	return func() { he.heeds = before }
}

// within is ctx, cut short by the session's end. What it returns must be called when it is not used any more.
func (s *Session) within(ctx context.Context) (context.Context, func()) {
	if ctx == s.life {
		return ctx, func() {}
	}
	both, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(s.life, func() { cancel(context.Cause(s.life)) })
	return cutShort{both, ctx}, func() {
		forget()
		cancel(nil)
	}
}

// cutShort is done when the caller's context is, or the session is to end.
type cutShort struct {
	context.Context
	callers context.Context
}

// Err asks the caller's context itself, which may have ended before that has come here.
func (c cutShort) Err() error {
	if err := c.callers.Err(); err != nil {
		return err
	}
	return c.Context.Err()
}

// context is the context of what is being done on the tracer's thread.
func (he *heed) context() context.Context {
	if he.heeds == nil {
		return context.Background()
	}
	return he.heeds
}

// wanted returns nil if the present work on the tracer's thread is still wanted, or the
// reason to end it now.
func (he *heed) wanted() error { return over(he.context()) }

// over is the error of a ctx that is done: it matches ctx's error and its cause.
func over(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// readSymbols reads the symbols that are needed around at. The error is that of wanted.
func (d *domain) readSymbols(at arch.Addr) error {
	if table := d.linker.symbols(); table != nil {
		_ = table.Ready(d.session.heed.context(), at)
	}
	return d.session.heed.wanted()
}
