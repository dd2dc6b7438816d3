package layers

import (
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// promised are the packages whose exported names people may rely on.
var promised = []string{"kprobes", "trace", "expr/*", "values", "program", "symbols", "inject", "inject/*", "script", "lang", "record", "arch"}

// noPromise is what every other package that can be imported says of itself.
const noPromise = "Not part of the public promise: any version may change it."

// frontLines is how long the text of a package may be, as go doc prints it. What its own readers need besides is a comment below the package clause.
const frontLines = 15

// TestFrontsAreShortAndTellWhatIsPromised: go doc of what people are to use shows its functions on the first screen.
func TestFrontsAreShortAndTellWhatIsPromised(t *testing.T) {
	fronts := 0
	for _, p := range goList(t, "GOOS=linux", "GOARCH=amd64") {
		room := strings.TrimPrefix(p.ImportPath, Module+"/")
		if top, _, _ := strings.Cut(room, "/"); slices.Contains([]string{"internal", "cmd", "examples"}, top) || room == Module {
			continue
		}
		fronts++
		front := frontOf(t, p)
		switch lines := strings.Count(front, "\n"); {
		case lines == 0:
			t.Errorf("%s says nothing of itself", room)
		case !isPromised(room) && !strings.Contains(strings.Join(strings.Fields(front), " "), noPromise):
			t.Errorf("%s does not say %q", room, noPromise)
		case lines > frontLines:
			t.Errorf("the front of %s has %d lines, %d at most:\n%s", room, lines, frontLines, front)
		}
	}
	if fronts < 20 {
		t.Errorf("only %d packages were looked at", fronts)
	}
}

func isPromised(room string) bool {
	return slices.ContainsFunc(promised, func(pattern string) bool { ok, _ := path.Match(pattern, room); return ok })
}

// frontOf is the package's documentation as go doc prints it.
func frontOf(t *testing.T, p Package) string {
	t.Helper()
	var front string
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		front += textOf(f.Doc)
	}
	return front
}

func textOf(doc *ast.CommentGroup) string {
	if doc == nil {
		return ""
	}
	parsed := new(comment.Parser).Parse(doc.Text())
	return string((&comment.Printer{TextWidth: 80}).Text(parsed))
}
