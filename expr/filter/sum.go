package filter

import (
	"math/big"
	"strings"

	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/lex"
)

// Rules are those of a language for arithmetic.
type Rules uint8

// The languages.
const (
	CRules    Rules = iota // small types become int, mixed ones the wider or the unsigned one; overflow of signed numbers has no value
	GoRules                // types are alike; what does not fit wraps
	RustRules              // types are alike; what does not fit has no value
	AnyRules               // not known yet: what one of them has no type for is believed
)

// sum is a value that is computed, or a field, or a number: one of these is set.
type sum struct {
	op    string // of a and b
	a, b  *sum
	field int // of a leaf; -1 for a number
	n     *big.Int
	whole
	isText, isFloat, isAddress, isBraced bool
	isDynamic, isBased                   bool // it is a hexadecimal or octal number
}

// whole is a type of whole numbers; no bits: that of a number in the source, which is any.
type whole struct {
	bits     int
	isSigned bool
}

// deepest bounds braces in braces, and mostTerms the terms of a comparison.
const (
	deepest   = 32
	mostTerms = 32
)

// comparison reads X OP Y where X and Y are not just a field and a constant. is is false if it is something else; then nothing was read.
func (s *parser) comparison() (p *pred, is bool, err error) {
	from, n, seen := s.at, s.n, 0
	if s.seen != nil {
		seen = len(*s.seen)
	}
	defer func() {
		if !is {
			s.at, s.n = from, n
			if s.seen != nil {
				*s.seen = (*s.seen)[:seen]
			}
		}
	}()
	r := &summer{parser: s}
	a := r.sum(0)
	if a == nil || strings.HasPrefix(s.text[s.at:], ".function") || strings.HasPrefix(s.text[s.at:], ".ustring") {
		return r.none()
	}
	p = &pred{is: aSum, left: a}
	s.skip()
	before := s.at
	switch {
	case (s.ends() || !s.operator(p)) && a.op == "&" && !a.isBraced: // bits in common
		if a.a.isField() && a.b.n != nil && !a.a.isBraced && !a.b.isBraced { // as ever
			return nil, false, nil
		}
		p.op, p.right = notEqual, &sum{field: -1, n: new(big.Int)}
		return p, true, r.checked(p, before)
	case s.at == before || p.op == glob || p.op == anyBit:
		return nil, false, nil
	}
	s.skip()
	if s.isConstant(a) {
		return nil, false, nil
	}
	b := r.sum(0)
	switch {
	case b == nil:
		return r.none()
	case a.isField() && b.n != nil && !a.isBraced && !b.isBraced: // as ever
		return nil, false, nil
	case r.rules() == CRules && (a.isLoose() || b.isLoose()):
		return nil, true, r.fail("NEEDS_BRACES", before)
	}
	p.right = b
	return p, true, r.checked(p, before)
}

// isConstant tells that a text, processors or an enumerator of a follows.
func (s *parser) isConstant(a *sum) bool {
	if c := s.peek(); c == '\'' || c == '"' || strings.HasPrefix(s.text[s.at:], "CPUS") {
		return true
	}
	if a.field < 0 || s.seen != nil {
		return false
	}
	from := s.at
	_, ok := s.word(&pred{field: a.field, typ: s.Fields[a.field].Type, op: equal})
	s.at = from
	return ok
}

// summer reads the sides of a comparison.
type summer struct {
	*parser
	terms      int
	isComputed bool  // there is an operator, and so it is no other predicate
	wrong      error // where sum returns nil
}

// none is what comparison returns where a side can't be read. Without an operator it may be another predicate.
func (r *summer) none() (*pred, bool, error) {
	if r.wrong == nil || !r.isComputed {
		return nil, false, nil
	}
	return nil, true, r.wrong
}

func (r *summer) fault(id string, at int) *sum {
	r.wrong = r.fail(id, at)
	return nil
}

// sum reads products that are added, or terms with one other operator between them. Languages have others in different orders.
func (r *summer) sum(depth int) *sum {
	x, first := r.product(depth), ""
	for x != nil {
		r.skip()
		at := r.at
		op := r.operatorOf("<<", ">>", "+", "-", "&", "|", "^")
		if op == "" {
			return x
		}
		isAdded := op == "+" || op == "-"
		r.isComputed = r.isComputed || op != "&"
		y := r.product(depth)
		switch {
		case y == nil:
			return nil
		case first != "" && first != op && (!isAdded || first != "+" && first != "-"), first != "" && (op == "<<" || op == ">>"), !isAdded && (first == "" && x.isOpen() || y.isOpen()):
			return r.fault("NEEDS_BRACES", at)
		}
		x, first = joined(op, x, y), op
	}
	return nil
}

