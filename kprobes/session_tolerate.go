package kprobes

import (
	"errors"
	rtdebug "runtime/debug"

	"github.com/gokprobe/gokprobe/ptrace"
)

// What the target shares with us it may change, and the kernel may fail to provide
// (ptrace.Shared). So data from there is only a number, never an unchecked size, index
// or pointer. A panic that happens all the same ends the session, not the program.

// counted runs f, which adds up counts, on any goroutine.
func counted(f func()) {
	counting.RLock()
	defer counting.RUnlock()
	ptrace.Tolerate(f)
}

// try does one of the things that must be done at a session's end. If it panics, the others are done all the same; if shared memory was
// the reason, it is begun anew, and does not fail again. It tells whether the thing is done.
func (s *Session) try(f func()) (done bool) {
	defer func() {
		v := recover()
		switch {
		case v == nil:
		case ptrace.Faulted(v):
			done = s.try(f)
		default:
			s.warn("%v while the target is let go: %v\n%s", ErrPanic, v, rtdebug.Stack())
		}
	}()
	f()
	return true
}

// Panicked implements ptrace.Handler: the session ends, the target goes on.
func (s hooks) Panicked(value any, trace []byte) {
	defer s.heirs.within()()
	if err, ok := value.(error); ok && errors.Is(err, ptrace.ErrShared) {
		s.warn("%v: the target is let go", err)
	} else {
		s.warn("%v on the tracer's thread, the target is let go: %v\n%s", ErrPanic, value, trace)
	}
	s.abort()
}

// abort ends the session, and lets the target go on.
func (s hooks) abort() {
	defer s.isOver()
	if s.closed {
		return
	}
	s.closed = true
	s.try(func() {
		if _, err := s.release(true); err != nil {
			s.warn("%v", err)
		}
	})
	s.finish()
}
