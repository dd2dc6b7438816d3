// Package godelve evaluates expressions of Go by Delve, over a thread of ours that has stopped: what needs the runtime's knowledge and arithmetic. Delve reads all debug
// information of the program first. It writes nothing to the target, and calls no function in it.
package godelve

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"runtime"
	"strconv"
	"time"

	"github.com/go-delve/delve/pkg/proc"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/symbols/walk"
)

// Why an expression is refused.
var (
	ErrSyntax = errors.New("no expression of Go's")
	ErrShift  = errors.New("shifts to the left by what is no number below 64")
	ErrCall   = errors.New("calls a function, and none of the target's is called for an expression; len, cap, min, max, real, imag and conversions of types are known")
)

// Evaluator evaluates expressions in one program. One goroutine uses it at a time.
type Evaluator struct {
	process *process
	target  *proc.Target
	Took    time.Duration // to load
}

// Load reads the debug information of the program at a path, of a process that was loaded with its entry point there.
func Load(path string, pid int, entry arch.Addr) (e *Evaluator, err error) {
	defer caught(&err)
	begun := time.Now()
	if err := checkFile(path); err != nil {
		return nil, err
	}
	p := newProcess(proc.NewBinaryInfo("linux", runtime.GOARCH, true), entry)
	_, add := proc.NewGroup(nil, proc.NewTargetGroupConfig{})
	target, err := add(p, pid, p.thread, path, proc.StopUnknown, "")
	if err != nil {
		return nil, fmt.Errorf("loading Delve: %w", err)
	}
	return &Evaluator{process: p, target: target, Took: time.Since(begun)}, nil
}

// caught makes an error of a panic: what Delve reads is the target's.
func caught(err *error) {
	if x := recover(); x != nil {
		*err = fmt.Errorf("it is too damaged for Delve: %v", x)
	}
}

// Check refuses what is no expression, or would call a function. The error matches ErrSyntax, ErrShift or ErrCall.
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

// mostPages is how many pages are read for one expression.
const mostPages = 1 << 10

// Eval evaluates an expression where a thread stands. It returns the value as text, and for encoding/json. An error tells why there is none.
func (e *Evaluator) Eval(t Thread, expr string) (shown string, json any, err error) {
	defer caught(&err)
	thread := e.process.thread
	thread.of, thread.pages = t, &walk.Pages{Mem: t, Left: mostPages}
	defer func() { thread.of, thread.pages = nil, nil }()
	e.target.ClearCaches()
	scope, err := proc.GoroutineScope(e.target, thread)
	if err != nil {
		if scope, err = proc.ThreadScope(e.target, thread); err != nil {
			return "?", nil, err
		}
	}
	v, err := scope.EvalExpression(expr, proc.LoadConfig{MaxVariableRecurse: 2, MaxStringLen: mostText, MaxArrayValues: mostElements, MaxStructFields: 64, MaxMapBuckets: 1 << 12})
	if err != nil {
		if shown, json, ok := e.ofGoroutine(expr); ok {
			return shown, json, nil
		}
		return "?", nil, err
	}
	shown, json = value(v)
	return shown, json, nil
}
