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

// errTooLate ends attaching or arming that takes longer than -duration.
var errTooLate = errors.New("-duration was over before the probes were armed; give it more time, or see gokprobe check -p PID")

// arming returns a context for attaching and arming. It ends with ctx, or with errTooLate a
// moment after -duration: some processes can't be stopped (a thread in state D), and the
// user shall not wait for them for ever. The session's own duration begins when it is armed.
func (r *request) arming(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.duration <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, r.duration+armGrace, errTooLate)
}

// startOnly returns a context for starting a session, which ends with ctx only until begun is
// called. A session would end together with its context; the command ends its session
// itself instead, after it has taken the last counts and records.
func startOnly(ctx context.Context) (starts context.Context, begun func()) {
	starts, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	part := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return starts, func() { part() }
}

// unarmed returns the error of an attach or an arming that has ended with err. If the user has
// ended it, that is no failure: unarmed warns and returns nil.
func (s stdio) unarmed(ctx context.Context, pid int, err error) error {
	switch cause := context.Cause(ctx); {
	case !errors.Is(err, kprobes.ErrGivenUp) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(cause, errTooLate) && pid == 0: // none was held yet
		return attachError(cause)
	case errors.Is(cause, errTooLate):
		return attachError(fmt.Errorf("process %d is let go: %w", pid, cause))
	}
	s.warn("interrupted before the probes were armed")
	return nil
}
