package inject

import (
	"context"
	"fmt"
	"time"

	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
)

// Who decides. The calls of a rule pass, one after the other,
//
//	the condition    Rule.If
//	the static part  of the attributes: counters and random numbers (fault.Attr.Static)
//	the rest         times, rate, the time, the stack, the thread (fault.Decider)
//
// and each counts those that the ones before it let pass. So the target can do any beginning of that, and the tracer must do
// what is behind it. Numbers are counted over all places of a rule, in one state of an address space that all its probes share
// (kprobes.SharedState), so the same calls fail whoever decides, wherever each of them is. Where the target can't tell all of the condition
// at some place, the tracer counts.

// decision is how the calls of a place are decided: what the target asks of them, and what is left to the tracer.
type decision struct {
	asked program.Cond // that a call has to meet to come to the tracer
	exact bool         // asked holds all of the condition, else the tracer looks at it again
	by    chooser      // who does the static part
	// counts is that the target counts, so what comes has met the static part.
	counts bool
	// rest is how the tracer decides what comes and meets the condition.
	rest func(*fault.Decider, fault.Call) fault.Decision
}

// chooser is who chooses among calls by the static part of the attributes.
type chooser uint8

const (
	theTracer chooser = iota
	theTarget
)

// tally is a sequence of numbers that programs count.
type tally struct {
	steps []fault.Step
	state *kprobes.SharedState
	began uint64 // what state's first cell held when the fault began
}

// decideInTarget settles the places' decisions, and gives their probes the programs for that.
func (f *Fault) decideInTarget() error {
	if f.rule.After {
		for _, p := range f.places {
			p.decision = decision{rest: (*fault.Decider).Decide}
		}
		return nil
	}
	exact := true
	for _, p := range f.places {
		p.decision = p.condition()
		exact = exact && p.decision.exact
	}
	steps, static := f.decider.steps(&f.rule)
	if static = static && exact; !static {
		steps = nil
	}
	f.sum = f.decider.tally(steps)
	for _, p := range f.places {
		if p.decision.chooseBy(f.sum, static); p.decision.asked.Always() {
			continue
		}
		if err := p.decideBy(p.decision.asked); err != nil {
			return fmt.Errorf("deciding in the target: %w", err)
		}
	}
	return nil
}

// condition is a decision by the condition alone.
func (p *place) condition() decision {
	d := decision{exact: true, rest: (*fault.Decider).Decide}
	if p.values != nil && p.values.Filter != nil {
		d.asked, d.exact = p.values.Filter.Cond(p.values.Layout)
	}
	return d
}

// chooseBy adds the static part, if the target can do that: the steps that sum counts.
func (d *decision) chooseBy(sum tally, static bool) {
	if static {
		d.by = theTarget
	}
	if len(sum.steps) > 0 {
		d.asked, d.counts, d.rest = program.All(d.asked, met(sum.steps)), true, (*fault.Decider).Confirm
	}
}

// decideBy sends the calls that meet c to the tracer.
func (p *place) decideBy(c program.Cond) (err error) {
	if p.isCall() {
		p.sp.Choose = c
		return nil
	}
	p.kp.SharedState = p.fault.sum.state
	if p.kp.Program, err = program.Decision(p.name, c.Registers(), c); err == nil {
		_, err = program.Check(p.kp.Program)
	}
	return err
}

// met is the condition that all steps are met, in this order, with the sequence of cell i of a State for step i. A step behind one
// that is not met does not count.
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

// eligibleInTarget is how many calls programs have counted: the first step's, since a call is counted before it is chosen.
func (f *Fault) eligibleInTarget() (n uint64) {
	switch {
	case len(f.sum.steps) == 0:
		return 0
	case f.rule.Syscall == "":
		return f.sum.state.Cell(0) - f.sum.began
	}
	for _, p := range f.places {
		n += p.sp.State(0)
	}
	return n
}

// chosen decides a call that has come to the tracer.
func (p *place) chosen(c *Call) (d fault.Decision, ok bool) {
	if !p.meets(c) {
		return d, false
	}
	f := p.fault
	call := p.faultCall(c)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.armed {
		return d, false
	}
	if !p.decision.counts {
		f.eligible++
	}
	f.decider.Do(func(by *fault.Decider) { d = p.decision.rest(by, call) })
	return d, d.Fail
}

// meets tells whether a call meets the condition, as far as the program has not told.
func (p *place) meets(c *Call) bool {
	if p.values == nil || p.values.Filter == nil || p.decision.exact {
		return true
	}
	if err := c.fetch(); err != nil {
		p.fault.warnOnce("the condition can't be looked at: %v", err)
		return false
	}
	return p.values.Keeps(c.Values, c.Comm(), c.TID(), p.resultOf(c)...)
}

// resultOf is the value of resultField, nothing before the body has run.
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

// faultCall is what attributes look at.
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

// spent ends the fault when no call can be injected any more. One whose Decider is shared rests until that says otherwise.
func (f *Fault) spent() {
	if f.spentAlone() && f.group != nil {
		f.group.spent(f)
	}
}

// spentAlone is spent for the fault of one process. It reports whether that has ended by this.
func (f *Fault) spentAlone() (ended bool) {
	done := f.decider.done()
	f.mu.Lock()
	done = f.armed && (done || f.onlyOnce() && f.injected > 0)
	f.mu.Unlock()
	switch {
	case !done:
	case f.shares():
		_ = f.followArmed(context.Background()) // what can't be disarmed lets all calls pass
	default:
		return f.endArmed()
	}
	return false
}

// onlyOnce tells that one call fails, by FailNth, and no other: in one process, whose threads count together.
func (f *Fault) onlyOnce() bool {
	a := f.rule.Attr
	others := a
	others.FailNth = 0
	return !f.shares() && f.in.options.OneProcess && a.FailNth > 0 && others.Never() && !a.PerThread
}

// warnOnce tells what is wrong with a fault's calls, the first time.
func (f *Fault) warnOnce(format string, args ...any) {
	f.mu.Lock()
	warned := f.warned
	f.warned = true
	f.mu.Unlock()
	if !warned {
		f.in.log("%s: "+format, append([]any{f.Name()}, args...)...)
	}
}
