// Package layers holds the code to the import table of ARCHITECTURE.md. Its test fails
// when a room imports what its row does not allow, when a room has no row, when a row
// has no room, and when a row allows an import that its rooms do not use. It also fails
// where a room outside of arch names something of one processor, such as a register.
package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Module is the import path of the project.
const Module = "github.com/gokprobe/gokprobe"

// A Row is one line of the import table.
type Row struct {
	Room    string   // directory, or a pattern of path.Match
	Rooms   []string // rooms that it may import
	Outside []string // modules, or packages in them, that it may import
	Pure    bool     // no system call, no build constraint
}

// A Package is what go list says of one package; its tests are not looked at.
type Package struct {
	ImportPath string
	Dir        string
	Imports    []string
	GoFiles    []string
	CgoFiles   []string
}

// Table reads the import table: the first Markdown table whose heading row starts
// with "room | may import".
func Table(markdown string) ([]Row, error) {
	var rows []Row
	in := false
	for line := range strings.Lines(markdown) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case len(cells) == 4 && cells[0] == "room" && cells[1] == "may import":
			in = true
		case !in || strings.HasPrefix(cells[0], "--"):
		case len(cells) != 4 && len(rows) > 0:
			return rows, nil
		case len(cells) != 4 || cells[3] != "" && cells[3] != "pure":
			return nil, fmt.Errorf("import table: malformed row %q", line)
		default:
			rows = append(rows, Row{Room: strings.Trim(cells[0], "`"), Rooms: names(cells[1]), Outside: names(cells[2]), Pure: cells[3] == "pure"})
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("no import table found")
	}
	return rows, nil
}

// names splits a cell at commas and takes off code marks.
func names(cell string) []string {
	var all []string
	for n := range strings.SplitSeq(cell, ",") {
		all = append(all, strings.Trim(n, " `"))
	}
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

// Violations lists, one sentence each, where packages and table disagree.
func Violations(table []Row, packages []Package) []string {
	var bad []string
	used := make([]bool, len(table))
	for _, p := range packages {
		room := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, Module), "/")
		i := slices.IndexFunc(table, func(r Row) bool { ok, _ := path.Match(r.Room, room); return ok })
		if i < 0 {
			bad = append(bad, fmt.Sprintf("%s has no row in the import table", room))
			continue
		}
		used[i] = true
		for _, imp := range p.Imports {
			if why := table[i].forbids(imp); why != "" {
				bad = append(bad, fmt.Sprintf("%s imports %s: %s", room, imp, why))
			}
		}
		if len(p.CgoFiles) > 0 {
			bad = append(bad, room+" uses cgo")
		}
	}
	for i, r := range table {
		if !used[i] {
			bad = append(bad, fmt.Sprintf("%s has a row in the import table, but no code", r.Room))
		}
	}
	return bad
}

const xsys = "golang.org/x/sys"

// forbids says why r's room may not import the package imp, or nothing.
func (r Row) forbids(imp string) string {
	if room, ok := strings.CutPrefix(imp, Module+"/"); ok {
		if !slices.ContainsFunc(r.Rooms, func(p string) bool { ok, _ := path.Match(p, room); return ok }) {
			return "its row does not list that room"
		}
		return ""
	}
	if r.Pure && slices.Contains([]string{"os", "net", "plugin", "runtime"}, firstElement(imp)) {
		return "the room is pure"
	}
	// Whether x/sys is only used for constants is a question to the source.
	if strings.Contains(firstElement(imp), ".") && !within(imp, xsys) && !slices.ContainsFunc(r.Outside, func(m string) bool { return within(imp, m) }) {
		return "its row does not list that module"
	}
	return ""
}

func firstElement(imp string) string { first, _, _ := strings.Cut(imp, "/"); return first }

// within reports whether imp is the package or lies in the module m.
func within(imp, m string) bool { return imp == m || strings.HasPrefix(imp, m+"/") }

// MayCallKernel reports whether r's room may use all of x/sys and package syscall.
// The others may only name their constants and types.
func (r Row) MayCallKernel() bool { return slices.Contains(r.Outside, xsys) }

// harmless are the names of x/sys/unix and syscall that need no system call:
// constants, and these types and tables.
var harmless = regexp.MustCompile(`^([A-Z][A-Z0-9_]*|Errno|Signal|Stat_t|SysProcAttr|Credential|SignalName|SignalNum|ErrnoName)$`)

// KernelCalls lists the uses of x/sys/unix and syscall in the package that are not
// harmless, as "file:line: name".
func KernelCalls(p Package) ([]string, error) {
	var calls []string
	for _, name := range p.GoFiles {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		local := kernelImports(f)
		ast.Inspect(f, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && local[x.Name] && !harmless.MatchString(sel.Sel.Name) {
				calls = append(calls, fmt.Sprintf("%s:%d: %s.%s", name, fset.Position(sel.Pos()).Line, x.Name, sel.Sel.Name))
			}
			return true
		})
	}
	return calls, nil
}

// kernelImports are the names under which f imports x/sys/unix and syscall.
func kernelImports(f *ast.File) map[string]bool {
	local := map[string]bool{}
	for _, spec := range f.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil || imp != "syscall" && !within(imp, xsys) {
			continue
		}
		name := path.Base(imp)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		local[name] = true
	}
	return local
}
