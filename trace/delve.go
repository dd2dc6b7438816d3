package trace

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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

// evaluator is Delve for one session's process. It is loaded when a probe first asks for it, and then used on the tracer's thread only.
type evaluator struct {
	*godelve.Evaluator
	reading symbols.Reading // of the files when it was loaded
}

var errOtherProgram = errors.New("another program runs there than the one whose debug information Delve has read")

// needGo loads Delve, unless that was done for the program that runs now, and says how long that took.
func (s *Session) needGo(w *wanted) error {
	if err := w.checkGo(); err != nil || len(w.goExprs) == 0 {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	table := s.kprobes.Symbols()
	if old := s.delve.Load(); old != nil && table.Stands(old.reading) {
		return nil
	}
	const atEntry = 9 // AT_ENTRY
	auxv, err := procfs.Auxv(s.kprobes.PID())
	var e *godelve.Evaluator
	reading := table.Reading()
	if err == nil {
		e, err = godelve.Load(fmt.Sprintf("/proc/%d/exe", s.kprobes.PID()), s.kprobes.PID(), arch.Addr(auxv[atEntry]))
	}
	if err != nil {
		return &WantError{Err: &values.Error{Text: goPrefix + w.goExprs[0].expr, Err: err}}
	}
	s.warn("Delve has read the program's debug information in %v, for %s%s; threads stop at each hit", e.Took.Round(time.Millisecond), goPrefix, w.goExprs[0].expr)
	s.delve.Store(&evaluator{e, reading})
	return nil
}

// evaluate is a value where a thread stands.
func (s *Session) evaluate(x goExpr, regs *kprobes.Regs) Arg {
	e := s.delve.Load()
	if e == nil || regs.Symbols() != s.kprobes.Symbols() || !regs.Symbols().Stands(e.reading) {
		return argument(x.name, symbols.Value{Text: "?", Err: errOtherProgram})
	}
	text, json, err := e.Eval(regs, x.expr)
	return argument(x.name, symbols.Value{Text: text, JSON: json, Err: err})
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
