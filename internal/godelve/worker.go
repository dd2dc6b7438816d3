package godelve

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/go-delve/delve/pkg/proc"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/helper"
	"github.com/gokprobe/gokprobe/symbols/walk"
)

// workName is what the process is called that Delve runs in.
const workName = "gokprobe-delve"

// Limits of that process: how much more it maps than a Go program does when it starts, and how deep its calls are, in bytes.
const (
	mostMapped = 1 << 30
	mostStack  = 64 << 20
)

func init() { helper.Register(workName, work) }

// programFile is the program in that process, which has been given it open.
const programFile = "/proc/self/fd/4"

// work is what that process does until the tracer, or the conversation, ends.
func work() {
	debug.SetMaxStack(mostStack)
	if helper.Confine(mostMapped) != nil {
		return
	}
	w := &worker{conversation: newConversation(helper.Socket())}
	for {
		var r request
		if w.receive(&r) != nil {
			return
		}
		var answer result
		switch {
		case r.Load != nil:
			answer.Fails = reason(w.load(*r.Load))
		case r.Eval != nil && w.target != nil:
			shown, json, err := w.eval(r.Eval)
			answer = result{shown, json, reason(err)}
		default:
			return
		}
		if w.send(reply{Result: &answer}) != nil {
			return
		}
	}
}

type worker struct {
	*conversation
	process *process
	target  *proc.Target
}

func (w *worker) load(l loading) (err error) {
	defer caught(&err)
	if err := checkDebugInfo(programFile); err != nil {
		return err
	}
	p := newProcess(proc.NewBinaryInfo("linux", runtime.GOARCH, true), arch.Addr(l.Entry))
	_, add := proc.NewGroup(nil, proc.NewTargetGroupConfig{})
	target, err := add(p, l.PID, p.thread, programFile, proc.StopUnknown, "")
	if err != nil {
		return fmt.Errorf("loading Delve: %w", err)
	}
	if err := helper.OpenNoMore(); err != nil {
		return err
	}
	w.process, w.target = p, target
	return nil
}

// caught makes an error of a panic: what Delve reads is the target's.
func caught(err *error) {
	if x := recover(); x != nil {
		*err = fmt.Errorf("it is too damaged for Delve: %v", x)
	}
}

// mostPages is how many pages are read for one expression.
const mostPages = 1 << 10

func (w *worker) eval(e *evaluation) (shown string, json any, err error) {
	defer func() {
		if err != nil {
			shown, json = "?", nil
		}
	}()
	defer caught(&err)
	thread := w.process.thread
	thread.of, thread.pages = &e.Stop, &walk.Pages{Mem: far{w.conversation}, Left: mostPages}
	defer func() { thread.of, thread.pages = nil, nil }()
	w.target.ClearCaches()
	scope, err := proc.GoroutineScope(w.target, thread)
	if err != nil {
		if scope, err = proc.ThreadScope(w.target, thread); err != nil {
			return "", nil, err
		}
	}
	if err := checkPieces(scope, e.Expr); err != nil {
		return "", nil, err
	}
	v, err := scope.EvalExpression(e.Expr, proc.LoadConfig{MaxVariableRecurse: 2, MaxStringLen: mostText, MaxArrayValues: mostElements, MaxStructFields: 64, MaxMapBuckets: 1 << 12})
	if err != nil {
		if shown, json, ok := w.ofGoroutine(e.Expr, err); ok {
			return shown, json, nil
		}
		return "", nil, err
	}
	shown, json = value(v)
	return shown, json, nil
}

// far is the target's memory, which the tracer reads for us.
type far struct{ *conversation }

// ReadMemory implements arch.Memory.
func (f far) ReadMemory(at arch.Addr, p []byte) error {
	var r request
	if f.send(reply{Read: &reading{uint64(at), len(p)}}) != nil || f.receive(&r) != nil || r.Memory == nil {
		os.Exit(1)
	}
	if err := asError(r.Memory.Fails); err != nil {
		return err
	}
	copy(p, r.Memory.Bytes)
	return nil
}

// WriteMemory implements arch.Memory: nothing is written.
func (f far) WriteMemory(at arch.Addr, _ []byte) error {
	return &arch.FaultError{Addr: at, Write: true}
}
