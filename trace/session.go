package trace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Session is a process that is traced. Its methods may be called from any goroutine, but not from handlers.
type Session struct {
	kprobes *kprobes.Session
	owned   bool // Close ends kprobes too
	options options
	ctx     context.Context

	mu     sync.Mutex
	probes []*Probe
	closed bool

	delve *delve
}

// Option is a choice for a Session.
type Option func(*options)

type options struct {
	log      *slog.Logger
	kprobes  kprobes.Options
	progress func(Progress)
}

// Progress is how far a probe has come that is being placed: its places are checked first, then armed.
type Progress struct {
	Arming   bool
	Done, Of int // places
}

// OnProgress has f told how far each probe has come. It is called by the goroutine that places, after some hundred places each, and must not wait.
func OnProgress(f func(Progress)) Option { return func(o *options) { o.progress = f } }

// Log sends warnings to l in place of slog.Default().
func Log(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// Follow traces forked children, and programs started by exec, as well.
func Follow() Option { return func(o *options) { o.kprobes.Follow = true } }

// AwaitPrograms makes a name or a pattern wait, under Follow, that nothing of the target has: until a program is executed that has it. Otherwise
// that is symbols.ErrUnknownSymbol. A pattern stands for what each executed program has, each time anew.
func AwaitPrograms() Option { return func(o *options) { o.kprobes.AwaitPrograms = true } }

// With sets the options of the kprobes session. If it may not optimize, hits are handled by stops.
func With(k kprobes.Options) Option { return func(o *options) { o.kprobes = k } }

func newOptions(opts []Option) options {
	o := options{log: slog.Default(), progress: func(Progress) {}}
	for _, opt := range opts {
		opt(&o)
	}
	if o.kprobes.Log == nil {
		o.kprobes.Log = func(text string) { o.log.Warn(text) }
	}
	return o
}

// Attach takes hold of a running process, until Close or the end of ctx. The error is a *ptrace.AttachError if that is refused.
func Attach(ctx context.Context, pid int, opts ...Option) (*Session, error) {
	o := newOptions(opts)
	k, err := kprobes.Attach(ctx, pid, o.kprobes)
	if err != nil {
		return nil, err
	}
	return begin(ctx, k, o), nil
}

// Launch starts a command and holds it before any of its own code has run: Start lets it run. It is traced until Close or the end of ctx.
func Launch(ctx context.Context, c kprobes.Command, opts ...Option) (*Session, error) {
	o := newOptions(opts)
	k, err := kprobes.Launch(ctx, c, o.kprobes)
	if err != nil {
		return nil, err
	}
	return begin(ctx, k, o), nil
}

func begin(ctx context.Context, k *kprobes.Session, o options) *Session {
	s := newSession(ctx, k, o)
	s.owned = true
	return s
}

// On makes a Session for an existing session of package kprobes. Close removes the probes of this Session only. The options of With must be those with
// which the session was made; they change nothing.
func On(k *kprobes.Session, opts ...Option) *Session {
	return newSession(context.Background(), k, newOptions(opts))
}

func newSession(ctx context.Context, k *kprobes.Session, o options) *Session {
	s := &Session{kprobes: k, options: o, ctx: ctx, delve: newDelve()}
	go func() {
		<-k.Done()
		s.delve.end()
		s.endQueues()
	}()
	return s
}

// Kprobes is the session underneath: for handlers, system calls, memory and symbols.
func (s *Session) Kprobes() *kprobes.Session { return s.kprobes }

// Start lets a launched program run.
func (s *Session) Start() error { return s.kprobes.Start() }

// Done is closed when the process has ended, or the session.
func (s *Session) Done() <-chan struct{} { return s.kprobes.Done() }

// ErrClosed is why nothing can be probed any more. It is kprobes.ErrClosed: also that session may have been closed.
var ErrClosed = kprobes.ErrClosed

// Probe probes all places that spec stands for: "foo", "foo+0x12", "lib.so:foo", "file.c:42", "0x…", "mem*", "foo+*" (every instruction),
// "foo%return". When it returns all are armed or, after an error, none. The error is a *PlaceError or a *WantError. A pattern skips places that
// can't be probed, and a warning counts them. A place or a pattern in a library that is not loaded waits for the library. Stats lists such a pattern
// as one place.
func (s *Session) Probe(spec string, wants ...Want) (*Probe, error) {
	return s.ProbeContext(s.ctx, []string{spec}, wants...)
}

// ProbeContext is Probe of several SPECs, for as long as ctx is not done. If it is before all places are armed, none is, and the error
// is ctx.Err(), at once.
func (s *Session) ProbeContext(ctx context.Context, specs []string, wants ...Want) (*Probe, error) {
	type answer struct {
		p   *Probe
		err error
	}
	got := make(chan answer, 1)
	if err := s.kprobes.Symbols().Aside(ctx, func() {
		p, err := s.place(ctx, specs, newWanted(wants))
		got <- answer{p, err}
	}); err != nil {
		return nil, err
	}
	a := <-got
	return a.p, a.err
}

// awaits tells that names and patterns wait for programs that have them.
func (s *Session) awaits() bool { return s.options.kprobes.Follow && s.options.kprobes.AwaitPrograms }

// place resolves, registers and arms.
func (s *Session) place(ctx context.Context, specs []string, w wanted) (*Probe, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	program := s.kprobes.Program()
	r := Resolver{
		Table: s.kprobes.Symbols(), Memory: ptrace.PeekMemory{PID: s.kprobes.PID()}, Returns: w.returns, Unique: s.options.kprobes.Follow,
		Programs: s.awaits(), Inlined: w.inlinedCalls(),
	}
	places, err := r.Resolve(ctx, append(specs, w.specs...)...)
	if err != nil {
		return nil, err
	}
	if err := s.needGo(&w); err != nil {
		return nil, err
	}
	if w.stack > 0 || w.first.frames > 0 && w.first.place != "" {
		if err := s.readLines(ctx); err != nil {
			return nil, err
		}
	}
	p := newProbe(s, w)
	p.waits = Awaiting{Session: s.kprobes, Returns: w.returns, Program: program, Warn: s.warn, Place: p.come}
	pl := &placer{probe: p, skipped: r.Skipped, lacking: map[string]*lacking{}}
	now, later := settled(places)
	if len(now) > 0 {
		err = pl.place(ctx, now)
	}
	if err == nil {
		err = p.await(ctx, later, pl.points)
	}
	if err != nil {
		return nil, errors.Join(err, p.remove())
	}
	p.look()
	p.skipped = pl.skipped
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.probes = append(s.probes, p)
	}
	s.mu.Unlock()
	if closed {
		return nil, errors.Join(ErrClosed, p.remove())
	}
	pl.warn()
	pl.warnInlined(r.Partial)
	p.tellInlined(pl.points)
	return p, nil
}

