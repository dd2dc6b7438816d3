package trigger

import (
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/expr/fetch"
)

// role is what an expression is for.
type role uint8

const (
	asOperand role = iota
	asKey
	asVal
	asVar
)

// maxSubexprs is how many operators an expression may have.
const maxSubexprs = 3

// exprParser reads one expression; its operators are counted as the kernel counts them.
type exprParser struct {
	*histParser
	operators int
}

// expression reads ATOM, -(EXPRESSION), or operands with + - * / between them, from left to right.
func (p *histParser) expression(s string, r role) (*term, error) {
	e := exprParser{histParser: p}
	return e.parse(s, r)
}

func (p *exprParser) parse(s string, r role) (*term, error) {
	if p.operators > maxSubexprs {
		return nil, p.complain("TOO_MANY_SUBEXPR", s)
	}
	o, at := rootOperator(s)
	switch o {
	case opField:
		return p.atom(s, r)
	case opNeg:
		return p.negation(s)
	}
	p.operators++
	left, right := s[:at], s[at+1:]
	if left == "" || right == "" {
		return nil, p.complain("BAD_EXPRESSION", s)
	}
	a, err := p.operand(left)
	if err != nil {
		return nil, err
	}
	b, err := p.operand(right)
	if err != nil {
		return nil, err
	}
	return p.combine(o, a, b, right)
}

// operand is an expression whose values are numbers.
func (p *exprParser) operand(s string) (*term, error) {
	t, err := p.parse(s, asOperand)
	if err != nil {
		return nil, err
	}
	if t.isText() || t.op == opStack {
		return nil, p.complain("INVALID_STR_OPERAND", s)
	}
	return t, nil
}

func (p *exprParser) combine(o op, a, b *term, right string) (*term, error) {
	if a.inUsecs() != b.inUsecs() {
		return nil, p.complain("TIMESTAMP_MISMATCH", "")
	}
	if o == opDiv && b.op == opConst && b.constant == 0 {
		return nil, p.complain("DIVISION_BY_ZERO", right)
	}
	for _, t := range []*term{a, b} {
		if t.op == opVar {
			p.spec.refs[t.index].once = true
		}
	}
	if a.op == opConst && b.op == opConst {
		return &term{op: opConst, constant: compute(o, a.constant, b.constant)}, nil
	}
	return &term{op: o, a: a, b: b}, nil
}

// negation reads -(EXPRESSION): the parentheses must be there, and nothing behind them.
func (p *exprParser) negation(s string) (*term, error) {
	p.operators++
	if p.operators > maxSubexprs {
		return nil, p.complain("TOO_MANY_SUBEXPR", s)
	}
	inner, opened := strings.CutPrefix(s, "-(")
	at := strings.LastIndexByte(inner, ')')
	switch {
	case !opened || at < 0:
		return nil, p.complain("BAD_EXPRESSION", s)
	case at != len(inner)-1:
		return nil, p.complain("UNARY_MINUS_SUBEXPR", inner)
	}
	a, err := p.operand(inner[:at])
	if err != nil {
		return nil, err
	}
	return &term{op: opNeg, a: a}, nil
}

// rootOperator is the operator that is applied last, and where it stands; opField if there is none.
func rootOperator(s string) (op, int) {
	s = strings.ReplaceAll(s, ".sym-offset", ".sym_offset") // no minus
	if i := strings.LastIndexAny(s, "+-"); i >= 0 {
		if strings.LastIndexByte(s, '-') == 0 {
			return opNeg, 0 // it can only be the first of all operators
		}
		return map[byte]op{'+': opAdd, '-': opSub}[s[i]], i
	}
	if i := strings.LastIndexAny(s, "*/"); i >= 0 {
		return map[byte]op{'*': opMul, '/': opDiv}[s[i]], i
	}
	return opField, 0
}

// atom reads a number, [SYSTEM.EVENT.]$VARIABLE or FIELD[.MODIFIER].
func (p *exprParser) atom(s string, r role) (*term, error) {
	if s != "" && isDigit(s[0]) {
		n, ok := parseNumber(s)
		if !ok {
			return nil, p.complain("EXPECT_NUMBER", s)
		}
		return &term{op: opConst, constant: n}, nil
	}
	system, event, name := "", "", s
	if parts := strings.SplitN(s, ".", 3); len(parts) == 3 {
		system, event, name = parts[0], parts[1], parts[2]
	}
	if v, ok := strings.CutPrefix(name, "$"); ok && v != "" {
		return p.reference(system, event, v, r)
	}
	return p.field(name, r)
}

