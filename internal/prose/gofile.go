package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// ofGo returns the comments and messages of a Go file, and the suspects among its
// names. A test's messages are left out.
func ofGo(path string, src []byte) ([]passage, []suspect, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the comments: %w", err)
	}
	var passages []passage
	for _, g := range file.Comments {
		passages = append(passages, paragraphs(linesOf(g, set))...)
	}
	if strings.HasSuffix(path, "_test.go") {
		return passages, nil, nil
	}
	return append(passages, messages(file, set)...), predicates(file, set), nil
}

// sourceLine is one line of a comment or message, without what marks it as one.
type sourceLine struct {
	text string
	line int
}

// linesOf returns the lines of a comment, without directives.
func linesOf(g *ast.CommentGroup, set *token.FileSet) []sourceLine {
	var lines []sourceLine
	for _, c := range g.List {
		at := set.Position(c.Pos()).Line
		if text, ok := strings.CutPrefix(c.Text, "//"); ok {
			if strings.HasPrefix(text, "go:") || strings.HasPrefix(text, "nolint") || strings.HasPrefix(text, "line ") {
				continue
			}
			lines = append(lines, sourceLine{strings.TrimPrefix(text, " "), at})
			continue
		}
		text := strings.TrimSuffix(strings.TrimPrefix(c.Text, "/*"), "*/")
		for i, l := range strings.Split(text, "\n") {
			lines = append(lines, sourceLine{strings.TrimSpace(l), at + i})
		}
	}
	return lines
}

// paragraphs puts lines together until an empty line, an item of a list, or code,
// which is indented and left out.
func paragraphs(lines []sourceLine) []passage {
	var all []passage
	var now passage
	inItem := false
	end := func() {
		if now.text != "" {
			all = append(all, now)
		}
		now = passage{}
	}
	for _, l := range lines {
		text := strings.TrimSpace(l.text)
		indented := strings.HasPrefix(l.text, "\t") || strings.HasPrefix(l.text, "  ")
		item := strings.HasPrefix(text, "- ") || strings.HasPrefix(text, "* ")
		switch {
		case text == "":
			end()
			inItem = false
		case item:
			end()
			inItem = true
			now.add(text[2:], l.line)
		case indented && !inItem:
			end()
		default:
			if !indented && inItem {
				end()
				inItem = false
			}
			now.add(text, l.line)
		}
	}
	end()
	return all
}

// minWords is how many words a string has at least, to be read as a message.
const minWords = 4

// messages returns the strings of a file that are made to be read. What is not a
// constant in them is one word.
func messages(file *ast.File, set *token.FileSet) []passage {
	var all []passage
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil
		case *ast.BinaryExpr:
			if text, ok := concatenated(n); ok {
				all = append(all, message(text, set.Position(n.Pos()).Line)...)
				return false
			}
		case *ast.BasicLit:
			if text, ok := concatenated(n); ok {
				all = append(all, message(text, set.Position(n.Pos()).Line)...)
			}
		}
		return true
	})
	return all
}

// concatenated returns the text of a sum of strings, and whether one was a constant.
func concatenated(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			if s, err := strconv.Unquote(e.Value); err == nil {
				return s, true
			}
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			x, isText := concatenated(e.X)
			y, alsoText := concatenated(e.Y)
			return x + y, isText || alsoText
		}
	}
	return "X", false
}

// message returns the paragraphs of a text that begins at a line, if it is long
// enough to be a message.
func message(text string, line int) []passage {
	if len(strings.Fields(text)) < minWords {
		return nil
	}
	var lines []sourceLine
	for i, l := range strings.Split(text, "\n") {
		lines = append(lines, sourceLine{l, line + i})
	}
	return paragraphs(lines)
}

// predicates returns the functions and fields that are bools and whose names do not
// read as questions.
func predicates(file *ast.File, set *token.FileSet) []suspect {
	var found []suspect
	look := func(kind string, name *ast.Ident) {
		if !isQuestion(name.Name) {
			found = append(found, suspect{line: set.Position(name.Pos()).Line, kind: kindPredicate, text: kind + " " + name.Name})
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if r := n.Type.Results; r != nil && len(r.List) == 1 && len(r.List[0].Names) < 2 && isBool(r.List[0].Type) {
				look("func", n.Name)
			}
		case *ast.StructType:
			for _, f := range n.Fields.List {
				for _, name := range f.Names {
					if isBool(f.Type) {
						look("field", name)
					}
				}
			}
		}
		return true
	})
	return found
}

func isBool(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && name.Name == "bool"
}