// product reads terms that are multiplied or divided.
func (r *summer) product(depth int) *sum {
	x := r.term(depth)
	for x != nil {
		r.skip()
		op := r.operatorOf("*", "/", "%")
		if op == "" {
			return x
		}
		r.isComputed = true
		x = joined(op, x, r.term(depth))
	}
	return nil
}

func joined(op string, a, b *sum) *sum {
	if a == nil || b == nil {
		return nil
	}
	return &sum{op: op, a: a, b: b, field: -1}
}

// operatorOf passes over an operator, which is no comparison and no part of a longer one.
func (r *summer) operatorOf(ops ...string) string {
	rest := r.text[r.at:]
	if strings.HasPrefix(rest, "&&") || strings.HasPrefix(rest, "||") {
		return ""
	}
	for _, op := range ops {
		if r.accept(op) {
			return op
		}
	}
	return ""
}

// isField tells of x that it is nothing else.
func (x *sum) isField() bool { return x.op == "" && x.n == nil }

// isLoose tells of an operation that C's comparisons come first.
func (x *sum) isLoose() bool { return x.isOpen() && strings.Contains("&|^", x.op) }

// ends tells that a comparison is over.
func (s *parser) ends() bool {
	rest := s.text[s.at:]
	return rest == "" || rest[0] == ')' || strings.HasPrefix(rest, "&&") || strings.HasPrefix(rest, "||")
}

// rules are those of the language.
func (s *parser) rules() Rules {
	if s.Rules == nil {
		return CRules
	}
	return s.Rules()
}

// isOpen tells of an operation that no braces are around it.
func (x *sum) isOpen() bool { return x.op != "" && !x.isBraced }

// term reads a number, a field, or a sum in braces.
func (r *summer) term(depth int) *sum {
	r.skip()
	at := r.at
	if r.terms++; depth > deepest || r.terms > mostTerms {
		return r.fault("TOO_MANY_PREDS", at)
	}
	rest := r.text[r.at:]
	switch {
	case rest == "", strings.HasPrefix(rest, "CPUS{"):
		return nil
	case rest[0] == '(' && lex.Cast(rest) == 0 && !isPathInBraces(rest):
		r.at++
		x := r.sum(depth + 1)
		if r.skip(); x == nil || !r.accept(")") {
			return nil
		}
		x.isBraced = true
		return x
	case isDigit(rest[0]), rest[0] == '-' && len(rest) > 1 && isDigit(rest[1]) && !strings.Contains(rest[:exprLen(rest)], "("):
		return r.literal()
	}
	name := r.name()
	if name == "" {
		return nil
	}
	r.n++
	if r.seen != nil {
		*r.seen = append(*r.seen, Operand{Text: name, At: at, IsName: nameLen(name) == len(name)})
		return &sum{field: 0, whole: whole{64, true}}
	}
	i := r.find(name)
	if i < 0 {
		return r.fault("FIELD_NOT_FOUND", r.at+columnsBehind)
	}
	return r.leaf(i, name)
}

// literal reads a whole number, also one with a unit.
func (r *summer) literal() *sum {
	from := r.at
	r.accept("-")
	r.while(func(c byte) bool { return isAlnum(c) || c == '.' })
	text := r.text[from:r.at]
	v, ok := parseNumber(text, true)
	x := new(big.Int).SetInt64(int64(v))
	if !ok {
		if v, ok = parseNumber(text, false); !ok {
			if v, ok = parseUnits(text, true); ok {
				return &sum{field: -1, n: x.SetInt64(int64(v))}
			}
		}
		x.SetUint64(v)
	}
	if !ok {
		return r.fault("ILLEGAL_INTVAL", from+columnsBehind)
	}
	digits := strings.TrimPrefix(text, "-")
	return &sum{field: -1, n: x, isBased: len(digits) > 1 && digits[0] == '0'}
}

// leaf is a field with its type.
func (r *summer) leaf(i int, name string) *sum {
	t := r.Fields[i].Type
	x := &sum{field: i, whole: whole{8 * t.Size, t.HasSign()}}
	if t.Size == 0 {
		x.bits = 64
	}
	x.isDynamic = r.Fields[i].IsDynamic
	p := pred{typ: t}
	switch {
	case p.isString():
		x.isText = true
	case t.Count > 0, t.Kind == fetch.Caller, t.IsBits() && t.Width > 32 && t.Width < 64:
		return r.fault("ILLEGAL_FIELD_OP", r.at+columnsBehind)
	case t.Kind == fetch.Float:
		x.isFloat = true
	case t.IsBits():
		x.whole = whole{t.Width, t.HasSign()}
	case t.Kind == fetch.Hex:
		x.isAddress = strings.IndexByte("$%@+-", name[0]) < 0 && !strings.Contains(name, ":")
	}
	return x
}
