package inject

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// An error is written as a Go expression: ENOENT, io.EOF, errors.New("text"), "text",
// &fs.PathError{Op: "open", Path: name, Err: ENOENT}, fmt.Errorf("reading: %w", EIO). Any other
// text is the message of an error. But a text that begins as an expression does, with a quote,
// & and a name, a name and {, or a package's function and (, must be an expression: a slip in
// one shall be an error here, not become a message.

// looksLikeGo matches the beginning of a text that is meant as an expression.
var looksLikeGo = regexp.MustCompile("^\\s*(?:[\"`]|&[A-Za-z_]|[A-Za-z_][\\w./~-]*\\{|[A-Za-z_][\\w./~-]*\\.\\w+\\()")

// SyntaxError is the error of a Go expression that can't be parsed.
type SyntaxError struct {
	Text    string // the expression
	Column  int    // from 1, in characters
	Message string
}

// Error implements error.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("no Go expression, column %d: %s; a text that looks like one is written in quotes", e.Column, e.Message)
}

// Picture is the expression, and a line with a caret below the mistake.
func (e *SyntaxError) Picture() string {
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, e.Text)
	return "  " + text + "\n  " + strings.Repeat(" ", e.Column-1) + "^\n"
}

// expression is a parsed Go expression.
type expression struct {
	node  ast.Expr
	text  string
	paths map[string]string // by the name that stands in the parsed text for an import path with slashes
}

// qualified matches a name with a package's full path, for which Go's syntax has no expression.
// It matches strings too, so that a path in a string is not taken for one.
var qualified = regexp.MustCompile("\"(?:\\\\.|[^\"\\\\])*\"|`[^`]*`|[\\w.~-]+(?:/[\\w.~-]+)*/[\\w-]+(?:\\.v\\d+)?\\.\\w+")

// parseExpression parses text. The error is a *SyntaxError.
func parseExpression(text string) (expression, error) {
	x := expression{text: text, paths: map[string]string{}}
	var plain strings.Builder
	last, place := 0, func(offset int) int { return offset } // in text, of an offset in plain
	for _, m := range qualified.FindAllStringIndex(text, -1) {
		s := text[m[0]:m[1]]
		if s[0] == '"' || s[0] == '`' {
			continue
		}
		at := strings.LastIndexByte(s, '.')
		stand := "path" + strconv.Itoa(len(x.paths)) + "_"
		x.paths[stand] = s[:at]
		plain.WriteString(text[last:m[0]])
		before, from, behind := place, plain.Len(), m[0]+at
		plain.WriteString(stand)
		to := plain.Len()
		place = func(offset int) int {
			if offset <= from {
				return before(offset)
			}
			return max(offset-to, 0) + behind
		}
		last = behind
	}
	plain.WriteString(text[last:])
	node, err := parser.ParseExpr(plain.String())
	x.node = node
	if err == nil {
		return x, nil
	}
	e := &SyntaxError{Text: text, Column: 1, Message: err.Error()}
	var all scanner.ErrorList
	if errors.As(err, &all) && len(all) > 0 {
		e.Message = all[0].Msg
		e.Column += utf8.RuneCountInString(text[:min(place(all[0].Pos.Offset), len(text))])
	}
	return x, e
}

// with is another node of x.
func (x expression) with(node ast.Expr) expression { x.node = node; return x }

// name is x if it is an identifier, or one with a package; else it is empty.
func (x expression) name() string {
	switch n := x.node.(type) {
	case *ast.Ident:
		return n.Name
	case *ast.SelectorExpr:
		pkg, ok := n.X.(*ast.Ident)
		if !ok {
			return ""
		}
		if path, ok := x.paths[pkg.Name]; ok {
			return path + "." + n.Sel.Name
		}
		return pkg.Name + "." + n.Sel.Name
	case *ast.ParenExpr:
		return x.with(n.X).name()
	case *ast.StarExpr:
		if inner := x.with(n.X).name(); inner != "" {
			return "*" + inner
		}
	}
	return ""
}

// literal is a composite literal's type, with a star if its address is taken, and the fields'
// values.
func (x expression) literal() (typ string, lit *ast.CompositeLit) {
	star, node := "", x.node
	if u, ok := node.(*ast.UnaryExpr); ok && u.Op == token.AND {
		star, node = "*", u.X
	}
	lit, ok := node.(*ast.CompositeLit)
	if !ok || lit.Type == nil {
		return "", nil
	}
	return star + x.with(lit.Type).name(), lit
}

// call is a call's function, or a conversion's type, and its arguments.
func (x expression) call() (fn string, args []expression) {
	c, ok := x.node.(*ast.CallExpr)
	if !ok {
		return "", nil
	}
	for _, a := range c.Args {
		args = append(args, x.with(a))
	}
	return x.with(c.Fun).name(), args
}

// str is the value of a string literal.
func (x expression) str() (s string, ok bool) {
	lit, ok := x.node.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

// number is a number literal, with its sign.
func (x expression) number() (text string, ok bool) {
	switch n := x.node.(type) {
	case *ast.BasicLit:
		if n.Kind == token.CHAR {
			r, _, _, err := strconv.UnquoteChar(strings.Trim(n.Value, "'"), '\'')
			return strconv.Itoa(int(r)), err == nil
		}
		return n.Value, n.Kind == token.INT || n.Kind == token.FLOAT
	case *ast.UnaryExpr:
		text, ok = x.with(n.X).number()
		switch n.Op {
		case token.SUB:
			return "-" + text, ok
		case token.ADD:
			return text, ok
		}
	case *ast.ParenExpr:
		return x.with(n.X).number()
	}
	return "", false
}

// errnoNamed is the errno of a name, with or without a package in front: ENOENT,
// syscall.ENOENT.
func errnoNamed(name string) (unix.Errno, bool) {
	name = name[strings.LastIndexByte(name, '.')+1:]
	const most = 134 // EHWPOISON is 133
	for e := unix.Errno(1); e < most && len(name) > 1 && name[0] == 'E'; e++ {
		if unix.ErrnoName(e) == name {
			return e, true
		}
	}
	switch name {
	case "EWOULDBLOCK":
		return unix.EAGAIN, true
	case "ENOTSUP":
		return unix.EOPNOTSUPP, true
	case "EDEADLOCK":
		return unix.EDEADLK, true
	}
	return 0, false
}

// errorExpression reads the text of -error: an expression that can make an error, or else the
// error's text. The error is a *SyntaxError if text looks like an expression but is none.
func errorExpression(text string) (expression, error) {
	if strings.TrimSpace(text) == "" {
		return expression{}, fmt.Errorf("an error needs a text, an errno such as ENOENT, a variable such as io.EOF, or a Go expression")
	}
	x, err := parseExpression(text)
	switch {
	case err == nil && x.makesError():
		return x, nil
	case err != nil && looksLikeGo.MatchString(text):
		return expression{}, err
	}
	return expression{node: quoted(text), text: text}, nil
}

// makesError reports whether an expression can make an error. A mere text may happen to parse
// as an expression too.
func (x expression) makesError() bool {
	if _, ok := x.str(); ok {
		return true
	}
	if typ, _ := x.literal(); typ != "" {
		return true
	}
	if fn, _ := x.call(); fn != "" {
		return strings.Contains(fn, ".")
	}
	name := x.name()
	_, errno := errnoNamed(name)
	return errno || name == "nil" || strings.Contains(name, ".")
}

// quoted is a string literal.
func quoted(s string) *ast.BasicLit {
	return &ast.BasicLit{Kind: token.STRING, Value: strconv.Quote(s)}
}
