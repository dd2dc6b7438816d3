package kprobes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/guardian"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/symbols"
)

// Options of a session. The zero value is the usual choice.
type Options struct {
	// NoBoost puts a trap behind every copied instruction, instead of
	// a jump back.
	NoBoost bool
	// NoOptimize has no breakpoint replaced by a jump.
	NoOptimize bool
	// Returns is how Kretprobes follow calls to their ends. The zero value leaves the target's stacks alone.
	Returns Returns
	// Follow keeps forked children and programs started by exec under the same
	// probes: in such a program, also one that a child executes, those that have a
	// symbol are placed where it is there, before the program's first instruction.
	// Without it a forked child is given its original code back and let
	// go, and an exec ends the probes of its process. The session lasts until all of
	// them have ended, such as a daemon that the process leaves.
	Follow bool
	// AwaitPrograms, under Follow, makes a probe wait whose name nothing of the target has: for a program, executed later, that has it
	// when it starts or in a library that it loads. Otherwise that is ErrUnknownSymbol.
	AwaitPrograms bool
	// Meant is the process to attach to, even if another one has its number by then;
	// nil: the one that has the number.
	Meant *ptrace.Identity
	// Log gets warnings of things that went on: one sentence, no newline. It is
	// called on the tracer's thread. nil gives them to slog.Default.
	Log func(string)
}

// Session is a process held under probes, with the children it makes if they are
// followed. All methods may be called from any goroutine, also from a handler.
//
// After Close the methods that return an error match ErrClosed, but for Close itself. PID, Exit, Done and the counts of probes
// stay as they were; what tells the session's state (Status, Probes, Processes and the like) is empty.
type Session struct {
	opts   Options
	tracer *ptrace.Tracer
	table  *symbols.Table
	pid    int

	life context.Context // done when the session is to end, or has
	end  context.CancelCauseFunc

	// The rest belongs to the tracer's thread.
	main    *ptrace.Process
	domains map[*domain]bool    // those that are at work; see settled
	spaces  ptrace.Kept[domain] // those that there were, too
	heirs   heirs               // forked children that have no domain yet
	// forkedCalls is of the address space of a forked child the calls that its thread was in, in the order of their entries, until Forked.
	forkedCalls ptrace.Kept[[]KretprobeInstance]
	// forkedReturns is where return addresses of its were replaced, until then.
	forkedReturns ptrace.Kept[[]arch.Addr]
	forkedPages   []byte // room for what is read of a forked child, and then of its files (session_forkpages.go)

	closed  bool
	closing bool // Close has begun: no handler begins a call

	target    target   // how it is held
	registry  registry // of probes
	syscalls  syscallProbes
	hits      hits
	handlers  handlers // that run
	answering answering
	passes    passes // of the optimizer
	records   recordKeeper
	beside    besideWatch
	heed      heed // of the context of what is being done

	untold atomic.Pointer[error] // why the session could not be closed when its context was done

	watchers watchers // safe for concurrent use

	done     chan struct{}
	doneOnce sync.Once
	overOnce sync.Once
	over     chan struct{} // closed when nothing in any process is ours any more
	exit     atomic.Pointer[ExitStatus]
}

// ExitStatus is how the target ended.
type ExitStatus struct {
	Code   int         // exit status; 128 + Signal if a signal killed it
	Signal unix.Signal // 0 if it exited by itself
}

// runToEntry lets the dynamic linker load and relocate what p is linked with. p stands in it then, before constructors run; or, if nobody tells
// that it is done, at p's entry point.
func (tg *target) runToEntry(p *ptrace.Process) error {
	const atEntry = 9 // AT_ENTRY, getauxval(3)
	auxv, err := p.Space.Auxv()
	if err != nil {
		return fmt.Errorf("finding the target's entry point: %w", err)
	}
	linker, entry := linkingOf(p), arch.Addr(auxv[atEntry])
	ats := []arch.Addr{entry}
	if linker.Brk != 0 && linker.Brk != entry {
		ats = append(ats, linker.Brk)
	}
	for {
		at, err := tg.s.tracer.RunTo(p.Leader(), ats...)
		if err != nil {
			return fmt.Errorf("running the target to its entry point: %w", err)
		}
		if at == entry || linker.Done(p.Space) {
			return nil
		}
		if err := p.Space.Step(p.Leader()); err != nil {
			return fmt.Errorf("running the target to its entry point: %w", err)
		}
		p.Leader().Go(ptrace.RunOn())
	}
}

