package dap_test

import (
	"fmt"
	"strings"
	"testing"

	protocol "github.com/google/go-dap"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestBreakpointsThatCannotBeSaySo, each for itself: the others are armed.
func TestBreakpointsThatCannotBeSaySo(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "places", "-O0"))
	e := attach(t, p, "")
	wants := []struct{ point, says string }{
		{`{"line": 23}`, "would halt the program"},
		{`{"line": 23, "logMessage": "{i"}`, "brace is not closed"},
		{`{"line": 23, "logMessage": "{nope}"}`, "nope"},
		{`{"line": 23, "logMessage": "x", "condition": "i >"}`, "filter"},
		{`{"line": 23, "logMessage": "x", "condition": "nope > 1"}`, "nope"},
		{`{"line": 23, "logMessage": "x", "hitCondition": "often"}`, "hit condition \"often\""},
		{`{"line": 23, "logMessage": "x", "hitCondition": "%0"}`, "hit condition"},
		{`{"line": 9000, "logMessage": "x"}`, "9000"},
		{`{"line": -1, "logMessage": "x"}`, ""},
		{`{"line": 23, "logMessage": "{i}"}`, ""},
	}
	var list []string
	for _, w := range wants {
		list = append(list, w.point)
	}
	for i, b := range e.set("/x/places.c", strings.Join(list, ",")) {
		if ok := i == len(wants)-1; b.Verified != ok || !strings.Contains(b.Message, wants[i].says) || !ok && b.Message == "" {
			t.Errorf("%s: verified %t: %s", wants[i].point, b.Verified, b.Message)
		}
	}
	for _, c := range []struct{ name, says string }{
		{"nope", "would halt"}, {`nope \"x\"`, "nope"}, {`work \"x\" unless`, "Behind the text"}, {`work \"{n}\" if n > 1`, ""}, {"", "would halt"}, {`\"x\"`, "begins with a place"},
	} {
		if b := e.setFunctions(`{"name": "` + c.name + `"}`)[0]; b.Verified != (c.says == "") || !strings.Contains(b.Message, c.says) {
			t.Errorf("%s: verified %t: %s", c.name, b.Verified, b.Message)
		}
	}
	if b := e.set("/x/unheard_of.c", `{"line": 1, "logMessage": "x"}`)[0]; b.Verified || !strings.Contains(b.Message, "unheard_of.c") {
		t.Errorf("%+v", b)
	}
	// A line without code stands for the next one.
	if b := e.set("/x/places.c", `{"line": 25, "logMessage": "x"}`)[0]; !b.Verified || b.Line == 25 || !strings.Contains(b.Message, fmt.Sprint(b.Line)) {
		t.Errorf("%+v", b)
	}
	e.leave()
	p.CheckClean()
}

