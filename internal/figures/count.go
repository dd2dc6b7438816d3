package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// room holds the counts of one package.
type room struct {
	path       string // directory in the module
	files      []int  // lines of each
	testLines  int
	funcs      []function
	exported   int // constants, variables, types, functions, and methods of exported types
	documented int // of these
	imports    map[string]bool
	fanIn      int // packages of the module that import it
	structs    map[string]*structure
	methods    map[string]int // by type
}

type function struct{ lines, cyclomatic int }

// structure is what a struct consists of. An embedded type is a field, too.
type structure struct{ fields, bools, maps, pointers, embedded int }

// add adds what the whole module has the sum of.
func (r *room) add(o *room) {
	r.files = append(r.files, o.files...)
	r.funcs = append(r.funcs, o.funcs...)
	r.testLines += o.testLines
	r.exported += o.exported
	r.documented += o.documented
}

// count reads the module whose root is dir. Rooms come in the order of their paths.
func count(dir string) ([]*room, error) {
	module, err := modulePath(dir)
	if err != nil {
		return nil, err
	}
	rooms := map[string]*room{}
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != dir && leftOut(d.Name()):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		at, err := filepath.Rel(dir, filepath.Dir(name))
		if err != nil {
			return err
		}
		at = filepath.ToSlash(at)
		if rooms[at] == nil {
			rooms[at] = &room{path: at, imports: map[string]bool{}, structs: map[string]*structure{}, methods: map[string]int{}}
		}
		return rooms[at].file(name, module)
	})
	if err != nil {
		return nil, err
	}
	var all []*room
	for _, r := range rooms {
		for imp := range r.imports {
			if rooms[imp] != nil {
				rooms[imp].fanIn++
			}
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *room) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

// leftOut reports whether the go command, too, sees no package in such a directory.
func leftOut(name string) bool {
	return name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

func modulePath(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(`(?m)^module (\S+)`).FindSubmatch(b)
	if m == nil {
		return "", fmt.Errorf("%s names no module", filepath.Join(dir, "go.mod"))
	}
	return string(m[1]), nil
}

// file counts one file.
func (r *room) file(name, module string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	lines := bytes.Count(text, []byte("\n"))
	switch {
	case ast.IsGenerated(f):
		return nil
	case strings.HasSuffix(name, "_test.go"):
		r.testLines += lines
		return nil
	}
	r.files = append(r.files, lines)
	for _, spec := range f.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		if imp == module {
			r.imports["."] = true
		} else if in, ok := strings.CutPrefix(imp, module+"/"); ok {
			r.imports[path.Clean(in)] = true
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			r.function(fset, d)
		case *ast.GenDecl:
			r.declaration(d)
		}
	}
	return nil
}

func (r *room) function(fset *token.FileSet, d *ast.FuncDecl) {
	of := ""
	if d.Recv != nil && len(d.Recv.List) == 1 {
		of = receiver(d.Recv.List[0].Type)
		r.methods[of]++
	}
	if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(of)) {
		r.export(d.Doc != nil)
	}
	if d.Body != nil {
		n := fset.Position(d.End()).Line - fset.Position(d.Pos()).Line + 1
		r.funcs = append(r.funcs, function{lines: n, cyclomatic: cyclomatic(d)})
	}
}

func (r *room) export(documented bool) {
	r.exported++
	if documented {
		r.documented++
	}
}

// receiver is the name of the type that t, *T or T[P], is about.
func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.ParenExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// declaration counts types, constants and variables. A comment on a block is about
// all that stands in it.
func (r *room) declaration(d *ast.GenDecl) {
	block := d.Doc != nil
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() {
				r.export(block || spec.Doc != nil || spec.Comment != nil)
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				r.structs[spec.Name.Name] = structureOf(s)
			}
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				if name.IsExported() {
					r.export(block || spec.Doc != nil || spec.Comment != nil)
				}
			}
		}
	}
}

func structureOf(t *ast.StructType) *structure {
	s := &structure{}
	for _, f := range t.Fields.List {
		n := len(f.Names)
		if n == 0 {
			n = 1
			s.embedded++
		}
		s.fields += n
		switch t := f.Type.(type) {
		case *ast.Ident:
			if t.Name == "bool" {
				s.bools += n
			}
		case *ast.MapType:
			s.maps += n
		case *ast.StarExpr:
			s.pointers += n
		}
	}
	return s
}

// cyclomatic is one more than the places in d at which it may go two ways. What
// function literals in it do counts as its own.
func cyclomatic(d *ast.FuncDecl) int {
	n := 1
	ast.Inspect(d, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if node.List != nil {
				n++
			}
		case *ast.CommClause:
			if node.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}
