package kprobes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/guardian"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/records"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/symbols"
)

// Options of a session. The zero value is the usual choice.
type Options struct {
	// NoBoost has every copied instruction trapped after, instead of followed by
	// a jump back.
	NoBoost bool
	// NoOptimize has no breakpoint replaced by a jump.
	NoOptimize bool
	// Follow keeps forked children and programs started by exec under the same
	// probes. Without it a forked child is given its original code back and let
	// go, and an exec ends the probes of its process.
	Follow bool
	// Meant is the process to attach to, whoever has its number by then; nil: whoever has it.
	Meant *ptrace.Identity
	// Log gets warnings of things that went on: one sentence, no newline. It is
	// called on the tracer's thread. nil drops them.
	Log func(string)
}

// Session is a process held under probes, with the children it makes if they are
// followed. All methods may be called from any goroutine, also from a handler.
type Session struct {
	opts   Options
	tracer *ptrace.Tracer
	table  *symbols.Table
	pid    int

	life context.Context // done when the session is to end, or has
	end  context.CancelCauseFunc

	// The rest belongs to the tracer's thread.
	main          *ptrace.Process
	images        uint64       // programs that it has executed
	peek          *ptrace.Peek // its memory, for other goroutines; nil before the symbols are read
	domains       map[*domain]bool
	probes        []*Kprobe
	syscalls      []*SyscallProbe
	blacklist     []BlacklistEntry
	hits          uint64           // all of them so far
	running       []runningHandler // the last one runs, the others wait for functions that they call
	disarmed      bool             // all probes, by DisarmAll
	beside        bool             // the code is looked at now and then
	lookSoon      bool             // and will be at once
	toldShared    bool
	toldDisturbed bool // that somebody writes into code at probes
	toldCopied    bool // that the program has copied our bytes
	launched      bool // the process was started for it
	closed        bool
	closing       bool            // Close has begun: no handler begins a call
	heeds         context.Context // what is being done ends with it; nil: with nothing
	patient       bool            // what is being done can be done again, and is not to be done while a process is inside vfork(2)

	drains        bool                   // rings are looked into
	taken         records.Queue[written] // that are not handed on yet
	draining      bool
	scratch       []uint64
	lastRecording uint32
	clockBegan    time.Time
	clockTicks    uint64
	lastRecord    time.Time // of the records that were handed on
	faultsNoted   time.Time

	answering
	optimizing chan struct{} // closed when the optimizer has nothing to do; nil if it has not

	disturbances atomic.Uint64 // by others

	untold atomic.Pointer[error] // why the session could not be closed when its context was done

	threads atomic.Pointer[[]*ThreadWatcher]

	tracing *guardian.Thread // the tracer's thread, as the guardian knows it

	watched atomic.Bool   // the dynamic linker is
	changes atomic.Uint64 // of the main process's modules, as far as they are noticed

	done     chan struct{}
	doneOnce sync.Once
	exit     atomic.Pointer[ExitStatus]
}

// ExitStatus is how the target ended.
type ExitStatus struct {
	Code   int         // exit status; 128 + Signal if a signal killed it
	Signal unix.Signal // 0 if it exited by itself
}

// runToEntry lets the dynamic linker do its work.
func (s *Session) runToEntry(p *ptrace.Process) error {
	const atEntry = 9 // AT_ENTRY, getauxval(3)
	auxv, err := p.Space.Auxv()
	if err != nil {
		return fmt.Errorf("finding the program's entry point: %w", err)
	}
	if err := s.tracer.RunTo(p.Leader(), arch.Addr(auxv[atEntry])); err != nil {
		return fmt.Errorf("running the program to its entry point: %w", err)
	}
	return nil
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
	s := &Session{opts: opts, tracer: t, domains: map[*domain]bool{}, done: make(chan struct{})}
	s.life, s.end = context.WithCancelCause(ctx)
	t.SetHandler(hooks{s})
	s.clockBegan, s.clockTicks = moment()
	return s, nil
}

// hold makes p the session's process.
func (s *Session) hold(p *ptrace.Process) {
	s.main, s.pid = p, p.PID
	s.tracing = guardian.NewThread()
	s.newDomain(p)
	if err := p.NoteTrapAction(); err != nil && !errors.Is(err, ptrace.ErrSeccomp) && !errors.Is(err, ErrGivenUp) {
		s.warn("the process's action for SIGTRAP can't be read: %v", err)
	}
}

// loadSymbols reads the symbols while the process runs. If it executes another program meanwhile they are those of neither, and
// are read anew. One that does so again and again is held for the last time.
//
// An exec that is not dispatched yet when the table is stored finds it there, and renews it.
func (s *Session) loadSymbols() error {
	const tries = 3
	for try := 1; ; try++ {
		done, err := s.tryLoad(try == tries)
		switch {
		case err != nil:
			return err
		case done:
			return nil
		}
	}
}

// tryLoad reports whether the symbols that it has read are those of the program which runs.
func (s *Session) tryLoad(held bool) (done bool, err error) {
	var image uint64
	var tid int
	if err := s.do(func() (err error) {
		image = s.images
		tid, err = s.main.Space.TID() // not the leader, if that has exited
		s.peek = s.main.Space.Peek(tid)
		return err
	}); err != nil {
		return false, err
	}
	table, err := s.openSymbols(tid, held)
	if derr := s.do(func() error {
		switch {
		case !held && (err != nil || s.images != image):
			err = nil // an exec may be why it failed, though it is not dispatched yet
		case err == nil:
			s.table, done = table, true
		}
		return nil
	}); derr != nil {
		err = derr
	}
	if err != nil {
		if _, gone := procfs.ReadStat(tid, 0); gone != nil {
			err = fmt.Errorf("%w: %w", ErrExited, err)
		}
		err = fmt.Errorf("reading the symbols of process %d: %w", s.pid, err)
	}
	if !done && table != nil {
		err = errors.Join(err, table.Close())
	}
	return done, err
}

// openSymbols reads the symbols of the program that thread tid runs; held stops that meanwhile. After a Cancel of the tracer it does not wait for
// what it reads: that is closed when it comes.
func (s *Session) openSymbols(tid int, held bool) (table *symbols.Table, err error) {
	open := func() (err error) {
		type opened struct {
			table *symbols.Table
			err   error
		}
		result := make(chan opened, 1)
		peek := s.peek
		if s.tracer.Outside(func() {
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
	err = s.do(func() error {
		return s.main.Space.Freeze(func(*ptrace.Frozen) error {
			tid = s.main.PID
			s.peek = s.main.Space.Peek(tid)
			return open()
		})
	})
	return table, err
}

// PID is the process that the session was made for.
func (s *Session) PID() int { return s.pid }

// Symbols is the process's symbol table.
func (s *Session) Symbols() *symbols.Table { return s.table }

// Done is closed when the process has exited or the session is closed.
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
	err := ErrClosed // if f panics, which ends the session
	if derr := s.tracer.Do(func() {
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
	if s.opts.Log != nil {
		s.opts.Log(fmt.Sprintf(format, args...))
	}
}

// tracerOwner identifies this process in the injected region.
func ownStart() uint64 {
	st, err := procfs.ReadStat(os.Getpid(), 0)
	if err != nil {
		return 0
	}
	return st.StartTime
}
