package script

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.starlark.net/lib/json"
	"go.starlark.net/lib/math"
	startime "go.starlark.net/lib/time"
	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// textPerStep is how many bytes of text cost as much as a step.
const textPerStep = 16

// predeclared is what all files of the scenario see, beside Starlark's own.
func (s *Script) predeclared() starlark.StringDict {
	args := make([]starlark.Value, len(s.o.Args))
	for i, a := range s.o.Args {
		args[i] = starlark.String(a)
	}
	all := starlark.StringDict{
		"args": starlark.NewList(args), "state": state{starlark.NewDict(8)}, "target": target{s, nil},
		"random": (&random{seed: s.o.Seed}).module(),
		"json":   json.Module, "math": math.Module, "time": timeModule(),
		"struct": starlark.NewBuiltin("struct", starlarkstruct.Make),
	}
	for name, f := range map[string]func(*starlark.Thread, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error){
		"kprobe": s.newKprobe, "kretprobe": s.newKretprobe, "inject": s.newInjection,
		"after": s.newTimer, "every": s.newTimer, "phase": s.setPhase, "stop": s.stop,
		"counter": s.newCounter, "report": s.report,
		"expect": s.expect, "fail": s.fail, "test": s.newTest, "at_end": s.addEnd, "on_exit": s.addEnd,
		"symbol": s.symbol, "signed": signed, "targets": s.targets,
	} {
		all[name] = s.guarded(starlark.NewBuiltin(name, f), true)
	}
	s.guards(all)
	return all
}

// timeModule is Starlark's time without the clock: a scenario that asks for the time of day
// is not the same twice. ctx.time is when a hit was.
func timeModule() *starlarkstruct.Module {
	m := &starlarkstruct.Module{Name: "time", Members: starlark.StringDict{}}
	for name, v := range startime.Module.Members {
		if name != "now" {
			m.Members[name] = v
		}
	}
	return m
}

// setPhase is phase(name): later events belong to it.
func (s *Script) setPhase(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var name string
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "name", &name); err != nil {
		return nil, err
	}
	s.phase = name
	s.log(slog.LevelInfo, "phase: %s", name)
	return starlark.None, nil
}

// addEnd is at_end(f), or on_exit(f): f is called when the session is over, the last one first.
func (s *Script) addEnd(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var fn starlark.Callable
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "f", &fn); err != nil {
		return nil, err
	}
	if s.ended {
		return nil, errors.New(b.Name() + ": the session is over")
	}
	s.atEnd = append(s.atEnd, fn)
	return starlark.None, nil
}

// report is report(…, name=value …): a line of the output.
func (s *Script) report(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = text(a)
	}
	e := Entry{Time: time.Now(), Phase: s.phase, Text: strings.Join(words, " ")}
	for _, kw := range kwargs {
		name, _ := starlark.AsString(kw[0])
		e.Values = append(e.Values, Named{Name: name, Text: text(kw[1]), JSON: toJSON(kw[1], maxDepth)})
	}
	if s.o.Report != nil {
		s.o.Report(e)
	}
	return starlark.None, nil
}

// maxDepth is how deep lists and dicts are written in JSON; deeper ones are text.
const maxDepth = 8

// symbol is symbol(name, default=): the address of a function or variable.
func (s *Script) symbol(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var name string
	var otherwise starlark.Value
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "name", &name, "default?", &otherwise); err != nil {
		return nil, err
	}
	at, err := s.address(starlark.String(name))
	if err != nil {
		return orElse(otherwise, fmt.Errorf("symbol: %w", err))
	}
	return starlark.MakeUint64(uint64(at)), nil
}

// target is target: the process of the hit, or the only one; or one of targets().
type target struct {
	s  *Script
	of *Process // nil for target
}

var errNoOneTarget = errors.New("target: outside of handlers no process is the one; targets() lists them all")

func (t target) String() string {
	if p, err := t.process(); err == nil {
		return fmt.Sprintf("<process %d>", p.PID)
	}
	return "<the process of a hit>"
}
func (target) Type() string          { return "target" }
func (target) Freeze()               {}
func (target) Truth() starlark.Bool  { return true }
func (target) Hash() (uint32, error) { return 0, errors.New("unhashable type: target") }
func (target) AttrNames() []string   { return []string{"exit_status", "name", "pid"} }

func (t target) process() (*Process, error) {
	if t.of != nil {
		return t.of, nil
	}
	if m := t.s.present(); m != nil {
		return m.process, nil
	}
	return nil, errNoOneTarget
}

// Attr implements starlark.HasAttrs. exit_status is None before the end, and if the process
// lives on.
func (t target) Attr(name string) (starlark.Value, error) {
	p, err := t.process()
	if err != nil {
		return nil, err
	}
	switch name {
	case "pid":
		return starlark.MakeInt(p.PID), nil
	case "name":
		if t.s.several() {
			return starlark.String(p.Comm), nil // its number may be another's by now
		}
		comm, err := procfs.Comm(p.PID, 0)
		if err != nil {
			return starlark.None, nil
		}
		return starlark.String(comm), nil
	case "exit_status":
		if !p.Exited {
			return starlark.None, nil
		}
		return starlark.MakeInt(p.Status), nil
	}
	return nil, nil
}

// targets is targets(): all processes that have joined, in their order.
func (s *Script) targets(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if err := starlark.UnpackArgs(b.Name(), args, kwargs); err != nil {
		return nil, err
	}
	all := make([]starlark.Value, len(s.processes))
	for i, p := range s.processes {
		all[i] = target{s, p}
	}
	return starlark.NewList(all), s.running.charge(uint64(len(all)))
}

// charge takes steps for work that the interpreter does not count.
func (c *hitContext) charge(steps uint64) error { return c.script.running.charge(steps) }
