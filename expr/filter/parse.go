package filter

import (
	"strings"

	"github.com/gokprobe/gokprobe/expr/lex"
)

const space = " \t\n\v\f\r"

func isSpace(c byte) bool { return strings.IndexByte(space, c) >= 0 }

// node is a condition: a predicate, or all or any of several conditions; or its opposite.
type node struct {
	not  bool
	any  bool
	list []*node
	pred *pred // nil if list counts
}

// parser reads a text from left to right.
type parser struct {
	Parser
	text string
	at   int
	n    int // predicates so far
	// seen collects operands, whatever fields there are; nil if that is not wanted.
	seen *[]Operand
}

func (p Parser) parse(text string) (*node, error) {
	if len(text) >= MaxLen {
		return nil, fail(text[:MaxLen], "OPERAND_TOO_LONG", 0)
	}
	if err := balanced(text); err != nil {
		return nil, err
	}
	s := &parser{Parser: p, text: text}
	n, err := s.or()
	switch {
	case err != nil:
		return nil, err
	case s.at < len(text):
		return nil, s.fail("TOO_MANY_PREDS", s.at)
	}
	return n, nil
}

// balanced returns an error if brackets or quotes are not.
func balanced(text string) error {
	var open []int
	quote := -1
	for i := 0; i < len(text); i++ {
		if quote < 0 {
			if i += lex.Key(text[i:]); i == len(text) {
				break
			}
		}
		c := text[i]
		switch {
		case quote >= 0:
			if c == text[quote] {
				quote = -1
			}
		case c == '\'' || c == '"':
			quote = i
		case c == '(':
			open = append(open, i)
		case c == ')' && len(open) == 0:
			return fail(text, "TOO_MANY_CLOSE", i)
		case c == ')':
			open = open[:len(open)-1]
		}
	}
	switch {
	case quote >= 0:
		return fail(text, "MISSING_QUOTE", quote)
	case len(open) > 0:
		return fail(text, "TOO_MANY_OPEN", open[len(open)-1])
	}
	return nil
}

func (s *parser) fail(id string, column int) error { return fail(s.text, id, column) }

// skip passes over blanks.
func (s *parser) skip() {
	for s.at < len(s.text) && isSpace(s.text[s.at]) {
		s.at++
	}
}

// peek returns the next byte, 0 at the end.
func (s *parser) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// accept passes over token, if that comes next.
func (s *parser) accept(token string) bool {
	ok := strings.HasPrefix(s.text[s.at:], token)
	if ok {
		s.at += len(token)
	}
	return ok
}

// or reads conditions with || between them, up to a bracket or the end.
func (s *parser) or() (*node, error) { return s.series("||", true, s.and) }

// and reads conditions with && between them.
func (s *parser) and() (*node, error) { return s.series("&&", false, s.unary) }

// series reads conditions with an operator between them.
func (s *parser) series(op string, any bool, next func() (*node, error)) (*node, error) {
	n := &node{any: any}
	for {
		sub, err := next()
		if err != nil {
			return nil, err
		}
		n.list = append(n.list, sub)
		if s.skip(); !s.accept(op) {
			break
		}
	}
	if len(n.list) == 1 {
		return n.list[0], nil
	}
	return n, nil
}

// unary reads a predicate, or something in brackets, or the opposite of either.
func (s *parser) unary() (*node, error) {
	s.skip()
	not := false
	for s.peek() == '!' && !strings.HasPrefix(s.text[s.at:], "!=") && !strings.HasPrefix(s.text[s.at:], "!~") {
		not = !not
		s.at++
		s.skip()
	}
	if s.at == len(s.text) {
		if s.n == 0 {
			return nil, s.fail("NO_FILTER", s.at)
		}
		return nil, s.fail("INVALID_FILTER", s.at)
	}
	n, err := s.operand()
	if err != nil {
		return nil, err
	}
	return &node{not: not, list: []*node{n}}, nil
}

func (s *parser) operand() (*node, error) {
	if s.Exprs {
		if p, is, err := s.comparison(); is || err != nil {
			return &node{pred: p}, err
		}
	}
	if s.peek() != '(' || s.Exprs && isPathInBraces(s.text[s.at:]) {
		p, err := s.predicate()
		return &node{pred: p}, err
	}
	s.at++
	n, err := s.or()
	if err != nil {
		return nil, err
	}
	if s.peek() != ')' {
		return nil, s.fail("TOO_MANY_PREDS", s.at)
	}
	s.at++
	return n, nil
}
