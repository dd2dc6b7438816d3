package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gokprobe/gokprobe/kprobes"
)

// armGrace is how much longer than -duration attaching and arming may take.
const armGrace = 700 * time.Millisecond

// errTooLate is why attaching or arming ends when -duration is over.
var errTooLate = errors.New("-duration was over before the probes were armed; give it more time, or look what the process waits for (gokprobe check -p PID)")

// arming is how long attaching and arming may go on: until ctx ends, and not much longer than the session itself is to last. That time
// begins anew when the probes are armed; this is for processes that do not let themselves be attached to.
func (r *request) arming(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.duration <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, r.duration+armGrace, errTooLate)
}

// startOnly is ctx for what begins a session, until begun is called: a session ends with its context, and the command ends its own in another order, by
// what is to be told of it.
func startOnly(ctx context.Context) (starts context.Context, begun func()) {
	starts, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	part := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return starts, func() { part() }
}

// unarmed is what is told of an attach or an arming that ended with err: that the user has ended it is no failure.
func (s stdio) unarmed(ctx context.Context, pid int, err error) error {
	switch cause := context.Cause(ctx); {
	case !errors.Is(err, kprobes.ErrGivenUp) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(cause, errTooLate):
		return attachError(fmt.Errorf("process %d is let go: %w", pid, cause))
	}
	s.warn("interrupted before the probes were armed")
	return nil
}
