package godelve

import (
	"fmt"
	"go/ast"
	"go/parser"
	"strings"

	"github.com/go-delve/delve/pkg/proc"
)

// checkPieces refuses an expression that names a variable of which the compiler has kept parts only. Delve takes the others to be zero, and does not tell.
func checkPieces(scope *proc.EvalScope, expr string) error {
	tree, err := parser.ParseExpr(expr)
	if err != nil {
		return err
	}
	for name := range variables(tree) {
		v, err := scope.EvalExpression(name, proc.LoadConfig{})
		if err == nil && v.LocationExpr != nil && isPartial(v.LocationExpr.String()) {
			return fmt.Errorf("parts of %s are optimized away here", name)
		}
	}
	return nil
}

// variables are the names that may be of variables: those behind a point are of members.
func variables(tree ast.Expr) map[string]bool {
	all := map[string]bool{}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.SelectorExpr:
			for name := range variables(x.X) {
				all[name] = true
			}
			return false
		case *ast.Ident:
			all[x.Name] = true
		}
		return true
	})
	return all
}

// isPartial tells of a location, as Delve prints it, that it has a piece without a place.
func isPartial(location string) bool {
	const operation, piece = "DW_OP_", "DW_OP_piece"
	placed, words := false, strings.Fields(location)
	for i, word := range words {
		switch {
		case word == piece && !placed && (i+1 == len(words) || words[i+1] != "0x0"):
			return true
		case word == piece:
			placed = false
		case strings.HasPrefix(word, operation):
			placed = true
		}
	}
	return false
}
