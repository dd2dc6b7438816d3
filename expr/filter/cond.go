package filter

import (
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/program"
)

// Target tells how programs in the target find fields. A *fetch.Layout is one, of its
// arguments.
type Target interface {
	// Expr is a field's number, extended to 64 bits by its sign and 0 where it can't be read.
	Expr(field int) (e program.Expr, ok bool)
	// Text is where a field's string is, and how many bytes of it are kept, with its zero.
	Text(field int) (at program.Expr, size int, ok bool)
}

// Cond is what the target can decide of the filter: it is met by every hit that Match keeps. exact tells that Match keeps
// every hit that meets it.
func (f *Filter) Cond(t Target) (c program.Cond, exact bool) {
	w := f.root.weaken(t, false)
	if w.always {
		return program.Cond{}, w.exact
	}
	return w.cond, w.exact
}

// weaker is a condition that is met whenever another is.
type weaker struct {
	cond   program.Cond
	always bool // it is always met
	exact  bool // and only then
}

// weaken is the weaker condition for n, or for its opposite.
func (n *node) weaken(t Target, negate bool) weaker {
	negate = negate != n.not
	if n.pred != nil {
		return n.pred.weaken(t, negate)
	}
	all := weaker{exact: true}
	var conds []program.Cond
	anyOf := n.any != negate // de Morgan
	for _, sub := range n.list {
		w := sub.weaken(t, negate)
		all.exact = all.exact && w.exact
		if w.always && anyOf {
			return weaker{always: true}
		}
		if !w.always {
			conds = append(conds, w.cond)
		}
	}
	switch {
	case len(conds) == 0:
		return weaker{always: true, exact: all.exact}
	case len(conds) == 1:
		all.cond = conds[0]
	case anyOf:
		all.cond = program.Any(conds...)
	default:
		all.cond = program.All(conds...)
	}
	return all
}

// The program's comparisons of unsigned and of signed numbers.
var comparisons = [...][2]program.Op{
	notEqual:     {program.NotEqual, program.NotEqual},
	equal:        {program.Equal, program.Equal},
	lessEqual:    {program.BelowEqual, program.LessEqual},
	less:         {program.Below, program.Less},
	greaterEqual: {program.AboveEqual, program.GreaterEqual},
	greater:      {program.Above, program.Greater},
	anyBit:       {program.AnyBit, program.AnyBit},
}

// weaken leaves sets of processors to the tracer.
func (p *pred) weaken(t Target, negate bool) weaker {
	if p.left != nil {
		return p.weakenSum(t, negate)
	}
	if p.is == aString {
		return p.weakenText(t, negate)
	}
	e, ok := t.Expr(p.field)
	if !ok || p.is == cpus || p.is == aFloat {
		return weaker{always: true}
	}
	sign := 0
	if p.typ.Kind == fetch.Signed {
		sign = 1
	}
	c := program.Compare(e, comparisons[p.op][sign], program.Const(int64(p.n)))
	if p.is == aFunction {
		var in []program.Cond
		for _, r := range p.ranges {
			in = append(in, program.All(program.Compare(e, program.AboveEqual, program.Const(int64(r.First))),
				program.Compare(e, program.BelowEqual, program.Const(int64(r.Last)))))
		}
		c = program.Any(in...)
		negate = negate != (p.op == notEqual)
	}
	if negate {
		c = program.Not(c)
	}
	return weaker{cond: c, exact: true}
}
