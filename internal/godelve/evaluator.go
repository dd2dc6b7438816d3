package godelve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/helper"
)

// How long Delve's process may take. A thread of the target is held for an evaluation, and none while the program is loaded.
const (
	loadTime = time.Minute
	evalTime = 500 * time.Millisecond
)

// ErrEnded is why an Evaluator is of no use any more.
var ErrEnded = errors.New("the process that Delve runs in has ended")

// Evaluator evaluates expressions in one program, by a process of its own. One goroutine uses it at a time.
type Evaluator struct {
	talk    *conversation
	process *helper.Process
	ended   atomic.Bool
	Took    time.Duration // to load
}

// Load has a new process read the debug information of the program at a path, of a process that was loaded with its entry point there. The new
// process ends with ctx, or when it has done what it must not.
func Load(ctx context.Context, path string, pid int, entry arch.Addr) (*Evaluator, error) {
	begun := time.Now()
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the program: %w", err)
	}
	defer f.Close()
	if err := checkFile(f); err != nil {
		return nil, err
	}
	p, err := helper.Start(workName, f)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, p.Kill)
	e := &Evaluator{talk: newConversation(p.Socket), process: p}
	got, err := e.ask(request{Load: &loading{pid, uint64(entry)}}, loadTime, nil)
	if err == nil {
		err = asError(got.Fails)
	}
	if err != nil {
		p.Kill()
		p.Wait()
		return nil, err
	}
	e.Took = time.Since(begun)
	return e, nil
}

// Eval evaluates an expression where a thread stands. It returns the value as text, and for encoding/json. An error tells why there is none; one that
// matches ErrEnded, that there will be none.
func (e *Evaluator) Eval(t Thread, expr string) (shown string, json any, err error) {
	if e.ended.Load() {
		return "?", nil, ErrEnded
	}
	got, err := e.ask(request{Eval: &evaluation{expr, stopOf(t)}}, evalTime, t)
	if err != nil {
		return "?", nil, err
	}
	return got.Shown, got.JSON, asError(got.Fails)
}

// PID is the number of Delve's process.
func (e *Evaluator) PID() int { return e.process.PID() }

// Close ends Delve's process.
func (e *Evaluator) Close() { e.process.Kill() }

// Wait waits for the end of Delve's process.
func (e *Evaluator) Wait() { e.process.Wait() }

// ask sends a request, reads what memory is asked for, and returns the result. After an error, the process is killed.
func (e *Evaluator) ask(r request, limit time.Duration, mem arch.Memory) (*result, error) {
	err := e.talk.file.SetDeadline(time.Now().Add(limit))
	for left := mostPages; err == nil; left-- {
		if err = e.talk.send(r); err != nil {
			break
		}
		var got reply
		if err = e.talk.receive(&got); err != nil {
			break
		}
		switch {
		case got.Result != nil:
			return got.Result, nil
		case got.Read == nil || mem == nil || left <= 0 || got.Read.Size < 0 || got.Read.Size > mostRead:
			err = errors.New("it says what it must not")
		default:
			r = request{Memory: got.Read.in(mem)}
		}
	}
	e.ended.Store(true)
	e.process.Kill()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("it was killed after %v without a result", limit)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("it has crashed, or was killed")
	}
	return nil, fmt.Errorf("%w: %w", ErrEnded, err)
}

// in reads what is asked for.
func (r *reading) in(mem arch.Memory) *memory {
	p := make([]byte, r.Size)
	if err := mem.ReadMemory(arch.Addr(r.Addr), p); err != nil {
		return &memory{Fails: reason(err)}
	}
	return &memory{Bytes: p}
}
