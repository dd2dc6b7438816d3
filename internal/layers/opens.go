package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
)

// openers are the functions that open, or look at, a file by its name.
var openers = map[string]*regexp.Regexp{
	"os":                         regexp.MustCompile(`^(Open|OpenFile|OpenInRoot|OpenRoot|ReadFile|WriteFile|ReadDir|Stat|Lstat|Readlink|DirFS|CopyFS|Create|CreateTemp|MkdirTemp|Truncate|Chdir|Chmod|Chown|Lchown|Chtimes|Mkdir|MkdirAll|Remove|RemoveAll|Rename|Link|Symlink)$`),
	"io/ioutil":                  regexp.MustCompile(`^(Read|Write|Temp)`),
	"syscall":                    regexp.MustCompile(`^(Open|Openat|Stat|Lstat|Readlink|Truncate|Chdir|Chroot|Mkdir|Unlink|Rename|Mknod)`),
	"golang.org/x/sys/unix":      regexp.MustCompile(`^(Open|Openat|Openat2|OpenTree|Stat|Lstat|Fstatat|Statx|Statfs|Readlink|Readlinkat|Access|Faccessat|Faccessat2|NameToHandleAt|OpenByHandleAt|Truncate|Chdir|Chroot|PivotRoot|Mkdir|Mkdirat|Unlink|Unlinkat|Rename|Renameat|Renameat2|Mknod|Mknodat|Mount|Unmount|Setxattr|Getxattr|InotifyAddWatch|FanotifyMark)$`),
	"debug/elf":                  regexp.MustCompile(`^Open$`),
	"debug/buildinfo":            regexp.MustCompile(`^ReadFile$`),
	"path/filepath":              regexp.MustCompile(`^(Glob|Walk|WalkDir|EvalSymlinks)$`),
	"golang.org/x/exp/mmap":      regexp.MustCompile(`^Open$`),
	"github.com/cilium/ebpf/btf": regexp.MustCompile(`^LoadSpec`),
}

// Opens lists the calls in the package that open or look at files by name, as "file:line: name".
func Opens(p Package) ([]string, error) {
	var calls []string
	for _, name := range p.GoFiles {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		local := map[string]*regexp.Regexp{}
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil || openers[imp] == nil {
				continue
			}
			as := path.Base(imp)
			if spec.Name != nil {
				as = spec.Name.Name
			}
			local[as] = openers[imp]
		}
		ast.Inspect(f, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && local[x.Name] != nil && local[x.Name].MatchString(sel.Sel.Name) {
				calls = append(calls, fmt.Sprintf("%s:%d: %s.%s", name, fset.Position(sel.Pos()).Line, x.Name, sel.Sel.Name))
			}
			return true
		})
	}
	return calls, nil
}
