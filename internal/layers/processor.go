package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Of one processor are names of fields and constants, texts that are a register's name, and the bytes of its breakpoint, jump and call.
// Two-letter registers are left out: they are words of other things as well.
var (
	ofProcessor = regexp.MustCompile(`(?i)amd64|x86_?64|^em_386$|aarch64|arm64`)
	register    = regexp.MustCompile(`^(r[abcd]x|r[sd]i|r[sb]p|rip|r[89]|r1[0-5]|[re]flags|[fg]s_base|orig_rax|e[abcd]x|e[sd]i|e[sb]p|pstate|nzcv)$`)
	regField    = regexp.MustCompile(`^(R[abcd]x|R[sd]i|R[sb]p|Rip|Orig_rax|Eflags|[FG]s_base|Pstate)$`)
	opcode      = regexp.MustCompile(`^0x(cc|e8|e9)$`)
	taggedFile  = regexp.MustCompile(`_(386|amd64|arm|arm64)\.(go|s)$`)
)

// Processor lists what in the package is of one processor, as "file:line: what". Files
// of all architectures are read.
func Processor(p Package) ([]string, error) {
	var found []string
	files, err := filepath.Glob(filepath.Join(p.Dir, "*.[gs]*"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		name := filepath.Base(file)
		switch {
		case strings.HasSuffix(name, "_test.go"):
			continue
		case taggedFile.MatchString(name) || strings.HasSuffix(name, ".s"):
			found = append(found, name+":1: a file of one architecture")
			continue
		case !strings.HasSuffix(name, ".go"):
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		note := func(pos token.Pos, what string) {
			found = append(found, fmt.Sprintf("%s:%d: %s", name, fset.Position(pos).Line, what))
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if ofProcessor.MatchString(n.Name) {
					note(n.Pos(), n.Name)
				}
			case *ast.SelectorExpr:
				if regField.MatchString(n.Sel.Name) {
					note(n.Sel.Pos(), n.Sel.Name)
				}
			case *ast.BasicLit:
				if what, is := ofOne(n); is {
					note(n.Pos(), what)
				}
			}
			return true
		})
		for _, group := range f.Comments {
			for _, c := range group.List {
				if strings.HasPrefix(c.Text, "//go:build") && ofProcessor.MatchString(c.Text) {
					note(c.Pos(), c.Text)
				}
			}
		}
	}
	return found, nil
}

// ofOne tells of a literal that it is a register's name, an opcode's byte, or the path of a room of one architecture.
func ofOne(lit *ast.BasicLit) (what string, is bool) {
	if lit.Kind == token.INT {
		return lit.Value, opcode.MatchString(strings.ToLower(lit.Value))
	}
	text, err := strconv.Unquote(lit.Value)
	if err != nil || lit.Kind != token.STRING {
		return "", false
	}
	return lit.Value, register.MatchString(text) || strings.HasPrefix(text, Module+"/arch/")
}