// linkingOf is of the dynamic linker of a program which has just been executed; without Brk if it has none that is known.
func linkingOf(p *ptrace.Process) (l symbols.Linking) {
	table, err := symbols.Open(p.PID, p.Space.Peek(p.PID))
	if err != nil {
		return l // what fails will be told by who needs it
	}
	defer func() { _ = table.Close() }()
	if slices.ContainsFunc(table.Modules(), func(m *symbols.Module) bool { return m.Kind == symbols.KindInterpreter }) {
		l.Rendezvous, _ = table.Rendezvous()
	}
	return l
}

// Start lets a launched program run.
func (s *Session) Start() error {
	return s.do(func() error {
		if th := s.main.Leader(); th != nil {
			s.tracer.Release(th)
		}
		return nil
	})
}

func newSession(ctx context.Context, opts Options) (*Session, error) {
	t, err := newTracer()
	if err != nil {
		return nil, err
	}
	s := &Session{opts: opts, tracer: t, domains: map[*domain]bool{}, done: make(chan struct{}), over: make(chan struct{})}
	s.life, s.end = context.WithCancelCause(ctx)
	s.target.s, s.registry.s, s.syscalls.s, s.hits.s, s.handlers.s, s.answering.s = s, s, s, s, s, s
	s.passes.s, s.records.s, s.beside.s, s.heed.s = s, s, s, s
	s.heirs = heirs{s: s, changes: 1}
	t.SetHandler(hooks{s})
	s.records.clockBegan, s.records.clockTicks = moment()
	return s, nil
}

// hold makes p the session's process.
func (tg *target) hold(p *ptrace.Process) {
	tg.s.main, tg.s.pid = p, p.PID
	tg.tracing = guardian.NewThread()
	tg.s.newDomain(p)
	switch err := p.NoteTrapAction(); {
	case err == nil, errors.Is(err, ptrace.ErrSeccomp), errors.Is(err, ErrGivenUp):
	case errors.Is(err, ptrace.ErrNoThread): // inside vfork(2): it is read behind that
	default:
		tg.s.warn("the process's action for SIGTRAP can't be read: %v", err)
	}
}

// loadSymbols reads the symbols while the process runs. If it executes another program meanwhile they are those of neither, and
// are read anew. One that does so again and again is held for the last time.
//
// An exec that is not dispatched yet when the table is stored finds it there, and renews it.
func (tg *target) loadSymbols() error {
	const tries = 3
	for try := 1; ; try++ {
		done, err := tg.tryLoad(try == tries)
		switch {
		case err != nil:
			return err
		case done:
			return nil
		}
	}
}

// tryLoad reports whether the symbols that it has read are those of the program which runs.
func (tg *target) tryLoad(held bool) (done bool, err error) {
	var image uint64
	var tid int
	if err := tg.s.do(func() (err error) {
		image = tg.images
		tid, err = tg.s.main.Space.TID() // not the leader, if that has exited
		tg.peek = tg.s.main.Space.Peek(tid)
		return err
	}); err != nil {
		return false, err
	}
	table, err := tg.openSymbols(tid, held)
	if derr := tg.s.do(func() error {
		switch {
		case !held && (err != nil || tg.images != image):
			err = nil // an exec may be why it failed, though it is not dispatched yet
		case err == nil:
			tg.s.table, done = table, true
		}
		return nil
	}); derr != nil {
		err = derr
	}
	if err != nil {
		if _, gone := procfs.ReadStat(tid, 0); gone != nil {
			err = fmt.Errorf("%w: %w", ErrExited, err)
		}
		err = fmt.Errorf("reading the symbols of process %d: %w", tg.s.pid, err)
	}
	if !done && table != nil {
		err = errors.Join(err, table.Close())
	}
	return done, err
}

