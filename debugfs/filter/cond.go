package filter

import (
	"slices"

	"github.com/gokprobe/gokprobe/debugfs/fetch"
	"github.com/gokprobe/gokprobe/program"
)

// Cond is what the target can decide of the filter: it is met by every hit that Match keeps. expr is a
// field's number, extended to 64 bits by its sign and 0 where it can't be read (fetch.Layout.Expr), if the target
// can compute it. exact tells that Match keeps every hit that meets it.
func (f *Filter) Cond(expr func(field int) (program.Expr, bool)) (c program.Cond, exact bool) {
	w := f.root.weaken(expr, false)
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
func (n *node) weaken(expr func(int) (program.Expr, bool), negate bool) weaker {
	negate = negate != n.not
	if n.pred != nil {
		return n.pred.weaken(expr, negate)
	}
	all := weaker{exact: true}
	var conds []program.Cond
	anyOf := n.any != negate // de Morgan
	for _, sub := range n.list {
		w := sub.weaken(expr, negate)
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

// weaken leaves strings and sets of processors to the tracer.
func (p *pred) weaken(expr func(int) (program.Expr, bool), negate bool) weaker {
	e, ok := expr(p.field)
	if !ok || p.is == aString || p.is == cpus {
		return weaker{always: true}
	}
	sign := 0
	if p.typ.Kind == fetch.Signed {
		sign = 1
	}
	c := program.Compare(e, comparisons[p.op][sign], program.Const(int64(p.n)))
	if p.is == aFunction {
		r := p.ranges[0]
		c = program.All(program.Compare(e, program.AboveEqual, program.Const(int64(r.first))),
			program.Compare(e, program.BelowEqual, program.Const(int64(r.last))))
		negate = negate != (p.op == notEqual)
	}
	if negate {
		c = program.Not(c)
	}
	return weaker{cond: c, exact: true}
}

// Fields are the indices of the fields that the filter looks at, each once.
func (f *Filter) Fields() []int {
	return slices.Compact(slices.Sorted(slices.Values(f.root.fields(nil))))
}

func (n *node) fields(all []int) []int {
	if n.pred != nil {
		return append(all, n.pred.field)
	}
	for _, sub := range n.list {
		all = sub.fields(all)
	}
	return all
}
