package inject

import (
	"fmt"
	"time"

	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/inject/fault"
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

// countsInTarget tells whether programs can do the static part, which it returns, where the condition allows it.
func (f *Fault) countsInTarget() (static fault.StaticPart, can bool) {
	r := &f.rule
	static, err := r.Attr.Static()
	return static, err == nil && r.Decider == nil && !r.After && !static.Never && (r.Size == "" || r.Attr.Space <= 1)
}

// decideInTarget gives the places' probes the programs that do the beginning of a decision.
func (f *Fault) decideInTarget() error {
	if f.rule.After {
		return nil
	}
	var static fault.StaticPart
	if static, f.static = f.countsInTarget(); !f.static {
		static.Steps = nil
	}
	conds := make([]program.Cond, len(f.places))
	for i, p := range f.places {
		if p.exact = true; p.values != nil && p.values.Filter != nil {
			conds[i], p.exact = p.values.Filter.Cond(p.values.Layout)
		}
		f.static = f.static && p.exact
	}
	f.counts = f.static && len(static.Steps) > 0
	for i, p := range f.places {
		c := conds[i]
		if f.counts {
			c = program.All(c, Met(static.Steps))
		}
		if err := p.decideBy(c); err != nil {
			return fmt.Errorf("deciding in the target: %w", err)
		}
	}
	return nil
}

// decideBy sends the calls that meet c to the tracer.
func (p *place) decideBy(c program.Cond) (err error) {
	switch {
	case c.Always():
	case p.isCall():
		p.sp.Choose = c
	default:
		p.kp.SharedState = &p.fault.counted
		if p.kp.Program, err = program.Decision(p.name, c.Registers(), c); err == nil {
			_, err = program.Check(p.kp.Program)
		}
	}
	return err
}

// Met is the condition that all steps are met, in this order, with the sequence of cell i of a State for step i. A step behind one
// that is not met does not count.
func Met(steps []fault.Step) program.Cond {
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
	case !f.counts:
		return 0
	case f.rule.Syscall == "":
		return f.counted.Cell(0)
	}
	for _, p := range f.places {
		n += p.sp.State(0)
	}
	return n
}

// chosen decides a call that has come to the tracer.
func (p *place) chosen(c *Call) (fault.Decision, bool) {
	if !p.meets(c) {
		return fault.Decision{}, false
	}
	f := p.fault
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.armed {
		return fault.Decision{}, false
	}
	if !f.counts {
		f.eligible++
	}
	decide := f.decider.Decide
	if f.static {
		decide = f.decider.Confirm
	}
	d := decide(p.faultCall(c))
	return d, d.Fail
}

// meets tells whether a call meets the condition, as far as the program has not told.
func (p *place) meets(c *Call) bool {
	if p.values == nil || p.values.Filter == nil || p.exact {
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
	call := fault.Call{Process: c.PID(), Thread: c.TID(), Size: 1, Now: time.Now(), Task: true, Stack: c.callers}
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

// spent ends the fault when no call can be injected any more.
func (f *Fault) spent() {
	f.mu.Lock()
	done := f.armed && f.rule.Decider == nil && (f.decider.Done(time.Now()) || f.onlyOnce() && f.injected > 0)
	f.mu.Unlock()
	if done {
		f.end()
	}
}

// onlyOnce tells that one call fails, by FailNth, and no other: in one process, whose threads count together.
func (f *Fault) onlyOnce() bool {
	a := f.rule.Attr
	others := a
	others.FailNth = 0
	return f.in.options.OneProcess && a.FailNth > 0 && others.Never() && !a.PerThread
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
