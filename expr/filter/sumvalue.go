package filter

import (
	"math"
	"math/big"
	"strings"

	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/program"
)

// holds tells whether a number is one of the type.
func (t whole) holds(n *big.Int) bool {
	switch {
	case n == nil || t.bits == 0:
		return true
	case t.isSigned:
		return new(big.Int).Add(n, one(t.bits-1)).Sign() >= 0 && n.Cmp(one(t.bits-1)) < 0
	}
	return n.Sign() >= 0 && n.Cmp(one(t.bits)) < 0
}

// one is the number of a bit.
func one(bit int) *big.Int { return new(big.Int).Lsh(big.NewInt(1), uint(bit)) }

// wrapped is the number of the type that has the same low bits.
func (t whole) wrapped(n *big.Int) *big.Int {
	if t.holds(n) {
		return n
	}
	low := new(big.Int).And(n, new(big.Int).Sub(one(t.bits), big.NewInt(1)))
	if t.isSigned && low.Bit(t.bits-1) == 1 {
		low.Sub(low, one(t.bits))
	}
	return low
}

// value computes x. ok is false if the program would have no such number.
func (x *sum) value(read Reader, rules Rules) (n *big.Int, ok bool) {
	switch {
	case x.n != nil:
		return x.n, true
	case x.op == "":
		v, ok := known(read, x.field)
		if x.isSigned {
			return big.NewInt(int64(v.U)), ok
		}
		n = new(big.Int).SetUint64(v.U)
		return n, ok
	}
	a, ok1 := x.a.value(read, rules)
	b, ok2 := x.b.value(read, rules)
	if !ok1 || !ok2 {
		return nil, false
	}
	if x.op == "<<" || x.op == ">>" {
		return x.shifted(a, b, rules)
	}
	if rules == CRules {
		a, b = x.wrapped(a), x.wrapped(b)
	}
	if n, ok = operate(x.op, a, b); !ok {
		return nil, false
	}
	if !x.holds(n) && (rules == RustRules || rules == CRules && x.isSigned) {
		return nil, false
	}
	return x.wrapped(n), true
}

// known is the value of a field. ok is false if it could not be read.
func known(read Reader, field int) (v fetch.Value, ok bool) {
	v = read(field)
	return v, !v.Absent && !v.Fault
}

func operate(op string, a, b *big.Int) (n *big.Int, ok bool) {
	n = new(big.Int)
	switch op {
	case "+":
		return n.Add(a, b), true
	case "-":
		return n.Sub(a, b), true
	case "*":
		return n.Mul(a, b), true
	case "&":
		return n.And(a, b), true
	case "|":
		return n.Or(a, b), true
	case "^":
		return n.Xor(a, b), true
	}
	switch {
	case b.Sign() == 0:
		return nil, false
	case op == "/":
		return n.Quo(a, b), true
	}
	return n.Rem(a, b), true
}

// shifted is x, whose parts are a and b.
func (x *sum) shifted(a, b *big.Int, rules Rules) (n *big.Int, ok bool) {
	bits := x.bits
	if bits == 0 {
		bits = 64
	}
	isPast := b.Cmp(big.NewInt(int64(bits))) >= 0
	if b.Sign() < 0 || isPast && rules != GoRules {
		return nil, false
	}
	by := uint(bits)
	if !isPast {
		by = uint(b.Uint64())
	}
	if x.op == ">>" {
		return new(big.Int).Rsh(a, by), true
	}
	n = new(big.Int).Lsh(a, by)
	if rules == CRules && x.isSigned && (a.Sign() < 0 || !x.holds(n)) {
		return nil, false
	}
	return whole{bits, x.isSigned || x.bits == 0}.wrapped(n), true
}

// matchSum compares what is computed.
func (p *pred) matchSum(read Reader) truth {
	a, ok1 := p.left.value(read, p.rules)
	b, ok2 := p.right.value(read, p.rules)
	if !ok1 || !ok2 {
		return unknown
	}
	if p.rules == CRules {
		t := common(p.left.whole, p.right.whole)
		a, b = t.wrapped(a), t.wrapped(b)
	}
	return truthOf(p.holds(a.Cmp(b)))
}

// holds tells whether the operator is about numbers in such an order.
func (p *pred) holds(order int) bool {
	switch p.op {
	case equal:
		return order == 0
	case notEqual:
		return order != 0
	case less:
		return order < 0
	case lessEqual:
		return order <= 0
	case greater:
		return order > 0
	}
	return order >= 0
}

// matchFloats compares two fields of which one is a floating-point number; C makes the other one such a number of its size.
func (p *pred) matchFloats(fields []fetch.Field, read Reader) truth {
	size := 0
	for _, x := range []*sum{p.left, p.right} {
		if x.isFloat {
			size = max(size, fields[x.field].Type.Size)
		}
	}
	var n [2]float64
	for i, x := range []*sum{p.left, p.right} {
		v, ok := known(read, x.field)
		switch {
		case !ok:
			return unknown
		case x.isFloat:
			n[i] = fields[x.field].Type.Float(v)
		case x.isSigned && size == 4:
			n[i] = float64(float32(int64(v.U)))
		case size == 4:
			n[i] = float64(float32(v.U))
		case x.isSigned:
			n[i] = float64(int64(v.U))
		default:
			n[i] = float64(v.U)
		}
	}
	if math.IsNaN(n[0]) || math.IsNaN(n[1]) {
		return truthOf(p.op == notEqual)
	}
	order := 0
	if n[0] < n[1] {
		order = -1
	} else if n[0] > n[1] {
		order = 1
	}
	return truthOf(p.holds(order))
}

// matchTexts compares two texts. Where one is cut, only beginnings that differ tell.
func (p *pred) matchTexts(fields []fetch.Field, read Reader) truth {
	var texts [2]string
	var isCut [2]bool
	for i, x := range []*sum{p.left, p.right} {
		v, ok := known(read, x.field)
		if !ok {
			return unknown
		}
		texts[i], isCut[i] = (&pred{typ: fields[x.field].Type}).textOf(v), v.IsCut
	}
	if isCut[0] && strings.HasPrefix(texts[1], texts[0]) || isCut[1] && strings.HasPrefix(texts[0], texts[1]) {
		return unknown
	}
	return truthOf((texts[0] == texts[1]) == (p.op == equal))
}

// weakenSum is weaken where two fields are compared as they are; what is computed is left to the tracer.
func (p *pred) weakenSum(t Target, negate bool) weaker {
	a, b := p.left, p.right
	if p.is != aSum || a.op != "" || b.op != "" || a.n != nil || b.n != nil {
		return weaker{always: true}
	}
	x, ok1 := t.Expr(a.field)
	y, ok2 := t.Expr(b.field)
	c := common(a.whole, b.whole)
	switch {
	case !ok1 || !ok2, p.rules != CRules && a.isSigned != b.isSigned && c == (whole{64, false}):
		return weaker{always: true}
	case p.rules == CRules && c == whole{32, false}:
		x, y = x.As(program.U32), y.As(program.U32)
	case p.rules != CRules:
		c = whole{64, a.isSigned || b.isSigned}
	}
	sign := 0
	if c.isSigned {
		sign = 1
	}
	cond := program.Compare(x, comparisons[p.op][sign], y)
	if negate {
		cond = program.Not(cond)
	}
	return weaker{cond: cond, exact: !x.Reads() && !y.Reads()} // here what can't be read is 0
}