// readLines reads what frames of stacks are described by, which takes some tenths of a second where there is debug information. At the first hit its thread
// would wait for it. That of libraries that come later, and of programs that are executed, is read then.
func (s *Session) readLines(ctx context.Context) error {
	table := s.kprobes.Symbols()
	return table.Aside(ctx, func() {
		for _, m := range table.Modules() {
			if len(m.Text) > 0 && ctx.Err() == nil {
				table.Line(m.Text[0].Start)
			}
		}
	})
}

// settled parts places that are known, if only by name, from patterns that wait.
func settled(places []Place) (now, later []Place) {
	for _, at := range places {
		if at.Pattern {
			later = append(later, at)
		} else {
			now = append(now, at)
		}
	}
	return now, later
}

// usable is ErrClosed if the session is closed, or the one underneath.
func (s *Session) usable() error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return ErrClosed
	}
	return s.kprobes.Do(func() {})
}

// Probes lists the probes, in the order in which they were placed.
func (s *Session) Probes() []*Probe {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Probe(nil), s.probes...)
}

// Counts returns the counts of all places of all probes, in their order.
func (s *Session) Counts() []PlaceStats {
	var all []PlaceStats
	for _, p := range s.Probes() {
		all = append(all, p.Stats().Places...)
	}
	return all
}

// Close removes all probes, and detaches if Attach or Launch has made the session: the process runs on as it was. Hits that were not taken yet
// can still be taken, and statistics still be asked for. Probe matches ErrClosed from then on. A second call does nothing.
func (s *Session) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	probes := s.probes
	s.mu.Unlock()
	var err error
	if s.owned {
		for _, p := range probes {
			p.look()
		}
		err = s.kprobes.Close()
	} else {
		for _, p := range probes {
			err = errors.Join(err, p.Close())
		}
	}
	s.delve.close()
	s.endQueues()
	return err
}

// ended tells that the process has ended, or the session.
func (s *Session) ended() bool {
	select {
	case <-s.kprobes.Done():
		return true
	default:
		return false
	}
}

// endQueues ends the iterators of hits.
func (s *Session) endQueues() {
	for _, p := range s.Probes() {
		p.endQueue()
	}
}

func (s *Session) warn(format string, args ...any) { s.options.log.Warn(fmt.Sprintf(format, args...)) }

// byStops reports whether the tracer must handle all hits. Without jumps a handler costs less than interpreting a program.
func (s *Session) byStops() bool { return s.options.kprobes.NoOptimize || s.options.kprobes.NoBoost }
