package inject

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// An error is written as a Go expression: ENOENT, io.EOF, errors.New("text"), "text",
// &fs.PathError{Op: "open", Path: name, Err: ENOENT}, fmt.Errorf("reading: %w", EIO). What
// is none of these is the text of an error.

// expression is a parsed Go expression.
type expression struct {
	node  ast.Expr
	text  string
	paths map[string]string // what stands for an import path with slashes
}

// qualified is a name with a package's full path, which Go's syntax has no expression for.
var qualified = regexp.MustCompile("\"(?:\\\\.|[^\"\\\\])*\"|`[^`]*`|[\\w.~-]+(?:/[\\w.~-]+)*/[\\w-]+(?:\\.v\\d+)?\\.\\w+")

// parseExpression parses text. ok is false if it is no expression.
func parseExpression(text string) (x expression, ok bool) {
	x = expression{text: text, paths: map[string]string{}}
	plain := qualified.ReplaceAllStringFunc(text, func(s string) string {
		if s[0] == '"' || s[0] == '`' {
			return s
		}
		at := strings.LastIndexByte(s, '.')
		stand := "path" + strconv.Itoa(len(x.paths)) + "_"
		x.paths[stand] = s[:at]
		return stand + s[at:]
	})
	node, err := parser.ParseExpr(plain)
	x.node = node
	return x, err == nil
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
// error's text.
func errorExpression(text string) (expression, error) {
	if strings.TrimSpace(text) == "" {
		return expression{}, fmt.Errorf("an error needs a text, an errno such as ENOENT, a variable such as io.EOF, or a Go expression")
	}
	x, ok := parseExpression(text)
	if ok && x.makesError() {
		return x, nil
	}
	return expression{node: quoted(text), text: text}, nil
}

// makesError tells an expression from mere text that happens to parse as one.
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