// TestRequestsThatCannotBeDoneSaySo, and the conversation goes on.
func TestRequestsThatCannotBeDoneSaySo(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "places", "-O0"))
	e := meet(t, adapter())
	for _, c := range []struct{ command, arguments, says string }{
		{"threads", "", "no process is attached"},
		{"setBreakpoints", `{"source": {"path": "x.c"}}`, "no process is attached"},
		{"attach", `{}`, "no process is named"},
		{"attach", `{"pid": -4}`, "no process ID"},
		{"attach", `{"pid": true}`, "no process ID"},
		{"attach", `{"pid": 1, "rate": -1}`, "rate"},
		{"attach", `[]`, "arguments"},
		{"launch", `{"program": "x"}`, "attach"},
		{"nonsense", "", `"nonsense"`},
		{"initialize", `{"pathFormat": "uri"}`, "uri"},
	} {
		if got := e.refused(c.command, c.arguments); !strings.Contains(got, c.says) {
			t.Errorf("%s %s: %s", c.command, c.arguments, got)
		}
	}
	able := e.ask("initialize", `{"adapterID": "x", "linesStartAt1": false}`).(*protocol.InitializeResponse).Body
	if !able.SupportsLogPoints || able.SupportsTerminateRequest || able.SupportTerminateDebuggee {
		t.Errorf("%+v", able)
	}
	e.ask("attach", fmt.Sprintf(`{"pid": "%d"}`, p.PID()))
	verified(t, e.set("places.c", `{"line": 22, "logMessage": "{i}"}`), 22) // line 23, counted from 0
	for _, c := range []struct{ command, arguments, says string }{
		{"attach", fmt.Sprintf(`{"pid": %d}`, p.PID()), "disconnect first"},
		{"next", `{"threadId": 1}`, "never holds"},
		{"stepIn", `{"threadId": 1}`, "never holds"},
		{"pause", `{"threadId": 1}`, "never holds"},
		{"stackTrace", `{"threadId": 1}`, "runs"},
		{"scopes", `{"frameId": 1}`, "not shown"},
		{"variables", `{"variablesReference": 0}`, "not shown"},
		{"evaluate", `{"expression": "i"}`, "runs"},
		{"terminate", "", `"terminate"`},
		{"readMemory", `{"memoryReference": "0", "count": 1}`, `"readMemory"`},
		{"setBreakpoints", `{"source": {"name": "x.c"}}`, "path"},
		{"setBreakpoints", `{"source": 5}`, "arguments"},
	} {
		if got := e.refused(c.command, c.arguments); !strings.Contains(got, c.says) {
			t.Errorf("%s %s: %s", c.command, c.arguments, got)
		}
	}
	e.ask("setExceptionBreakpoints", `{"filters": []}`)
	if threads := e.ask("threads", "").(*protocol.ThreadsResponse).Body.Threads; len(threads) != 1 || threads[0].Id != p.PID() || threads[0].Name != "places" {
		t.Errorf("%+v", threads)
	}
	p.Do("work 1", "sum")
	if out := e.line(); out.Output != "0\n" || out.Line != 22 {
		t.Errorf("%+v", out)
	}
	e.leave()
	p.CheckClean()
}

// TestAProgramThatEndsIsToldOf, with the lines from before.
func TestAProgramThatEndsIsToldOf(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "places", "-O0"))
	e := attach(t, p, "")
	verified(t, e.set("places.c", `{"line": 28, "logMessage": "{n}"}`), 28)
	p.Do("work 1", "sum")
	if got := p.Quit(); got != "right" {
		t.Errorf("the program says %q", got)
	}
	if got := e.line().Output; got != "5\n" {
		t.Errorf("%q", got)
	}
	if code := e.event("exited").(*protocol.ExitedEvent).Body.ExitCode; code != 0 {
		t.Errorf("exit status %d", code)
	}
	e.event("terminated")
	if b := e.set("places.c", `{"line": 23, "logMessage": "{n}"}`)[0]; b.Verified || b.Message == "" {
		t.Errorf("%+v", b)
	}
	e.leave()
}

// TestAClientThatDoesNotReadHoldsNobody: what can't be sent is counted and told.
func TestAClientThatDoesNotReadHoldsNobody(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "gosrv"))
	e := attach(t, p, `, "rate": 0`)
	text := strings.Repeat("long ", 100)
	if b := e.setFunctions(`{"name": "main.target \"{v} ` + text + `\""}`)[0]; !b.Verified {
		t.Fatal(b.Message)
	}
	p.Do("threads 4 5000", "sum")
	if told := e.output("important").Output; !strings.Contains(told, "did not read") {
		t.Errorf("%q", told)
	}
	e.leave()
	p.CheckClean()
}

// TestLinesBeyondTheRateAreCounted.
func TestLinesBeyondTheRateAreCounted(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "gosrv"))
	e := attach(t, p, `, "rate": 5`)
	e.setFunctions(`{"name": "main.target \"{v}\""}`)
	p.Do("threads 1 1000", "sum")
	if told := e.output("important").Output; !strings.HasPrefix(told, "main.target: ") || !strings.HasSuffix(told, "lines not printed, since they were more than 5 a second\n") {
		t.Errorf("%q", told)
	}
	e.leave()
	p.CheckClean()
}
