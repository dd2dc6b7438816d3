package trace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/lex"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/internal/godelve"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// goPrefix is what stands before an expression that Delve evaluates.
const goPrefix = "go:"

// goExpr is one of Fetch's texts that Delve evaluates.
type goExpr struct {
	at         int // among all of them
	name, expr string
}

// cutGo reads [NAME=]go:EXPR.
func cutGo(text string) (x goExpr, ok bool) {
	if expr, ok := strings.CutPrefix(text, goPrefix); ok {
		return goExpr{name: text, expr: expr}, true
	}
	name, rest, named := lex.CutName(text)
	expr, ok := strings.CutPrefix(rest, goPrefix)
	return goExpr{name: name, expr: expr}, ok && named
}

// takeGo takes those out of w.fetch that Delve evaluates.
func (w *wanted) takeGo() {
	var kept []string
	for i, text := range w.fetch {
		if x, ok := cutGo(text); ok {
			x.at = i
			w.goExprs = append(w.goExprs, x)
		} else {
			kept = append(kept, text)
		}
	}
	w.fetch = kept
}

// checkGo finds mistakes in what Delve is to evaluate.
func (w *wanted) checkGo() error {
	for _, x := range w.goExprs {
		if err := godelve.Check(x.expr); err != nil {
			return &WantError{Err: &values.Error{Text: goPrefix + x.expr, Err: err}}
		}
	}
	return nil
}

// delve evaluates for one session's process. It is loaded when a probe first asks for it, and then used on the tracer's thread only.
type delve struct {
	life context.Context // ends with the session
	end  context.CancelFunc

	loading sync.Mutex // guards changes of current
	current atomic.Pointer[evaluator]
	deaths  atomic.Int32
}

// evaluator is one process of Delve's.
type evaluator struct {
	*godelve.Evaluator
	program *symbols.Module // that it has loaded
	missed  atomic.Bool     // its end was told
}

// mostDeaths is how many of these processes end before none is started any more.
const mostDeaths = 3

var (
	errOtherProgram = errors.New("another program runs there than the one whose debug information Delve has read")
	errAgain        = errors.New("the program's debug information is read again, since the process that Delve runs in has ended")
	errDeaths       = fmt.Errorf("the process that Delve runs in has ended %d times in this session, which is as often as it is started", mostDeaths)
)

func newDelve() *delve {
	d := &delve{}
	d.life, d.end = context.WithCancel(context.Background())
	return d
}

// close ends Delve's process, and waits until it is gone.
func (d *delve) close() {
	d.end()
	d.loading.Lock()
	defer d.loading.Unlock()
	if e := d.current.Load(); e != nil {
		e.Wait()
	}
}

// of is the evaluator of the program that is the table's, or nil.
func (d *delve) of(table *symbols.Table) *evaluator {
	e := d.current.Load()
	if e == nil || e.program != nil && !slices.ContainsFunc(table.Modules(), e.program.Same) {
		return nil
	}
	return e
}

// needGo loads Delve, unless that was done for the program that runs now, and says how long that took.
func (s *Session) needGo(w *wanted) error {
	if err := w.checkGo(); err != nil || len(w.goExprs) == 0 {
		return err
	}
	s.delve.loading.Lock()
	defer s.delve.loading.Unlock()
	if old := s.delve.of(s.kprobes.Symbols()); old != nil && !old.missed.Load() {
		return nil
	}
	e, err := s.loadGo()
	if err != nil {
		return &WantError{Err: &values.Error{Text: goPrefix + w.goExprs[0].expr, Err: err}}
	}
	s.warn("Delve has read the program's debug information in %v, for %s%s; threads stop at each hit", e.Took.Round(time.Millisecond), goPrefix, w.goExprs[0].expr)
	return nil
}

// loadGo starts a process of Delve's in place of the one that was there. s.delve.loading is held.
func (s *Session) loadGo() (*evaluator, error) {
	if s.delve.deaths.Load() >= mostDeaths {
		return nil, errDeaths
	}
	const atEntry = 9 // AT_ENTRY
	pid := s.kprobes.PID()
	auxv, err := procfs.Auxv(pid)
	if err != nil {
		return nil, err
	}
	e := &evaluator{}
	modules := s.kprobes.Symbols().Modules()
	if i := slices.IndexFunc(modules, func(m *symbols.Module) bool { return m.Kind == symbols.KindExecutable }); i >= 0 {
		e.program = modules[i]
	}
	if e.Evaluator, err = godelve.Load(s.delve.life, fmt.Sprintf("/proc/%d/exe", pid), pid, arch.Addr(auxv[atEntry])); err != nil {
		return nil, err
	}
	if old := s.delve.current.Swap(e); old != nil {
		old.Close()
	}
	return e, nil
}

// evaluate is a value where a thread stands.
func (s *Session) evaluate(x goExpr, regs *kprobes.Regs) Arg {
	unknown := func(err error) Arg { return argument(x.name, symbols.Value{Text: "?", Err: err}) }
	if regs.Symbols() != s.kprobes.Symbols() {
		return unknown(errOtherProgram)
	}
	e := s.delve.of(regs.Symbols())
	switch {
	case e == nil:
		return unknown(errOtherProgram)
	case e.missed.Load() && s.delve.deaths.Load() >= mostDeaths:
		return unknown(errDeaths)
	case e.missed.Load():
		return unknown(errAgain)
	}
	text, json, err := e.Eval(regs, x.expr)
	if errors.Is(err, godelve.ErrEnded) {
		s.miss(e, x, err)
	}
	return argument(x.name, symbols.Value{Text: text, JSON: json, Err: err})
}

// miss tells of the end of Delve's process, and has another one started, which no thread waits for.
func (s *Session) miss(e *evaluator, x goExpr, err error) {
	if s.delve.life.Err() != nil || e.missed.Swap(true) {
		return
	}
	if s.delve.deaths.Add(1) >= mostDeaths {
		s.warn("%s%s has no value: %v; %v: all such values are ? from now on", goPrefix, x.expr, err, errDeaths)
		return
	}
	s.warn("%s%s has no value: %v. It is started again, and such values are ? until then", goPrefix, x.expr, err)
	go func() {
		s.delve.loading.Lock()
		defer s.delve.loading.Unlock()
		if s.delve.current.Load() != e {
			return
		}
		if _, err := s.loadGo(); err != nil && s.delve.life.Err() == nil {
			s.warn("Delve could not be started again, for %s: %v", goPrefix, err)
		}
	}()
}

// withGo puts what Delve evaluates among the values that Fetch names, which are the last ones of args.
func (pt *point) withGo(args []Arg, regs *kprobes.Regs) []Arg {
	exprs := pt.probe.want.goExprs
	if len(exprs) == 0 {
		return args
	}
	args = slices.Clone(args)
	first := len(args) - len(pt.probe.want.fetch)
	for _, x := range exprs {
		args = slices.Insert(args, first+x.at, pt.probe.session.evaluate(x, regs))
	}
	return args
}
