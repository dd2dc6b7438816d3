package godelve

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"strconv"

	"github.com/go-delve/delve/pkg/proc"
)

// Names of the goroutine's, unless the program has such.
const (
	labelsName    = "labels"    // those of runtime/pprof
	ancestorsName = "ancestors" // the numbers of the goroutines that have made it, the last one first
)

// mostAncestors is how many are listed: the runtime keeps as many as GODEBUG=tracebackancestors says.
const mostAncestors = 32

// ofGoroutine finds labels, labels["KEY"] and ancestors, where Delve has said that the program has no variable of that name. ok is false if expr is none of these.
func (w *worker) ofGoroutine(expr string, missing error) (shown string, json any, ok bool) {
	tree, err := parser.ParseExpr(expr)
	if err != nil {
		return "", nil, false
	}
	name, key := "", ""
	index, isIndex := tree.(*ast.IndexExpr)
	if isIndex {
		lit, isLit := index.Index.(*ast.BasicLit)
		if !isLit || lit.Kind != token.STRING {
			return "", nil, false
		}
		key, _ = strconv.Unquote(lit.Value)
		tree = index.X
	}
	if id, isName := tree.(*ast.Ident); isName {
		name = id.Name
	}
	if missing.Error() != "could not find symbol value for "+name || name != labelsName && (name != ancestorsName || isIndex) {
		return "", nil, false
	}
	g, err := proc.GetG(w.process.thread)
	switch {
	case err != nil || g == nil:
		return "?", nil, true
	case name == ancestorsName:
		shown, json = w.ancestors(g)
	case isIndex:
		if v, has := g.Labels()[key]; has {
			quoted := textOf(v)
			return text(&quoted, 0), v, true
		}
		return "?", nil, true
	default:
		shown, json = labelsText(g.Labels())
	}
	return shown, json, true
}

func labelsText(all map[string]string) (string, any) {
	object, pairs := map[string]any{}, []proc.Variable{}
	for k, v := range all {
		object[k] = v
		pairs = append(pairs, textOf(k), textOf(v))
	}
	return sortedPairs("map[string]string", pairs, int64(len(all)), 0), object
}

func textOf(s string) proc.Variable {
	return proc.Variable{Kind: stringKind, Value: constant.MakeString(s[:min(len(s), mostText)]), Len: int64(len(s))}
}

func (w *worker) ancestors(g *proc.G) (string, any) {
	all, err := proc.Ancestors(w.target, g, mostAncestors)
	if err != nil {
		return "?", nil
	}
	ids, numbers := []proc.Variable{}, []any{}
	for _, a := range all {
		ids = append(ids, proc.Variable{Kind: intKind, Value: constant.MakeInt64(a.ID)})
		numbers = append(numbers, a.ID)
	}
	return list(ids, int64(len(ids)), 0, nil), numbers
}
