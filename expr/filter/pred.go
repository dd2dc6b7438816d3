package filter

import (
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/expr/fetch"
)

// op is a comparison.
type op uint8

const (
	glob op = iota
	notEqual
	equal
	lessEqual
	less
	greaterEqual
	greater
	anyBit
)

// ops are the comparisons' texts. The longer come before those that they begin with.
var ops = [...]string{glob: "~", notEqual: "!=", equal: "==", lessEqual: "<=", less: "<", greaterEqual: ">=", greater: ">", anyBit: "&"}

// pred compares a field with a constant.
type pred struct {
	field  int
	typ    fetch.Type
	op     op
	is     want
	n      uint64 // a number, extended like the field's values
	float  float64
	text   string
	not    bool // of a glob
	minds  bool // that a text may be cut, unlike the kernel
	ranges []Span
	// left and right are compared by the rules of a language where is tells so.
	left, right *sum
	rules       Rules
}

// want is what a field is compared with.
type want uint8

const (
	aNumber   want = iota
	aString        // text
	aFunction      // ranges has one
	aFloat         // float
	cpus           // several of them: ranges
	aSum           // left and right have whole numbers,
	twoFloats      // or are fields, one of which at least is of such a type,
	twoTexts       // or both are texts
)

// Span are the numbers from First to Last.
type Span struct{ First, Last uint64 }

// Columns of errors are the kernel's: this much behind where the predicate was read up to.
const columnsBehind = 1