// openSymbols reads the symbols of the program that thread tid runs; held stops that
// meanwhile. After a Cancel of the tracer it does not wait for files that are being
// read: they are closed later.
func (tg *target) openSymbols(tid int, held bool) (table *symbols.Table, err error) {
	open := func() (err error) {
		type opened struct {
			table *symbols.Table
			err   error
		}
		result := make(chan opened, 1)
		peek := tg.peek
		if tg.s.tracer.Outside(func() {
			table, err := symbols.Open(tid, peek)
			result <- opened{table, err}
		}) {
			o := <-result
			table, err = o.table, o.err
			return err
		}
		go func() {
			if o := <-result; o.table != nil {
				_ = o.table.Close()
			}
		}()
		return ErrGivenUp
	}
	if !held {
		err = open()
		return table, err
	}
	err = tg.s.do(func() error {
		return tg.s.main.Space.Freeze(func(*ptrace.Frozen) error {
			tid = tg.s.main.PID
			tg.peek = tg.s.main.Space.Peek(tid)
			return open()
		})
	})
	return table, err
}

// PID is the process that the session was made for.
func (s *Session) PID() int { return s.pid }

// Symbols is the process's symbol table.
func (s *Session) Symbols() *symbols.Table { return s.table }

// Done is closed when the process has exited or the session is closed. Under Options.Follow it is closed when all processes that are followed have exited: Exit tells before
// that the session's own has.
func (s *Session) Done() <-chan struct{} { return s.done }

// Exit is how the process ended, nil while it lives or after Close detached from it.
func (s *Session) Exit() *ExitStatus { return s.exit.Load() }

// Signal sends sig to the process.
func (s *Session) Signal(sig unix.Signal) error {
	return s.do(func() error { return s.main.Kill(sig) })
}

func (s *Session) finish() { s.doneOnce.Do(func() { close(s.done) }) }

// do runs f on the tracer's thread.
func (s *Session) do(f func() error) error {
	return s.doApart(func() error {
		s.settled()
		return f()
	})
}

// doApart is do for an f that says itself what it is about to change: see settled.
func (s *Session) doApart(f func() error) error {
	err := ErrClosed // if f panics, which ends the session
	if derr := s.tracer.Do(func() {
		defer s.heirs.within()()
		if !s.closed && !s.closing {
			err = s.orExited(f())
		}
	}); derr != nil {
		return ErrClosed
	}
	return err
}

// orExited adds to an error that its cause is the process's end, if that is so: it shows
// in many ways, such as memory that can't be read any more.
func (s *Session) orExited(err error) error {
	if err == nil || s.main == nil || errors.Is(err, unix.ESRCH) || !s.dying() {
		return err
	}
	return fmt.Errorf("%w: %w", ErrExited, err)
}

// dying tells whether the process has ended, is being killed, or has given up its memory.
func (s *Session) dying() bool {
	if s.exit.Load() != nil {
		return true
	}
	tids, err := procfs.UserTasks(s.pid)
	if err != nil {
		return true
	}
	for _, tid := range tids {
		maps, err := procfs.Maps(tid)
		if err != nil && !errors.Is(err, os.ErrPermission) || err == nil && len(maps) == 0 {
			continue // a leader that ended before the others has no memory either
		}
		st, err := procfs.ReadStatus(s.pid, tid)
		kill := int(unix.SIGKILL)
		if err == nil && !st.SigPnd.Has(kill) && !st.ShdPnd.Has(kill) {
			return false
		}
	}
	return true
}

func (s *Session) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if s.opts.Log == nil {
		slog.Warn(text, "pid", s.pid)
		return
	}
	s.opts.Log(text)
}

// tracerOwner identifies this process in the injected region.
func ownStart() uint64 {
	st, err := procfs.ReadStat(os.Getpid(), 0)
	if err != nil {
		return 0
	}
	return st.StartTime
}

// target is how a session holds its process.
type target struct {
	s        *Session
	images   uint64           // programs that the process has executed
	programs uint64           // that it and followed children have executed
	other    atomic.Bool      // one that is for another processor was told of
	program  uint64           // the number of the process's present one
	peek     *ptrace.Peek     // its memory, for other goroutines; nil before the symbols are read
	launched bool             // it was started for the session
	tracing  *guardian.Thread // the tracer's thread, as the guardian knows it
}
