package inject

import (
	"fmt"
	"time"

	"github.com/gokprobe/gokprobe/debugfs/fetch"
	"github.com/gokprobe/gokprobe/fault"
	"github.com/gokprobe/gokprobe/program"
)

// Who decides. The calls of a rule pass, one after the other,
//
//	the condition    Rule.If
//	the static part  of the attributes: counters and random numbers (fault.Attr.Static)
//	the rest         times, rate, the time, the stack, the thread (fault.Decider)
//
// and each counts those that the ones before it let pass. So the target can do any beginning of that, and the tracer must do
// what is behind it. Numbers are counted over all places of a rule; each place has its counters in a memory of its own, so with
// several places the target only draws random numbers, each place from a sequence of its own. System calls are made in many
// places, so the same holds for a rule about them; and since conditions are about registers at the call, which those in front of it
// are not, the target decides only without one.

// countsInTarget tells whether programs can do the static part.
func (f *Fault) countsInTarget() bool {
	r := &f.rule
	static, err := r.Attr.Static()
	if err != nil || r.Decider != nil || r.After || static.Never || r.Size != "" && r.Attr.Space > 1 {
		return false
	}
	if r.Syscall != "" {
		return r.If == "" && len(static.Steps) == 1 && onlyRandom(static)
	}
	return len(f.places) == 1 || onlyRandom(static)
}

func onlyRandom(static fault.StaticPart) bool {
	for _, s := range static.Steps {
		if !s.Random {
			return false
		}
	}
	return true
}

// decideInTarget gives the n-th place's probe the program that does the beginning of a decision.
func (p *place) decideInTarget(n int) error {
	f := p.fault
	var conds []program.Cond
	var regs []string
	p.exact = true
	if p.values != nil && p.values.Filter != nil {
		var c program.Cond
		if c, p.exact = p.values.Filter.Cond(p.values.Layout); !c.Always() {
			conds, regs = append(conds, c), p.values.Layout.Regs()
		}
	}
	attr := f.attrAt(n)
	if f.static && p.exact {
		static, err := attr.Static()
		if err != nil {
			return err
		}
		for i, s := range static.Steps {
			conds = append(conds, met(s, program.Sequence(i)))
		}
		p.steps = len(static.Steps)
	} else if f.static && len(f.places) > 1 {
		attr.Times, attr.Rate, attr.For = -1, fault.Rate{}, 0
		var err error
		if p.seeds, err = fault.New(attr); err != nil {
			return err
		}
	}
	if len(conds) == 0 {
		return nil
	}
	var err error
	if p.kp.Program, err = program.Decision(p.name, regs, program.All(conds...)); err == nil {
		_, err = program.Check(p.kp.Program)
	}
	if err != nil {
		return fmt.Errorf("deciding in the target: %w", err)
	}
	return nil
}

// attrAt is the attributes at the n-th place.
func (f *Fault) attrAt(n int) fault.Attr {
	attr := f.rule.Attr
	if n > 0 {
		attr.Seed = fault.Mix(attr.Seed, uint64(n))
	}
	return attr
}

// met is fault.Step.Met for the number n.
func met(s fault.Step, n program.Expr) program.Cond {
	if s.Add != 0 {
		n = n.Plus(int64(s.Add))
	}
	if s.Mod != 0 {
		n = n.Mod(s.Mod)
	}
	if s.Random {
		n = n.Mixed(s.Seed)
	}
	return program.Compare(n, program.BelowEqual, program.Const(int64(s.Max)))
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
	if !p.counted() {
		f.eligible++
	}
	call := p.faultCall(c)
	var d fault.Decision
	switch {
	case p.seeds != nil:
		if d = p.seeds.Decide(call); d.Fail {
			d = f.decider.Confirm(call)
		}
	case f.static && p.exact:
		d = f.decider.Confirm(call)
	default:
		d = f.decider.Decide(call)
	}
	return d, d.Fail
}

// counted tells whether the program counts the calls that meet the condition.
func (p *place) counted() bool { return p.steps > 0 }

// meets tells whether a call meets the condition, as far as the program has not told.
func (p *place) meets(c *Call) bool {
	if p.values == nil || p.values.Filter == nil || p.exact && p.kp.Program != nil {
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
