package inject

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
)

// A call of a rule fails if it passes three stages, in this order:
//
//	the condition    Rule.If
//	the static part  of the attributes: counters and random numbers (fault.Attr.Static)
//	the rest         times, rate, the time, the stack, the thread (fault.Decider)
//
// Each stage counts only the calls that have passed the stages before it. So the target can do
// the first stages, and the tracer then does the others, but not the other way round. Counters
// are shared by all probes of a rule in an address space (kprobes.SharedState). So the same
// calls fail whether the target decides or the tracer. If the target can't judge the whole
// condition at one of the rule's places, the tracer does all counting.

// decision says how the calls of a place are decided: by the target first, then by the tracer.
type decision struct {
	asked   program.Cond // the target sends calls that meet it to the tracer
	isExact bool         // asked holds the whole condition; else the tracer must evaluate it again
	by      chooser      // who does the static part
	// isCounted says that the target counts: calls that come to the tracer have passed the static part.
	isCounted bool
	// rest decides, in the tracer, a call that meets the condition.
	rest func(*fault.Decider, fault.Call) fault.Decision
}

// chooser says who chooses among calls by the static part of the attributes.
type chooser uint8

const (
	theTracer chooser = iota
	theTarget
)

// tally is the counting that programs in the target do for a rule.
type tally struct {
	steps []fault.Step
	state *kprobes.SharedState // a cell for each step
	began uint64               // the value of state's first cell when the fault began
}

// decideInTarget sets the decision of each place, and gives the probes the programs that decide in the target.
func (f *Fault) decideInTarget(places []*place) error {
	exact := true
	for _, p := range places {
		exact = exact && p.condition().isExact
	}
	var steps []fault.Step
	if !f.rule.After {
		steps, f.static = f.decider.steps(&f.rule)
		f.static = f.static && exact
	}
	if !f.static {
		steps = nil
	}
	f.sum = f.decider.tally(steps)
	for _, p := range places {
		if err := p.decide(); err != nil {
			return err
		}
	}
	return nil
}

// errCounted refuses a place that comes later, whose calls can't be counted together with the others'.
var errCounted = errors.New("the target can't judge the rule's condition there, as it does at the rule's other places")

// decide sets the decision of a place, after that of the rule.
func (p *place) decide() error {
	f := p.fault
	if f.rule.After {
		p.decision = decision{rest: (*fault.Decider).Decide}
		return nil
	}
	if p.decision = p.condition(); f.static && !p.decision.isExact {
		return errCounted
	}
	if p.decision.chooseBy(f.sum, f.static); p.decision.asked.Always() {
		return nil
	}
	if err := p.decideBy(p.decision.asked); err != nil {
		return fmt.Errorf("deciding in the target: %w", err)
	}
	return nil
}

// condition is the decision in which the target judges the condition, and the tracer does all else.
func (p *place) condition() decision {
	d := decision{isExact: true, rest: (*fault.Decider).Decide}
	switch {
	case p.values == nil || p.values.Filter == nil:
	case p.values.Moves, p.values.Outside && !p.fault.in.options.OneProcess: // in the target nobody would notice that a file is mapped elsewhere
		d.isExact = false
	default:
		d.asked, d.isExact = p.values.Filter.Cond(p.values.Layout)
	}
	return d
}

// chooseBy lets the target do the static part too, if it can: the steps that sum counts.
func (d *decision) chooseBy(sum tally, static bool) {
	if static {
		d.by = theTarget
	}
	if len(sum.steps) > 0 {
		d.asked, d.isCounted, d.rest = program.All(d.asked, met(sum.steps)), true, (*fault.Decider).Confirm
	}
}

// decideBy gives the probe a program that sends the calls that meet c to the tracer.
func (p *place) decideBy(c program.Cond) (err error) {
	if p.isCall() {
		p.sp.Choose = c
		return nil
	}
	p.kp.SharedState = p.fault.sum.state
	if p.kp.Program, err = program.Decision(p.Name, c.Registers(), c); err == nil {
		_, err = program.Check(p.kp.Program)
	}
	return err
}

// met is the condition that all steps are met, in this order. Step i counts in cell i of the State. After a step that is not met
// the others do not count the call.
func met(steps []fault.Step) program.Cond {
	conds := make([]program.Cond, len(steps))
	for i, s := range steps {
		n := program.Sequence(i)
		if s.Add != 0 {
			n = n.Plus(int64(s.Add))
		}
		if s.Mod != 0 {
			n = n.Mod(s.Mod)
		}
		if s.Random {
			n = n.Mixed(s.Seed)
		}
		conds[i] = program.Compare(n, program.BelowEqual, program.Const(int64(s.Max)))
	}
	return program.All(conds...)
}

