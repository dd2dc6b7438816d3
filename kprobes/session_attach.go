package kprobes

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/guardian"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Attach takes hold of a running process. It returns a *ptrace.AttachError that names
// the cause if that is refused; then the process is untouched. What a killed tracer has left there is put right
// first, as Recover does.
//
// The session lasts no longer than ctx: when that is done, the session closes by itself, as by Close, and Close returns what came of it.
//
// If ctx is done before there is a session, the error matches its cause (context.Cause) and ErrGivenUp, and
// Attach returns at once, whatever the process does: none of its threads is traced any more, or asked to stop, and nothing of it has changed. It
// may take some tenths of a second, for threads that are about to stop; a file of symbols that is being read is read to its
// end by another goroutine, which drops it.
//
// One thing is not cut short: a thread that makes a system call for us is waited for.
// It is left only if the kernel alone delays it, as a freezer does, and it then goes on
// as it was (package ptrace, Cancel). When what a killed tracer has left is being put
// right, that is done to its end.
func Attach(ctx context.Context, pid int, opts Options) (*Session, error) {
	return begin(ctx, opts, func(s *Session) error {
		s.target.putRight(ctx, pid)
		err := s.target.attach(pid)
		for range 2 {
			var refused *ptrace.AttachError
			if !errors.As(err, &refused) || refused.Cause != ptrace.CauseTraced {
				break
			}
			passed := false
			if !s.tracer.Outside(func() { passed = guardian.Await(pid) }) || !passed {
				break
			}
			err = s.target.attach(pid) // a killed gokprobe's guardian had it
		}
		return err
	})
}

// ErrGivenUp is what Attach and Launch end with when their context is done before there is a session.
var ErrGivenUp = ptrace.ErrGivenUp

// Command is a program for Launch.
type Command = ptrace.Command

// Launch starts a program and holds it when the libraries that it is linked with are loaded and relocated: none of its own code has run, nor their
// constructors. What the dynamic linker did until then is not seen, nor the functions by which it chose implementations (IFUNC). A program whose dynamic linker
// does not tell debuggers when it is done (struct r_debug of <link.h>), and one without, is held at its entry point. Probes can be registered now; Start
// lets it run.
//
// The session lasts no longer than ctx, as that of Attach does: the program then runs on without it. If ctx is done before there is a session, the
// program is killed, and the error matches the context's cause and ErrGivenUp. If the program ends by itself before it is held, the error is an *EndedError.
func Launch(ctx context.Context, c Command, opts Options) (*Session, error) {
	return begin(ctx, opts, func(s *Session) error {
		err := s.do(func() error {
			p, err := s.tracer.Launch(c)
			if err != nil {
				return err
			}
			s.target.launched = true
			s.target.hold(p)
			return s.target.runToEntry(p)
		})
		if !errors.Is(err, ptrace.ErrExited) {
			return err
		}
		select {
		case <-s.Done():
			return &EndedError{*s.Exit()}
		case <-ctx.Done():
			return err
		}
	})
}

// EndedError is what Launch ends with when the program has ended before it came to where it is held, as one does of which a library is missing: what it
// had to say of that it has said.
type EndedError struct{ ExitStatus }

func (e *EndedError) Error() string {
	if e.Signal != 0 {
		return fmt.Sprintf("it has ended before it was loaded, by %s", unix.SignalName(e.Signal))
	}
	return fmt.Sprintf("it has ended before it was loaded, with exit status %d", e.Code)
}

// attach seizes a running process for the session.
func (tg *target) attach(pid int) error {
	return tg.s.do(func() error {
		p, err := tg.s.tracer.Attach(pid)
		if err != nil {
			return err
		}
		if id := tg.s.opts.Meant; id != nil {
			if err := id.Still(); err != nil { // the process can't end unnoticed
				return errors.Join(&ptrace.AttachError{PID: pid, Cause: ptrace.CauseNoProcess, Err: err}, tg.s.tracer.Detach(p))
			}
		}
		tg.hold(p)
		return nil
	})
}

// newTracer is ptrace.New, but in tests.
var newTracer = ptrace.New

// begin makes a session, which take has take hold of its process, unless ctx is done before it has.
func begin(ctx context.Context, opts Options, take func(*Session) error) (_ *Session, err error) {
	left := enterHolder(ctx)
	defer func() {
		if err != nil {
			left()
		}
	}()
	if ctx.Err() != nil {
		return nil, givenUp(ctx)
	}
	s, err := newSession(ctx, opts)
	if err != nil {
		return nil, err
	}
	stop := s.tracer.CancelOn(ctx)
	err = take(s)
	if err == nil {
		err = s.target.loadSymbols()
	}
	switch {
	case !stop():
		s.target.letGo()
		return nil, givenUp(ctx)
	case err != nil && s.target.launched:
		s.target.letGo()
		return nil, err
	case err != nil:
		if cerr := s.Close(); cerr != nil {
			err = errors.Join(err, cerr)
		}
		return nil, err
	}
	s.target.startGuardian(ctx) // nothing is patched yet
	context.AfterFunc(s.life, func() {
		defer left()
		s.closeAlone()
	})
	return s, nil
}

func givenUp(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrGivenUp, context.Cause(ctx))
}

// letGo ends a session that has not begun, in which nothing is patched. A program that was started for it is killed.
func (tg *target) letGo() {
	tg.s.tracer.Cancel() // if that is still about to be
	_ = tg.s.tracer.Do(func() {
		tg.s.closed = true
		defer tg.s.isOver()
		if tg.launched && tg.s.main.Kill(unix.SIGKILL) == nil {
			defer tg.collect()
		}
		tg.s.tracer.LetGo()
		tg.endGuardian()
		if tg.s.table != nil {
			_ = tg.s.table.Close()
		}
		tg.s.finish()
	})
	tg.s.tracer.Close()
	tg.s.end(ErrClosed)
}

// collect waits for the program that was started and killed: it is a child of this process.
func (tg *target) collect() {
	if p, err := os.FindProcess(tg.s.pid); err == nil {
		go func() { _, _ = p.Wait() }() // in state D it ends later
	}
}
