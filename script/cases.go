package script

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// Case is one thing that the scenario has checked: the whole of it, a call of expect() in
// its source, however often it is executed, or a test().
type Case struct {
	Name   string
	Phase  string // in which it was first checked
	Place  string // FILE:LINE
	Checks uint64 // how often expect() was called; 1 for others
	Failed uint64
	// Problems are what went wrong, the first maxProblems of them.
	Problems []*Error
	Took     time.Duration // of a test
}

// maxProblems is how many problems a case tells.
const maxProblems = 10

// cases are what a scenario has checked, in their order.
type cases struct {
	all    []*Case
	byPos  map[syntax.Position]*Case
	tests  []test
	within *Case // the test that runs
	whole  Case  // the scenario itself
}

// test is test(name, f): f is called at the end.
type test struct {
	name string
	fn   starlark.Callable
	pos  syntax.Position
}

func placeOf(p syntax.Position) string {
	if !p.IsValid() {
		return ""
	}
	return fmt.Sprintf("%s:%d", filepath.Base(p.Filename()), p.Line)
}

// at is the case of the expect() that stands at pos.
func (s *Script) caseAt(pos syntax.Position, name string) *Case {
	if c := s.cases.within; c != nil {
		return c
	}
	if c := s.cases.byPos[pos]; c != nil {
		return c
	}
	if name == "" {
		_, _, line := s.source.place(pos)
		name = "expectation: " + trimmed(line)
	}
	c := &Case{Name: name, Place: placeOf(pos), Phase: s.phase}
	if s.cases.byPos == nil {
		s.cases.byPos = map[syntax.Position]*Case{}
	}
	s.cases.byPos[pos] = c
	s.cases.all = append(s.cases.all, c)
	return c
}

// problem notes a failure that belongs to the scenario as a whole, or to the test that runs.
func (s *Script) problem(err error) {
	c := &s.cases.whole
	if s.cases.within != nil {
		c = s.cases.within
	}
	s.failed(c, s.asError(err))
}

func (s *Script) asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{File: s.file, Message: err.Error(), Err: err}
}

func (s *Script) failed(c *Case, e *Error) {
	c.Failed++
	if len(c.Problems) >= maxProblems {
		return
	}
	c.Problems = append(c.Problems, e)
	if s.o.Problem != nil {
		s.o.Problem(e)
	}
}

// expect is expect(cond, message=""): it returns whether cond is true.
func (s *Script) expect(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var cond starlark.Value
	message := ""
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "cond", &cond, "message?", &message); err != nil {
		return nil, err
	}
	pos := caller(thread)
	c := s.caseAt(pos, message)
	c.Checks++
	if !cond.Truth() {
		if message == "" {
			message = "not as expected"
		}
		s.failed(c, s.failure(thread, pos, message))
	}
	return cond.Truth(), nil
}

// fail is fail(message): the scenario has failed, and goes on.
func (s *Script) fail(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var message string
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "message", &message); err != nil {
		return nil, err
	}
	pos := caller(thread)
	c := s.caseAt(pos, message)
	c.Checks++
	s.failed(c, s.failure(thread, pos, message))
	return starlark.None, nil
}

// failure is an expectation that was not met.
func (s *Script) failure(thread *starlark.Thread, pos syntax.Position, message string) *Error {
	e := s.errorAt(pos, fmt.Errorf("%s", message))
	e.Err, e.Failed = nil, true
	e.Frames = s.frames(thread.CallStack())
	return e
}

// newTest is test(name, f).
func (s *Script) newTest(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	t := test{pos: caller(thread)}
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "name", &t.name, "f", &t.fn); err != nil {
		return nil, err
	}
	s.cases.tests = append(s.cases.tests, t)
	return starlark.None, nil
}

// Result is what became of a scenario.
type Result struct {
	Failed bool
	Seed   uint64
	Began  time.Time
	Took   time.Duration
	// Cases are, in their order: the scenario as a whole, the expectations, the tests.
	Cases    []*Case
	Counters []Named
	Probes   []Probe
	Faults   []Fault
	// Processes are those that were under the scenario, in the order in which they joined.
	Processes []Process
}

// Patterns is what the patterns of all probes and faults were found to stand for, if programs were awaited.
func (r Result) Patterns() (all []trace.PatternStats) {
	for _, p := range r.Probes {
		all = trace.AddPatterns(all, p.Patterns)
	}
	for _, f := range r.Faults {
		all = trace.AddPatterns(all, f.Stats.Patterns)
	}
	return all
}

// Probe is what became of the probes that one kprobe() or kretprobe() has made.
type Probe struct {
	Spec, Kind   string
	Places       int            // in the process that has the most
	Hits, Missed uint64         // Hits are those that the filter kept
	Misses       kprobes.Misses // Missed by why
	Mechanism    kprobes.Mechanism
	Reason       string // why it is not optimized, or is in no place
	Skipped      int    // places of a pattern that can't be probed
	// Patterns that waited for programs, if the session awaits them.
	Patterns []trace.PatternStats
}

// Finish runs the functions for the end, at_end first, then the tests, and returns the
// scenario's outcome. It is called once, after the sessions were closed. How is about the only process; how several have ended is known.
func (s *Script) Finish(how Ending) Result {
	for _, m := range s.ending() {
		s.settle(m)
	}
	give := s.turn.take(nil)
	if m := s.only(); m != nil {
		m.process.Ending = how
	}
	s.over, s.ended = true, true
	for i := len(s.atEnd) - 1; i >= 0; i-- {
		if _, err := s.call(s.only(), "function of at_end()", LoadFactor*s.o.Steps, s.atEnd[i]); err != nil {
			s.problem(err)
		}
	}
	for i := 0; i < len(s.cases.tests); i++ {
		s.runTest(s.cases.tests[i])
	}
	r := s.result()
	give()
	for i, f := range s.injections {
		r.Faults[i].Stats = f.stats() // which may wait for a process that is still there
	}
	return r
}

func (s *Script) runTest(t test) {
	c := &Case{Name: t.name, Place: placeOf(t.pos), Checks: 1}
	s.cases.within = c
	began := time.Now()
	if _, err := s.call(s.only(), "test "+t.name, LoadFactor*s.o.Steps, t.fn); err != nil {
		s.problem(err)
	}
	c.Took = time.Since(began)
	s.cases.within = nil
	s.cases.all = append(s.cases.all, c)
}

func (s *Script) result() Result {
	whole := s.cases.whole
	whole.Name, whole.Checks = "the scenario runs without an error", 1
	r := Result{Seed: s.o.Seed, Began: s.began, Took: time.Since(s.began), Cases: append([]*Case{&whole}, s.cases.all...)}
	for _, c := range r.Cases {
		r.Failed = r.Failed || c.Failed > 0
	}
	for _, c := range s.counters {
		r.Counters = append(r.Counters, Named{Name: c.name, Text: fmt.Sprint(c.n), JSON: c.n})
	}
	for _, p := range s.probes {
		r.Probes = append(r.Probes, p.summary())
	}
	for _, f := range s.injections {
		r.Faults = append(r.Faults, Fault{f.name(), f.counts(), f.rule.Attr.Seed})
	}
	for _, m := range s.members {
		m.process.Probes, m.process.Faults = m.probes(), m.faults()
	}
	for _, p := range s.processes {
		r.Processes = append(r.Processes, *p)
	}
	return r
}