// eligibleInTarget is how many eligible calls programs have counted. All of them come to the first step.
func (f *Fault) eligibleInTarget() (n uint64) {
	switch {
	case len(f.sum.steps) == 0:
		return 0
	case f.rule.Syscall == "":
		return f.sum.state.Cell(0) - f.sum.began
	}
	for _, p := range f.places.All() {
		n += p.sp.State(0)
	}
	return n
}

// chosen decides a call that has come to the tracer.
func (p *place) chosen(c *Call) (d fault.Decision, ok bool) {
	f := p.fault
	if p.values != nil && !p.values.Stands(c.Symbols()) { // files may have to be read for it
		p.foreign.Add(1)
		f.warnOnce("calls in process %d (%s) do not fail: it executes other files, or has mapped them elsewhere", c.PID(), escape.Line(c.Comm()))
		return d, false
	}
	if !p.meets(c) {
		return d, false
	}
	call := p.faultCall(c)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.armed {
		if f.cut && p.decision.isCounted {
			p.late.Add(1)
		}
		return d, false
	}
	if !p.decision.isCounted {
		f.eligible++
	}
	f.decider.Do(func(by *fault.Decider) { d = p.decision.rest(by, call) })
	return d, d.Fail
}

// meets reports whether a call that has come to the tracer meets the condition. It evaluates the condition only if the
// program in the target could not do all of it.
func (p *place) meets(c *Call) bool {
	if p.values == nil || p.values.Filter == nil || p.decision.isExact {
		return true
	}
	if err := c.fetch(); err != nil {
		p.fault.warnOnce("the condition can't be evaluated: %v", err)
		return false
	}
	return p.values.KeepsAt(c.Regs, c.Regs, c.Values, c.Comm(), c.TID(), p.resultOf(c)...)
}

// resultOf is the value of "ret"; nil before the body has run.
func (p *place) resultOf(c *Call) []fetch.Value {
	if !p.fault.rule.After {
		return nil
	}
	v := c.ReturnValue()
	if len(p.results) > 0 {
		v = uint64(p.results[0].Integer(v))
	}
	return []fetch.Value{{U: v}}
}

// faultCall describes a call for a fault.Decider.
func (p *place) faultCall(c *Call) fault.Call {
	call := fault.Call{Process: c.PID(), Thread: c.TID(), Size: 1, Now: time.Now(), Task: true, Stack: c.Callers}
	if p.size >= 0 {
		call.Size = 0
		if c.fetch() == nil {
			call.Size = int64(c.Values[p.size].U)
		}
	}
	if task := p.fault.rule.Task; task != nil {
		call.Task = task(c.PID(), c.TID())
	}
	return call
}

// spent ends the fault if no further call can fail. A fault with a shared Decider is only disarmed: the Decider's attributes
// may change.
func (f *Fault) spent() {
	if f.endIfSpent() && f.group != nil {
		f.group.spent(f)
	}
}

// endIfSpent is spent for this process alone, not for a group. It reports whether it has ended the fault.
func (f *Fault) endIfSpent() (ended bool) {
	done := f.decider.isDone()
	f.mu.Lock()
	done = f.armed && (done || f.canFailOnlyOnce() && f.injected > 0)
	f.mu.Unlock()
	switch {
	case !done:
	case f.shares():
		_ = f.followArmed(context.Background()) // a probe that can't be disarmed lets all calls pass
	default:
		return f.endArmed()
	}
	return false
}

// canFailOnlyOnce reports whether only one call can ever fail: the one of FailNth, in one process whose threads count together.
func (f *Fault) canFailOnlyOnce() bool {
	a := f.rule.Attr
	others := a
	others.FailNth = 0
	return !f.shares() && f.in.options.OneProcess && a.FailNth > 0 && others.Never() && !a.PerThread
}

// warnOnce logs the first of a fault's warnings, and drops all later ones.
func (f *Fault) warnOnce(format string, args ...any) {
	f.mu.Lock()
	warned := f.warned
	f.warned = true
	f.mu.Unlock()
	if !warned {
		f.in.log("%s: "+format, append([]any{f.Name()}, args...)...)
	}
}
