// Package godelve evaluates expressions of Go by Delve, over a thread of ours that has stopped: what needs the runtime's knowledge and arithmetic. Delve reads all debug
// information of the program first. It writes nothing to the target, and calls no function in it.
//
// Delve has no limits of time and depth, and crashes of what is damaged. So it runs in a process of its own, which this program starts of itself (package helper). That is given the open
// file of the program. It asks the tracer for memory of the stopped thread, and is killed if it takes too long.
package godelve

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"strconv"
)

// Why an expression is refused.
var (
	ErrSyntax = errors.New("no expression of Go's")
	ErrShift  = errors.New("shifts to the left by what is no number below 64")
	ErrFloat  = errors.New("compares with a number that is no integer, which Delve rounds: multiply both sides first")
	ErrUnary  = errors.New("negates or complements what is no number, where Delve leaves bits that the type does not have: write 0 - x for -x, and -1 - x for ^x of a signed x")
	ErrCall   = errors.New("calls a function, and none of the target's is called for an expression; len, cap, min, max, real, imag and conversions of types are known")
)

// Check refuses what is no expression, or would call a function. The error matches ErrSyntax, ErrShift, ErrCall, ErrFloat or ErrUnary.
func Check(expr string) error {
	tree, err := parser.ParseExpr(expr)
	if err != nil {
		return fmt.Errorf("%q is %w: %w", expr, ErrSyntax, err)
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.CallExpr:
			if !isHarmless(x) {
				err = fmt.Errorf("%q %w", expr, ErrCall)
			}
		case *ast.BinaryExpr: // the number may take any memory else
			if x.Op == token.SHL && !isSmall(x.Y) {
				err = fmt.Errorf("%q %w", expr, ErrShift)
			}
			if comparisons[x.Op] && (isFraction(x.X) || isFraction(x.Y)) {
				err = fmt.Errorf("%q %w", expr, ErrFloat)
			}
		case *ast.UnaryExpr:
			if _, isNumber := x.X.(*ast.BasicLit); (x.Op == token.SUB || x.Op == token.XOR) && !isNumber {
				err = fmt.Errorf("%q %w", expr, ErrUnary)
			}
		}
		return err == nil
	})
	return err
}

func isSmall(x ast.Expr) bool {
	lit, ok := x.(*ast.BasicLit)
	if !ok {
		return false
	}
	n, err := strconv.ParseUint(lit.Value, 0, 64)
	return err == nil && n < 64
}

var comparisons = map[token.Token]bool{token.EQL: true, token.NEQ: true, token.LSS: true, token.LEQ: true, token.GTR: true, token.GEQ: true}

// isFraction tells of a number, as it is written, that it is no integer.
func isFraction(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.ParenExpr:
		return isFraction(x.X)
	case *ast.UnaryExpr:
		return isFraction(x.X)
	case *ast.BasicLit:
		f, err := strconv.ParseFloat(x.Value, 64)
		return x.Kind == token.FLOAT && (err != nil || f != math.Trunc(f))
	}
	return false
}

// isHarmless tells of a call that it is one of a function that Delve has itself, or may be a conversion. Delve has no way to call another one: see thread.
func isHarmless(call *ast.CallExpr) bool {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return builtins[f.Name]
	case *ast.ParenExpr, *ast.StarExpr, *ast.ArrayType:
		return true
	}
	return false
}

var builtins = map[string]bool{
	"len": true, "cap": true, "min": true, "max": true, "real": true, "imag": true, "complex": true, "bool": true, "string": true, "uintptr": true, "byte": true, "rune": true,
	"int": true, "int8": true, "int16": true, "int32": true, "int64": true, "uint": true, "uint8": true, "uint16": true, "uint32": true, "uint64": true, "float32": true, "float64": true,
}