// reference is a variable: of this histogram, or of one that is there.
func (p *exprParser) reference(system, event, name string, r role) (*term, error) {
	if system == "" || system == p.e.System && event == p.e.Name {
		at := slices.IndexFunc(p.assigned, func(a assignment) bool { return a.name == name })
		if at >= 0 {
			return p.localReference(p.assigned[at], r)
		}
	}
	t, wrong := p.other(system, event, name)
	if wrong != "" {
		return nil, p.complain(wrong, name)
	}
	return t, nil
}

// other is a variable of another histogram; wrong is what error_log says if it can't be, by its id.
func (p *histParser) other(system, event, name string) (t *term, wrong string) {
	v, wrong := p.table.find(system, event, name)
	if wrong != "" {
		return nil, wrong
	}
	if system != "" {
		name = system + "." + event + "." + name
	}
	at := slices.IndexFunc(p.spec.refs, func(r reference) bool { return r.variable == v })
	if at < 0 {
		if len(p.spec.refs) == maxVars {
			return nil, "TOO_MANY_VARS"
		}
		at = len(p.spec.refs)
		p.spec.refs = append(p.spec.refs, reference{variable: v})
	}
	return &term{op: opVar, name: name, index: at, a: v.table.spec.vars[v.index]}, ""
}

// localReference is the field or number that the variable stands for, or else the variable.
func (p *exprParser) localReference(a assignment, r role) (*term, error) {
	if o, _ := rootOperator(a.text); o == opField && a.text != "" && a.text[0] != '$' {
		return p.atom(a.text, r)
	}
	t, err := p.local(a)
	if err != nil {
		return nil, err
	}
	if t.op == opConst {
		return &term{op: opConst, constant: t.constant}, nil
	}
	return &term{op: opLocal, name: a.name, a: t}, nil
}

// field reads NAME[.MODIFIER].
func (p *exprParser) field(s string, r role) (*term, error) {
	name, mod, modified := strings.Cut(s, ".")
	t := &term{name: name}
	if modified {
		if !t.modify(mod, r) {
			return nil, p.complain("BAD_FIELD_MODIFIER", mod)
		}
	}
	p.spec.usecs = p.spec.usecs || t.mod == usecs && name == "common_timestamp"
	at := slices.IndexFunc(p.e.Fields, func(f fetch.Field) bool { return f.Name == name })
	switch {
	case name == "common_timestamp":
		t.op, p.spec.timed = opTime, true
	case name == "common_stacktrace", at < 0 && strings.EqualFold(name, "stacktrace"):
		t.op = opStack
	case name == "common_cpu", at < 0 && strings.EqualFold(name, "cpu"):
		t.op = opCPU
	case name == "hitcount":
		t.op = opHits
	case at < 0:
		return nil, p.complain("FIELD_NOT_FOUND", name)
	default:
		t.op, t.index, t.typ = opField, at, p.e.Fields[at].Type
		t.comm = t.mod == execname && r == asVar
		if t.typ.Count > 0 {
			return nil, p.complain("ARRAY_FIELD", name)
		}
		if t.typ.Kind == fetch.Float { // histograms count whole numbers
			return nil, p.complain("BAD_EXPRESSION", name)
		}
	}
	if modified && (isText(t.typ) || t.mod == stacktrace && t.op != opStack) {
		return nil, p.complain("BAD_FIELD_MODIFIER", mod)
	}
	return t, nil
}

// modify reads a modifier, and whether it may stand there.
func (t *term) modify(mod string, r role) bool {
	if rest, ok := strings.CutPrefix(mod, "bucket"); ok {
		number, ok := strings.CutPrefix(strings.TrimPrefix(rest, "s"), "=")
		t.mod = buckets
		if ok {
			t.width, ok = parseNumber(number)
		}
		return ok && t.width > 0
	}
	at := slices.Index(modifiers[1:], mod)
	if at < 0 {
		return false
	}
	t.mod = modifier(at + 1)
	switch t.mod {
	case percent, graph:
		return r == asVal
	case execname:
		return t.name == "common_pid"
	}
	return true
}
