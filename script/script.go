package script

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// Session is what a scenario needs of the process under probes; a *kprobes.Session is one.
type Session interface {
	PID() int
	Symbols() *symbols.Table
	trace.Waiter
	// Program is which program the process runs.
	Program() uint64
	// Do runs f on the thread that handlers run on.
	Do(f func()) error

	RegisterKprobes(context.Context, []*kprobes.Kprobe) error
	RegisterKretprobes(context.Context, []*kprobes.Kretprobe) error
	UnregisterKprobes([]*kprobes.Kprobe) error
	EnableWhenThere(context.Context, []*kprobes.Kprobe) error
	DisableKprobe(*kprobes.Kprobe) error
	Status(*kprobes.Kprobe) kprobes.Status
}

// Options of a scenario. Its funcs may be nil; they are called one at a time, and must not call the Script's methods.
type Options struct {
	// Session is the process that the scenario is for. nil: it is for several, which Join.
	Session Session
	// Context ends Load and Arm when it is done, with nothing armed; nil: nothing does.
	Context context.Context
	Args    []string // the scenario's args
	Seed    uint64   // of random, and of faults that give none
	// Steps is the budget of each call of a handler or timer; 0: DefaultSteps. The file
	// itself has LoadFactor times as many.
	Steps uint64

	Print func(text string) // print(…)
	// Log gets phases and warnings: one sentence, no newline. nil gives them to slog.Default.
	Log    func(text string)
	Report func(Entry) // report(…)
	// Injected is called for each call that inject() does something to.
	Injected func(inject.Event)
	Problem  func(*Error) // a handler, a timer or an assertion has failed
}

// oneAtATime makes the functions run one at a time: some are on the threads of processes, without the turn.
func (o Options) oneAtATime() Options {
	telling := &sync.Mutex{}
	o.Print, o.Log, o.Report = alone(telling, o.Print), alone(telling, o.Log), alone(telling, o.Report)
	o.Injected, o.Problem = alone(telling, o.Injected), alone(telling, o.Problem)
	return o
}

// alone calls f with mu; nil if there is no f.
func alone[T any](mu *sync.Mutex, f func(T)) func(T) {
	if f == nil {
		return nil
	}
	return func(v T) {
		mu.Lock()
		defer mu.Unlock()
		f(v)
	}
}

// Script is a scenario.
type Script struct {
	o       Options
	file    string
	source  sources
	modules map[string]*module
	globals starlark.StringDict // what all files see

	turn      turn       // guards the rest
	one       *member    // the only process, if there are not several
	members   []*member  // those that are there
	processes []*Process // that have joined

	probes     []*probe
	injections []*injection
	calls      map[uint64]*followed // of kretprobes, by what their instances' Data holds
	lastCall   uint64
	retired    []uint64 // of calls, those that have ended, the oldest first
	begun      bool     // what is declared is armed
	over       bool     // stop() was called
	stopped    chan struct{}
	stopOne    sync.Once
	timers     timers
	atEnd      []starlark.Callable

	began    time.Time
	phase    string
	cases    cases
	counters []*counter
	running  *budget // of the function that runs now; nil if none does
	ended    bool    // the session is over
}

// Entry is one line that report() makes.
type Entry struct {
	Time   time.Time
	Phase  string
	Text   string  // the positional arguments, as print shows them
	Values []Named // the named ones, in their order
}

// Named is a value with its name.
type Named struct {
	Name string
	Text string // as print shows it
	JSON any    // nil, bool, int64, uint64, float64, string, []any, map[string]any
}

// Ending is how the target was when the session was over.
type Ending struct {
	Exited bool
	Status int // exit status; 128 + the signal's number if one killed it
}

// Load reads and executes the file of a scenario. Arm arms its declarations. The error
// is an *Error if the scenario is to blame.
func Load(file string, o Options) (*Script, error) {
	src, err := readSource(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the scenario: %w", err)
	}
	return load(file, src, o)
}

func load(file string, src []byte, o Options) (*Script, error) {
	if o.Steps == 0 {
		o.Steps = DefaultSteps
	}
	s := &Script{
		o: o.oneAtATime(), file: file, source: sources{}, modules: map[string]*module{},
		calls: map[uint64]*followed{}, stopped: make(chan struct{}), began: time.Now(),
	}
	s.timers.changed = make(chan struct{}, 1)
	if o.Session != nil {
		s.one = s.newMember(o.Session)
		s.members, s.processes = []*member{s.one}, []*Process{s.one.process}
	}
	s.globals = s.predeclared()
	if _, err := s.execute(filepath.Clean(file), src); err != nil {
		return nil, err
	}
	return s, nil
}

// dialect is Starlark with extensions for scenarios: sets, while, and control flow
// outside of functions. There is no recursion.
var dialect = &syntax.FileOptions{Set: true, While: true, TopLevelControl: true, GlobalReassign: true}

// module is a file that was loaded, or is being.
type module struct {
	globals starlark.StringDict
	loading bool
	err     error
}

// execute runs a file. Its globals are not frozen, unlike in other hosts of Starlark:
// all of a scenario runs on one thread at a time, and handlers want to remember.
func (s *Script) execute(file string, src []byte) (starlark.StringDict, error) {
	parsed, err := parse(file, src)
	s.source.add(file, src, parsed)
	if err != nil {
		return nil, s.syntaxError(err)
	}
	if err := instrument(parsed); err != nil {
		return nil, s.syntaxError(err)
	}
	prog, err := starlark.FileProgram(parsed, s.globals.Has)
	if err != nil {
		return nil, s.syntaxError(err)
	}
	var globals starlark.StringDict
	err = s.run(s.only(), "", LoadFactor*s.o.Steps, func(thread *starlark.Thread) (err error) {
		thread.Load = s.loader(filepath.Dir(file))
		globals, err = prog.Init(thread, s.globals)
		return err
	})
	return globals, err
}

// loader is what load() does in a file that lies in dir.
func (s *Script) loader(dir string) func(*starlark.Thread, string) (starlark.StringDict, error) {
	return func(_ *starlark.Thread, name string) (starlark.StringDict, error) {
		if filepath.Ext(name) != ".star" {
			return nil, errors.New("only files whose names end in .star can be loaded")
		}
		file := name
		if !filepath.IsAbs(name) {
			file = filepath.Join(dir, name)
		}
		m, known := s.modules[file]
		switch {
		case known && m.loading:
			return nil, errors.New("the file is being loaded already: files load each other in a circle")
		case known:
			return m.globals, m.err
		}
		m = &module{loading: true}
		s.modules[file] = m
		src, err := readSource(file)
		if err == nil {
			m.globals, err = s.execute(file, src)
		}
		m.loading, m.err = false, err
		return m.globals, err
	}
}

// Seed is what the scenario's randomness begins with.
func (s *Script) Seed() uint64 { return s.o.Seed }

// Idle tells that nothing is armed and nothing will ever happen: the scenario has no
// probes and no timers.
func (s *Script) Idle() bool {
	defer s.turn.take(nil)()
	return len(s.probes) == 0 && len(s.injections) == 0 && s.timers.empty()
}

func (s *Script) print(text string) {
	if s.o.Print != nil {
		s.o.Print(text)
	}
}

func (s *Script) warn(format string, args ...any) { s.log(slog.LevelWarn, format, args...) }

func (s *Script) log(level slog.Level, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if s.o.Log == nil {
		var of []any
		if m := s.only(); m != nil {
			of = []any{"pid", m.process.PID}
		}
		slog.Log(context.Background(), level, text, of...)
		return
	}
	s.o.Log(text)
}