// longest are the bytes that the kernel has room for, with a zero.
const (
	longestText   = 256 // MAX_FILTER_STR_VAL
	longestNumber = 24
)

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isAlnum(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// while passes over what ok accepts, and returns it.
func (s *parser) while(ok func(byte) bool) string {
	from := s.at
	for s.at < len(s.text) && ok(s.text[s.at]) {
		s.at++
	}
	return s.text[from:s.at]
}

// here is an error at the place where the parser is.
func (s *parser) here(id string) error { return s.fail(id, s.at+columnsBehind) }

// predicate reads FIELD OP VALUE.
func (s *parser) predicate() (*pred, error) {
	name := s.name()
	if name == "" {
		return nil, s.fail("INVALID_FILTER", s.at)
	}
	s.n++
	if s.seen != nil {
		return s.skim(name)
	}
	p := &pred{field: s.find(name), minds: s.Exprs}
	if p.field < 0 {
		return nil, s.here("FIELD_NOT_FOUND")
	}
	p.typ = s.Fields[p.field].Type
	s.accept(".ustring") // all strings are the user's
	function := s.accept(".function")
	s.skip()
	if !s.operator(p) {
		return nil, s.here("INVALID_OP")
	}
	s.skip()
	if p.typ.Count > 0 && !p.isString() {
		return nil, s.here("ILLEGAL_FIELD_OP")
	}
	return p, s.value(p, function)
}

// name reads a field's name.
func (s *parser) name() string {
	if s.Exprs {
		n := exprLen(s.text[s.at:])
		s.at += n
		return s.text[s.at-n : s.at]
	}
	return s.while(isNameByte)
}

func isNameByte(c byte) bool { return isAlnum(c) || c == '_' }

// isSourceByte also tells of letters that Go and Rust have in names.
func isSourceByte(c byte) bool { return isNameByte(c) || c >= 0x80 }

// find is the index of a field. Names that tell of the thread may be in capitals.
func (s *parser) find(name string) int {
	if name == "COMM" || name == "CPU" {
		name = strings.ToLower(name)
	}
	for i, f := range s.Fields {
		if f.Name == name {
			return i
		}
	}
	if s.Exprs && name == "duration" {
		return s.find("duration_ns")
	}
	return -1
}

func (s *parser) operator(p *pred) bool {
	for o, text := range ops {
		if s.accept(text) {
			p.op = op(o)
			return true
		}
	}
	return false
}

// isString tells that the field is compared with strings.
func (p *pred) isString() bool {
	switch p.typ.Kind {
	case fetch.String, fetch.UString, fetch.SymStr:
		return true
	case fetch.Char:
		return p.typ.Count > 0
	}
	return false
}

func (s *parser) value(p *pred, function bool) error {
	switch c := s.peek(); {
	case function:
		return s.function(p)
	case strings.HasPrefix(s.text[s.at:], "CPUS"):
		return s.cpus(p)
	case c == '\'' || c == '"':
		return s.quoted(p, c)
	case (isDigit(c) || c == '-' || c == '.') && p.typ.Kind == fetch.Float:
		return s.float(p)
	case isDigit(c) || c == '-':
		return s.number(p)
	}
	if n, ok := s.word(p); ok {
		p.n = p.extend(n)
		return nil
	}
	return s.here("INVALID_VALUE")
}

// word reads a name that has a number, where there are expressions: an enumerator of the field's, or what languages call 0 and 1.
func (s *parser) word(p *pred) (n uint64, ok bool) {
	if !s.Exprs || p.isString() || p.op == glob || p.typ.Kind == fetch.Float {
		return 0, false
	}
	from := s.at
	word := s.while(isSourceByte)
	for v, name := range s.Fields[p.field].Enum {
		if name == word && word != "" {
			return uint64(v), true
		}
	}
	switch word {
	case "false", "NULL", "nil", "nullptr":
		return 0, true
	case "true":
		return 1, true
	}
	s.at = from
	return 0, false
}

// quoted reads a string.
func (s *parser) quoted(p *pred, quote byte) error {
	switch {
	case p.typ.Kind == fetch.Caller:
		return s.caller(p, quote)
	case p.op != notEqual && p.op != equal && p.op != glob:
		return s.here("ILLEGAL_FIELD_OP")
	case !p.isString():
		return s.here("EXPECT_DIGIT")
	}
	s.at++
	p.is, p.text = aString, s.while(func(c byte) bool { return c != quote })
	if len(p.text) >= longestText {
		return s.here("OPERAND_TOO_LONG")
	}
	s.at++
	if p.op == glob {
		p.text, p.not = strings.CutPrefix(p.text, "!")
	}
	return nil
}

// number reads a number.
func (s *parser) number(p *pred) error {
	switch {
	case p.isString():
		return s.here("EXPECT_STRING")
	case p.op == glob:
		return s.here("ILLEGAL_FIELD_OP")
	}
	from := s.at
	s.accept("-")
	s.while(func(c byte) bool { return isAlnum(c) || s.Exprs && c == '.' })
	text := s.text[from:s.at]
	if len(text) >= longestNumber {
		return s.here("OPERAND_TOO_LONG")
	}
	n, ok := parseNumber(text, p.typ.HasSign())
	if !ok && s.Exprs {
		n, ok = parseUnits(text, p.typ.HasSign())
	}
	if !ok {
		return s.fail("ILLEGAL_INTVAL", from+columnsBehind)
	}
	p.n = p.extend(n)
	return nil
}

// float reads a number that a floating-point field is compared with: the nearest one that the field's type has.
func (s *parser) float(p *pred) error {
	if p.op == glob || p.op == anyBit {
		return s.here("ILLEGAL_FIELD_OP")
	}
	from := s.at
	before := byte(0)
	s.while(func(c byte) bool {
		ok := isAlnum(c) || c == '.' || (c == '-' || c == '+') && (before == 0 || before|0x20 == 'e' || before|0x20 == 'p')
		before = c
		return ok
	})
	text := s.text[from:s.at]
	if len(text) >= longestNumber {
		return s.here("OPERAND_TOO_LONG")
	}
	n, err := strconv.ParseFloat(text, 8*p.size())
	if err != nil {
		return s.fail("ILLEGAL_INTVAL", from+columnsBehind)
	}
	p.is, p.float = aFloat, n
	return nil
}
