package dap_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	protocol "github.com/google/go-dap"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// variables are those of a number, as name=value, and the numbers of those that have parts.
func (e *editor) variables(ref int) (all []string, refs map[string]int) {
	e.t.Helper()
	refs = map[string]int{}
	for _, v := range e.ask("variables", fmt.Sprintf(`{"variablesReference": %d}`, ref)).(*protocol.VariablesResponse).Body.Variables {
		all = append(all, v.Name+"="+v.Value)
		refs[v.Name] = v.VariablesReference
	}
	return all, refs
}

// frames is the stack of a thread.
func (e *editor) frames(tid int) []protocol.StackFrame {
	e.t.Helper()
	return e.ask("stackTrace", fmt.Sprintf(`{"threadId": %d}`, tid)).(*protocol.StackTraceResponse).Body.StackFrames
}

// TestSnapshotsShowWhatWasThere, while the thread has long gone on: stack, arguments, variables with their members. The next hit is shown when the
// first one is dismissed.
func TestSnapshotsShowWhatWasThere(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "places", "-O0"))
	e := attach(t, p, `, "snapshots": true`)
	verified(t, e.set("/src/places.c", `{"line": 23, "condition": "i >= 1", "hitCondition": ">1"}`), 23)
	p.Do("work 5", "sum") // hits of i 1 to 4, of which the first is not due
	stopped := e.event("stopped").(*protocol.StoppedEvent).Body
	if stopped.Reason != "breakpoint" || stopped.AllThreadsStopped || stopped.ThreadId != p.PID() {
		t.Errorf("%+v", stopped)
	}
	stack := e.frames(stopped.ThreadId)
	if len(stack) < 2 || !strings.HasPrefix(stack[0].Name, "work+") || stack[0].Line != 23 || stack[0].Source.Path != "/src/places.c" || !strings.HasPrefix(stack[1].Name, "main+") {
		t.Fatalf("the stack is %+v", stack)
	}
	scopes := e.ask("scopes", fmt.Sprintf(`{"frameId": %d}`, stack[0].Id)).(*protocol.ScopesResponse).Body.Scopes
	names := []string{}
	for _, s := range scopes {
		names = append(names, s.Name)
	}
	if !slices.Equal(names, []string{"Arguments", "Locals", "Registers"}) {
		t.Fatalf("scopes %q", names)
	}
	if args, _ := e.variables(scopes[0].VariablesReference); len(args) != 2 || args[0] != "n=5" || !strings.HasPrefix(args[1], "it=0x") {
		t.Errorf("arguments %q", args)
	}
	locals, refs := e.variables(scopes[1].VariablesReference)
	if want := []string{"sum=7", `own={count: 5, weight: 7, name: "own"}`, "i=2", "part=14"}; !slices.Equal(locals, want) {
		t.Errorf("locals %q, want %q", locals, want)
	}
	if own, _ := e.variables(refs["own"]); !slices.Equal(own, []string{"count=5", "weight=7", `name="own"`}) {
		t.Errorf("members %q", own)
	}
	if regs, _ := e.variables(scopes[2].VariablesReference); len(regs) < 16 || !strings.HasPrefix(regs[0], "%") {
		t.Errorf("registers %q", regs)
	}
	evaluated := func(text string) string {
		return e.ask("evaluate", fmt.Sprintf(`{"expression": %q, "frameId": %d, "context": "hover"}`, text, stack[0].Id)).(*protocol.EvaluateResponse).Body.Result
	}
	if a, b := evaluated("own.weight"), evaluated("n"); a != "7" || b != "5" {
		t.Errorf("own.weight is %s, n is %s", a, b)
	}
	for _, text := range []string{"nope", "own.nope", "i.x", "", "[0]"} {
		e.refused("evaluate", fmt.Sprintf(`{"expression": %q, "frameId": %d}`, text, stack[0].Id))
	}
	if e.ask("scopes", fmt.Sprintf(`{"frameId": %d}`, stack[1].Id)).(*protocol.ScopesResponse).Body.Scopes == nil {
		t.Error("another frame's scopes are no list")
	}

	e.ask("continue", fmt.Sprintf(`{"threadId": %d}`, stopped.ThreadId))
	if text := e.output("console").Output; text != "places.c:23: 2 hits while a snapshot was shown\n" {
		t.Errorf("%q", text)
	}
	e.refused("variables", fmt.Sprintf(`{"variablesReference": %d}`, scopes[1].VariablesReference))
	e.refused("stackTrace", fmt.Sprintf(`{"threadId": %d}`, stopped.ThreadId))
	p.Do("work 3", "sum")
	e.event("stopped")
	e.leave()
	p.CheckClean()
}

// TestSnapshotsOfOtherLanguages: structures, lists and results of Go and C++.
func TestSnapshotsOfOtherLanguages(t *testing.T) {
	for _, c := range []struct{ prog, at, call, scope, want string }{
		{"gosrv", "main.pair", "call 5", "Arguments", `v=5 s="four"`},
		{"gosrv", "main.pair%return", "call 5", "Results", `9 "our"`},
		{"gosrv", "main.(*T).Add", "call 5", "Arguments", "v=5"},
	} {
		p := testprog.Start(t, testprog.Build(t, c.prog))
		e := attach(t, p, `, "snapshots": true`)
		if all := e.setFunctions(`{"name": "` + c.at + `"}`); !all[0].Verified {
			t.Fatalf("%+v", all)
		}
		p.Do(c.call, "ret")
		stopped := e.event("stopped").(*protocol.StoppedEvent).Body
		var got string
		for _, s := range e.ask("scopes", fmt.Sprintf(`{"frameId": %d}`, e.frames(stopped.ThreadId)[0].Id)).(*protocol.ScopesResponse).Body.Scopes {
			if s.Name == c.scope {
				all, _ := e.variables(s.VariablesReference)
				got = strings.Join(all, " ")
			}
		}
		for _, want := range strings.Fields(c.want) {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s are %q, want %q", c.at, c.scope, got, c.want)
			}
		}
		e.leave()
		p.CheckClean()
	}
}
