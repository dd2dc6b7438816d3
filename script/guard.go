package script

import (
	"fmt"
	"math/big"
	"slices"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// The interpreter counts its instructions, and one instruction can build a list of a
// billion. So functions of ours do all work that takes more than constant time, and
// charge the budget first. instrument puts them in place of operators and methods,
// guarded in place of built-in functions. They are named as no program can name
// anything. It is a guard against mistakes, not against malice: a scenario may do worse
// things to its target.

const (
	guardMethod = "(method)" // (method)(x.name, args …): x.name(args …)
	guardLoop   = "(while)"  // (while)(x): x, at the place of a loop, where it is cut off
	guardSpread = "(spread)" // (spread)(x): x, whose elements are all about to be copied
	guardKey    = "(key)"    // (key)(x): x, which is about to be looked up, and so to be hashed with all that is in it
)

func guardOp(op syntax.Token) string  { return "(" + op.String() + ")" }
func guardSet(op syntax.Token) string { return "(" + op.String() + "=)" }

// guardedOps are the operators whose cost depends on their operands.
var guardedOps = []syntax.Token{
	syntax.PLUS, syntax.MINUS, syntax.STAR, syntax.SLASHSLASH, syntax.PERCENT, syntax.PIPE, syntax.AMP, syntax.CIRCUMFLEX, syntax.LTLT,
	syntax.EQL, syntax.NEQ, syntax.LT, syntax.LE, syntax.GT, syntax.GE, syntax.IN, syntax.NOT_IN,
}

// coreMethods are the names of the methods of Starlark's own types.
var coreMethods = func() map[string]bool {
	all := map[string]bool{}
	for _, v := range []starlark.HasAttrs{starlark.String(""), starlark.Bytes(""), &starlark.List{}, &starlark.Dict{}, &starlark.Set{}} {
		for _, name := range v.AttrNames() {
			all[name] = true
		}
	}
	return all
}()

// instrument changes a file that was parsed. The error is that of an assignment which
// can't be guarded.
func instrument(f *syntax.File) error {
	in := &instrumenter{}
	in.stmts(f.Stmts)
	return in.err
}

type instrumenter struct{ err error }

func (in *instrumenter) stmts(all []syntax.Stmt) {
	for _, s := range all {
		in.stmt(s)
	}
}

func (in *instrumenter) stmt(s syntax.Stmt) {
	switch s := s.(type) {
	case *syntax.AssignStmt:
		in.assign(s)
	case *syntax.DefStmt:
		in.params(s.Params)
		in.stmts(s.Body)
	case *syntax.ExprStmt:
		in.expr(&s.X)
	case *syntax.ForStmt:
		in.target(s.Vars)
		in.expr(&s.X)
		in.stmts(s.Body)
	case *syntax.WhileStmt:
		in.expr(&s.Cond)
		s.Cond = call(guardLoop, s.While, s.Cond)
		in.stmts(s.Body)
	case *syntax.IfStmt:
		in.expr(&s.Cond)
		in.stmts(s.True)
		in.stmts(s.False)
	case *syntax.ReturnStmt:
		if s.Result != nil {
			in.expr(&s.Result)
		}
	}
}

// assign guards x op= y as x op= (op=)(x, y), which gives y. Where the result is not much
// larger than both, y is enough; elsewhere x is evaluated twice, so it must not call anything.
func (in *instrumenter) assign(s *syntax.AssignStmt) {
	in.expr(&s.RHS)
	op := s.Op
	if op != syntax.EQ {
		op -= syntax.PLUS_EQ - syntax.PLUS
	}
	var left syntax.Expr = &syntax.Ident{NamePos: s.OpPos, Name: "None"}
	if op == syntax.STAR || op == syntax.PERCENT || op == syntax.LTLT {
		var simple bool
		if left, simple = clone(s.LHS); !simple {
			in.err = syntax.Error{Pos: s.OpPos, Msg: fmt.Sprintf("%v needs a variable, or one's attribute or element, on its left", s.Op)}
			return
		}
	}
	in.target(s.LHS)
	if op != syntax.EQ && slices.Contains(guardedOps, op) {
		s.RHS = call(guardSet(op), s.OpPos, left, s.RHS)
	}
}

// target guards the left side of an assignment.
func (in *instrumenter) target(e syntax.Expr) {
	switch e := e.(type) {
	case *syntax.DotExpr:
		in.expr(&e.X)
	case *syntax.IndexExpr:
		in.expr(&e.X)
		in.key(&e.Y, e.Lbrack)
	case *syntax.ParenExpr:
		in.target(e.X)
	case *syntax.ListExpr:
		for _, x := range e.List {
			in.target(x)
		}
	case *syntax.TupleExpr:
		for _, x := range e.List {
			in.target(x)
		}
	}
}

// params guards the defaults of parameters.
func (in *instrumenter) params(all []syntax.Expr) {
	for _, p := range all {
		if b, ok := p.(*syntax.BinaryExpr); ok {
			in.expr(&b.Y)
		}
	}
}

func (in *instrumenter) exprs(all []syntax.Expr) {
	for i := range all {
		in.expr(&all[i])
	}
}

// expr guards an expression, and those in it.
func (in *instrumenter) expr(at *syntax.Expr) {
	switch e := (*at).(type) {
	case *syntax.BinaryExpr:
		in.expr(&e.X)
		in.expr(&e.Y)
		if slices.Contains(guardedOps, e.Op) && !bounded(e) {
			*at = call(guardOp(e.Op), e.OpPos, e.X, e.Y)
		}
	case *syntax.CallExpr:
		*at = in.call(e)
	case *syntax.SliceExpr:
		in.expr(&e.X)
		for _, x := range []*syntax.Expr{&e.Lo, &e.Hi, &e.Step} {
			if *x != nil {
				in.expr(x)
			}
		}
		e.X = call(guardSpread, e.Lbrack, e.X)
	case *syntax.ParenExpr:
		in.expr(&e.X)
	case *syntax.CondExpr:
		in.expr(&e.Cond)
		in.expr(&e.True)
		in.expr(&e.False)
	case *syntax.LambdaExpr:
		in.params(e.Params)
		in.expr(&e.Body)
	case *syntax.UnaryExpr:
		in.expr(&e.X)
	case *syntax.IndexExpr:
		in.expr(&e.X)
		in.key(&e.Y, e.Lbrack)
	case *syntax.DotExpr:
		in.expr(&e.X)
	case *syntax.ListExpr:
		in.exprs(e.List)
	case *syntax.TupleExpr:
		in.exprs(e.List)
	case *syntax.DictExpr:
		in.exprs(e.List)
	case *syntax.DictEntry:
		in.key(&e.Key, e.Colon)
		in.expr(&e.Value)
	case *syntax.Comprehension:
		in.comprehension(e)
	}
}

// key guards what a container may be asked for. pos is where a mistake in it is told.
func (in *instrumenter) key(at *syntax.Expr, pos syntax.Position) {
	in.expr(at)
	if !constant(*at) {
		*at = call(guardKey, pos, *at)
	}
}

func (in *instrumenter) comprehension(e *syntax.Comprehension) {
	in.expr(&e.Body)
	for _, c := range e.Clauses {
		switch c := c.(type) {
		case *syntax.ForClause:
			in.target(c.Vars)
			in.expr(&c.X)
		case *syntax.IfClause:
			in.expr(&c.Cond)
		}
	}
}

// call guards a call: its arguments, and if it may be of a method, the call itself.
func (in *instrumenter) call(e *syntax.CallExpr) syntax.Expr {
	in.expr(&e.Fn)
	for i, a := range e.Args {
		switch a := a.(type) {
		case *syntax.BinaryExpr:
			if a.Op == syntax.EQ {
				in.expr(&a.Y)
				continue
			}
		case *syntax.UnaryExpr:
			if a.Op == syntax.STAR || a.Op == syntax.STARSTAR {
				in.expr(&a.X)
				a.X = call(guardSpread, a.OpPos, a.X)
				continue
			}
		}
		in.expr(&e.Args[i])
	}
	switch fn := e.Fn.(type) {
	case *syntax.Ident:
		return e
	case *syntax.DotExpr:
		if !coreMethods[fn.Name.Name] {
			return e
		}
	}
	guarded := call(guardMethod, e.Lparen, append([]syntax.Expr{e.Fn}, e.Args...)...)
	guarded.Rparen = e.Rparen
	return guarded
}

func call(name string, pos syntax.Position, args ...syntax.Expr) *syntax.CallExpr {
	return &syntax.CallExpr{Fn: &syntax.Ident{NamePos: pos, Name: name}, Lparen: pos, Args: args, Rparen: pos}
}

// bounded tells that the operation takes no longer, and the result is not much larger, than
// a constant and the other operand.
func bounded(e *syntax.BinaryExpr) bool {
	switch e.Op {
	case syntax.STAR:
		return false
	case syntax.PERCENT, syntax.IN, syntax.NOT_IN:
		return constant(e.Y)
	case syntax.LTLT:
		return constant(e.X)
	}
	return constant(e.X) || constant(e.Y)
}

// constant tells that an operand is small.
func constant(e syntax.Expr) bool {
	switch e := e.(type) {
	case *syntax.Literal:
		i, large := e.Value.(*big.Int)
		return !large || i.BitLen() <= 64
	case *syntax.ParenExpr:
		return constant(e.X)
	case *syntax.UnaryExpr:
		return e.X != nil && constant(e.X)
	}
	return false
}

// clone copies an expression that can be evaluated twice: names, literals, attributes and
// elements of those.
func clone(e syntax.Expr) (syntax.Expr, bool) {
	switch e := e.(type) {
	case *syntax.Ident:
		return &syntax.Ident{NamePos: e.NamePos, Name: e.Name}, true
	case *syntax.Literal:
		one := *e
		return &one, true
	case *syntax.ParenExpr:
		return clone(e.X)
	case *syntax.UnaryExpr:
		x, ok := clone(e.X)
		return &syntax.UnaryExpr{OpPos: e.OpPos, Op: e.Op, X: x}, ok
	case *syntax.DotExpr:
		x, ok := clone(e.X)
		return &syntax.DotExpr{X: x, Dot: e.Dot, NamePos: e.NamePos, Name: &syntax.Ident{NamePos: e.Name.NamePos, Name: e.Name.Name}}, ok
	case *syntax.IndexExpr:
		x, okX := clone(e.X)
		y, okY := clone(e.Y)
		return &syntax.IndexExpr{X: x, Lbrack: e.Lbrack, Y: y, Rbrack: e.Rbrack}, okX && okY
	}
	return nil, false
}
