package filter

import "math/big"

// checked finds the types of a comparison's sides; at is where its operator stands.
func (r *summer) checked(p *pred, at int) error {
	a, b := p.left, p.right
	if r.seen != nil || r.rules() == AnyRules {
		return nil
	}
	p.rules = r.rules()
	isBare := a.op == "" && b.op == ""
	switch {
	case a.hasDynamic() && (b.hasDynamic() || !isBare), b.hasDynamic() && !isBare:
		return r.fail("TYPE_UNKNOWN", at)
	case a.isText || b.isText:
		if p.is = twoTexts; !isBare || a.isText != b.isText || p.op != equal && p.op != notEqual {
			return r.fail("ILLEGAL_FIELD_OP", at)
		}
		return nil
	case !isBare && (a.isFloat || b.isFloat || a.isAddress || b.isAddress): // nothing is computed with these
		return r.fail("ILLEGAL_FIELD_OP", at)
	case isBare && (a.isFloat || b.isFloat):
		if p.is = twoFloats; a.n != nil || b.n != nil || a.isAddress || b.isAddress || p.rules != CRules && (a.isFloat != b.isFloat || a.bits != b.bits) {
			return r.fail("TYPES_DIFFER", at)
		}
		return nil
	case isBare && a.isAddress != b.isAddress && a.n == nil && b.n == nil && !(a.bits == 64 && !a.isSigned && b.bits == 64 && !b.isSigned):
		return r.fail("TYPES_DIFFER", at)
	}
	for _, x := range []*sum{a, b} {
		if id := x.settle(p.rules); id != "" {
			return r.fail(id, at)
		}
	}
	return nil
}

// hasDynamic tells that there is a value whose type each hit tells.
func (x *sum) hasDynamic() bool {
	return x.isDynamic || x.op != "" && (x.a.hasDynamic() || x.b.hasDynamic())
}

// settle finds the types of x and its parts. id is what is wrong, empty if nothing is.
func (x *sum) settle(rules Rules) (id string) {
	if x.op == "" {
		x.promote(rules)
		return ""
	}
	for _, part := range []*sum{x.a, x.b} {
		if part.isText || part.isFloat || part.isAddress {
			return "ILLEGAL_FIELD_OP"
		}
		if id := part.settle(rules); id != "" {
			return id
		}
	}
	a, b := x.a.whole, x.b.whole
	switch {
	case x.op == "<<" || x.op == ">>":
		if x.whole = a; a.bits == 0 && b.bits != 0 { // its type depends on what surrounds it
			return "TYPES_DIFFER"
		}
	case rules == CRules:
		x.whole = common(a, b)
	case a.bits == 0 && b.bits == 0, a == b:
		x.whole = a
	case a.bits == 0 && b.holds(x.a.n):
		x.whole = b
	case b.bits == 0 && a.holds(x.b.n):
		x.whole = a
	default:
		return "TYPES_DIFFER"
	}
	return ""
}

// promote makes a leaf's type what operators see: in C an int of all that is smaller. Only hexadecimal and octal literals may be unsigned int
// (C11 6.4.4.1).
func (x *sum) promote(rules Rules) {
	switch {
	case rules != CRules:
	case x.n != nil:
		n := new(big.Int).Abs(x.n)
		for _, t := range []whole{{32, true}, {32, false}, {64, true}, {64, false}} {
			if t == (whole{32, false}) && !x.isBased {
				continue
			}
			if x.whole = t; t.holds(n) || t == (whole{64, true}) && !x.isBased && t.holds(x.n) {
				break
			}
		}
		x.n = x.wrapped(x.n) // a minus is an operator
	case x.bits < 32:
		x.whole = whole{32, true}
	}
}

// common is the type of C's that numbers of both types are converted to.
func common(a, b whole) whole {
	return whole{max(a.bits, b.bits), !(a.bits >= b.bits && !a.isSigned || b.bits >= a.bits && !b.isSigned)}
}
