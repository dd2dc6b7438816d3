// Package logpoint reads log points: where a line is to be printed, what it says, and when.
//
//	file.go:42 "order {o.ID} of {len(o.Items)} items" if o.Total > 100
//
// The package is pure: no system call, no build tag.
package logpoint

import (
	"strings"
	"syscall"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/lex"
)

// Point is a log point.
type Point struct {
	Text  string // as it was written
	Spec  string // where: a SPEC of package trace
	Parts []Part // what the line says
	If    string // the condition, empty for none
}

// Part is some of a line: a text as it is, or the value of an expression.
type Part struct {
	Text   string
	IsExpr bool
}

// Exprs are the expressions, in their order; each once.
func (p Point) Exprs() (all []string) {
	seen := map[string]bool{}
	for _, part := range p.Parts {
		if part.IsExpr && !seen[part.Text] {
			seen[part.Text] = true
			all = append(all, part.Text)
		}
	}
	return all
}

// sentences are what may be wrong.
var sentences = map[string]string{
	"LOG_NO_PLACE":    "A log point begins with a place",
	"LOG_NO_TEXT":     `A log point has a text in quotes behind its place: file.c:42 "n is {n}"`,
	"LOG_NO_CLOSE":    "The text is not closed",
	"LOG_BRACE":       "A brace is not closed; two of them, {{ or }}, stand for one",
	"LOG_NO_EXPR":     "There is nothing in the braces",
	"LOG_BAD_ESCAPE":  `Behind a backslash is " or another one`,
	"LOG_BEHIND_TEXT": `Behind the text is nothing, or a condition: if n > 5`,
}

func fail(text, id string, column int) error {
	return &caret.Error{System: "log point", ID: id, Text: sentences[id], Command: text, Column: min(column, len(text)), Errno: syscall.EINVAL}
}

// Parse reads one log point. The error is a *caret.Error.
func Parse(text string) (Point, error) {
	text = strings.TrimSpace(text)
	open := strings.IndexByte(text, '"')
	if open < 0 {
		return Point{}, fail(text, "LOG_NO_TEXT", len(text))
	}
	p := Point{Text: text, Spec: strings.TrimSpace(text[:open])}
	if p.Spec == "" {
		return Point{}, fail(text, "LOG_NO_PLACE", 0)
	}
	end, err := p.readParts(open+1, true)
	if err != nil {
		return Point{}, err
	}
	rest := strings.TrimLeft(text[end:], " \t")
	cond, ok := strings.CutPrefix(rest, "if")
	if p.If = strings.TrimSpace(cond); rest != "" && (!ok || p.If == "" || strings.IndexByte(" \t(", cond[0]) < 0) {
		return Point{}, fail(text, "LOG_BEHIND_TEXT", len(text)-len(rest))
	}
	return p, nil
}

// ParseText reads what a line says, without quotes around it: in it are no escapes but {{ and }}. The error is a *caret.Error.
func ParseText(text string) ([]Part, error) {
	p := Point{Text: text}
	_, err := p.readParts(0, false)
	return p.Parts, err
}

// readParts reads the text that begins at a byte, and returns where the rest begins. One in quotes ends with a quote, others with everything.
func (p *Point) readParts(at int, quoted bool) (end int, err error) {
	var plain []byte
	add := func() {
		if len(plain) > 0 {
			p.Parts, plain = append(p.Parts, Part{Text: string(plain)}), nil
		}
	}
	for at < len(p.Text) {
		c := p.Text[at]
		switch {
		case c == '"' && quoted:
			add()
			return at + 1, nil
		case c == '\\' && quoted:
			if at++; at == len(p.Text) || p.Text[at] != '"' && p.Text[at] != '\\' {
				return 0, fail(p.Text, "LOG_BAD_ESCAPE", at-1)
			}
			plain = append(plain, p.Text[at])
			at++
		case strings.HasPrefix(p.Text[at:], "{{"), strings.HasPrefix(p.Text[at:], "}}"):
			plain = append(plain, c)
			at += 2
		case c == '{':
			add()
			n := exprEnd(p.Text[at+1:])
			if n < 0 {
				return 0, fail(p.Text, "LOG_BRACE", at)
			}
			expr := strings.TrimSpace(p.Text[at+1:][:n])
			if expr == "" {
				return 0, fail(p.Text, "LOG_NO_EXPR", at)
			}
			p.Parts = append(p.Parts, Part{expr, true})
			at += n + 2
		case c == '}':
			return 0, fail(p.Text, "LOG_BRACE", at)
		default:
			plain = append(plain, c)
			at++
		}
	}
	if quoted {
		return 0, fail(p.Text, "LOG_NO_CLOSE", len(p.Text))
	}
	add()
	return len(p.Text), nil
}

// exprEnd is where the brace stands that closes an expression; -1 if there is none in the text.
func exprEnd(s string) int {
	for n := 0; n < len(s); n++ {
		if n += lex.Key(s[n:]); n == len(s) {
			break
		}
		switch s[n] {
		case '{':
			return -1
		case '}':
			return n
		}
	}
	return -1
}
