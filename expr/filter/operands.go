package filter

import (
	"strings"

	"github.com/gokprobe/gokprobe/expr/lex"
)

// Operand is something that a filter compares, in a filter with Parser.Exprs.
type Operand struct {
	Text   string
	At     int  // where it begins in the filter's text
	IsName bool // it is a name, and no longer expression
	IsText bool // it is compared with a text
}

// Operands lists what a filter compares, as far as it can be read.
func Operands(text string) []Operand {
	var all []Operand
	s := &parser{Parser: Parser{Exprs: true}, text: text, seen: &all}
	_, _ = s.or() // mistakes are told when the filter is made
	return all
}

// skim passes over the rest of a predicate, whose name was just read.
func (s *parser) skim(name string) (*pred, error) {
	x := Operand{Text: name, At: s.at - len(name), IsName: nameLen(name) == len(name)}
	defer func() { *s.seen = append(*s.seen, x) }()
	_ = s.accept(".ustring")
	if s.accept(".function") {
		s.skip()
		if s.operator(&pred{}) {
			s.skip()
			s.functionName()
		}
		return &pred{}, nil
	}
	s.skip()
	if !s.operator(&pred{}) {
		return nil, s.here("INVALID_OP")
	}
	s.skip()
	switch c := s.peek(); {
	case c == '\'' || c == '"':
		x.IsText = true
		s.at++
		s.while(func(b byte) bool { return b != c })
		s.accept(string(c))
	case strings.HasPrefix(s.text[s.at:], "CPUS{"):
		s.while(func(b byte) bool { return b != '}' })
		s.accept("}")
	default:
		s.while(func(b byte) bool { return !isSpace(b) && b != ')' && b != '&' && b != '|' })
	}
	return &pred{}, nil
}

// exprLen is how many bytes of s are an expression as a predicate begins with it: a name with members and elements (p->x.y[3]), *p, &p, len(p), or one of the kernel's
// fetch arguments ($arg1, %di, @errno, +8($arg1)), with or without a type.
func exprLen(s string) int {
	n := 0
	for n < len(s) && (s[n] == '*' || s[n] == '&') {
		n++
	}
	if cast := lex.Cast(s[n:]); cast > 0 {
		n += cast
		n += len(s[n:]) - len(strings.TrimLeft(s[n:], " "))
		return n + exprLen(s[n:])
	}
	switch {
	case n == len(s):
		return n
	case strings.IndexByte("$%@+-", s[n]) >= 0:
		n += fetchLen(s[n:])
	default:
		n += pathLen(s[n:])
	}
	return n + typeLen(s[n:])
}

// fetchLen is the length of one of the kernel's fetch arguments without its type.
func fetchLen(s string) int {
	depth := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		case depth == 0 && strings.HasPrefix(s, "$retval") && strings.HasPrefix(s[i:], "->"):
		case depth == 0 && (s[i:][:1+nameLen(s[i+1:])] == ".function" || s[i:][:1+nameLen(s[i+1:])] == ".ustring"):
			return i
		case depth == 0 && i > 0 && (isSpace(c) || strings.IndexByte("=<>!~&|):", c) >= 0) && !strings.HasPrefix(s[i-1:], "->"):
			return i
		}
	}
	return len(s)
}

// pathLen is the length of a name, and of what follows it. Words that the kernel has behind names are none of it.
func pathLen(s string) int {
	n := nameLen(s)
	for more := lex.Namespace(s[:n], s[n:]); more > 0; more = lex.Namespace(s[:n], s[n:]) {
		n += more + nameLen(s[n+more:])
	}
	if n == 0 || s[:n] == "len" {
		n += braceLen(s[n:], '(', ')')
	}
	for n < len(s) {
		more := 0
		switch rest := s[n:]; {
		case rest[0] == '[':
			more = braceLen(rest, '[', ']')
		case strings.HasPrefix(rest, ".("):
			if k := braceLen(rest[1:], '(', ')'); k > 0 {
				more = 1 + k
			}
		case rest[0] == '.':
			if name := rest[1:][:nameLen(rest[1:])]; name != "" && name != "function" && name != "ustring" {
				more = 1 + len(name)
			}
		case strings.HasPrefix(rest, "->"):
			if k := nameLen(rest[2:]); k > 0 {
				more = 2 + k
			}
		}
		if more == 0 {
			break
		}
		n += more
	}
	return n
}

func nameLen(s string) int {
	n := 0
	for n < len(s) && isSourceByte(s[n]) {
		n++
	}
	return n
}

// isPathInBraces tells of s, which begins with a brace, that it is (*p).x, (T *)p or the like, and no condition.
func isPathInBraces(s string) bool {
	if lex.Cast(s) > 0 {
		return true
	}
	rest := s[braceLen(s, '(', ')'):]
	return len(rest) < len(s) && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "->") || strings.HasPrefix(rest, "["))
}

// braceLen is the length of what is in braces, with these; 0 if s begins with none, or they are not closed.
func braceLen(s string, open, end byte) int {
	if s == "" || s[0] != open {
		return 0
	}
	depth := 0
	for i := 0; i < len(s); i++ {
		if key := lex.Key(s[i:]); key > 0 {
			if depth == 0 {
				return key
			}
			i += key - 1
			continue
		}
		switch s[i] {
		case open:
			depth++
		case end:
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// typeLen is the length of :TYPE, 0 if there is none.
func typeLen(s string) int {
	if s == "" || s[0] != ':' {
		return 0
	}
	n := 1
	for n < len(s) && (isNameByte(s[n]) || s[n] == '@' || s[n] == '/') {
		n++
	}
	if n < len(s) && s[n] == '[' {
		n += braceLen(s[n:], '[', ']')
	}
	return n
}
