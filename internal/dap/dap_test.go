package dap_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	protocol "github.com/google/go-dap"

	"github.com/gokprobe/gokprobe/internal/dap"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

func TestMain(m *testing.M) {
	kprobes.GuardianMain()
	os.Exit(m.Run())
}

// adapter attaches by number.
func adapter() dap.Adapter {
	return dap.Adapter{Attach: func(_ context.Context, a dap.Target, _ func(string)) (dap.Session, error) {
		pid, err := strconv.Atoi(a.Process)
		if err != nil {
			return nil, err
		}
		s, err := trace.Attach(context.Background(), pid)
		if err != nil {
			return nil, err
		}
		return dap.Hold(s), nil
	}}
}

// editor is the client's side of a conversation, with the library's own framing.
type editor struct {
	t     *testing.T
	conn  net.Conn
	in    *bufio.Reader
	seq   int
	kept  []protocol.Message // events that nobody has asked for yet
	ended chan error         // what Serve returned
}

// meet begins a conversation.
func meet(t *testing.T, a dap.Adapter) *editor {
	t.Helper()
	ours, theirs := net.Pipe()
	e := &editor{t: t, conn: ours, in: bufio.NewReader(ours), ended: make(chan error, 1)}
	go func() {
		err := a.Serve(t.Context(), theirs)
		_ = theirs.Close()
		e.ended <- err
	}()
	t.Cleanup(func() { _ = ours.Close() })
	return e
}

// attach meets, and attaches with more arguments.
func attach(t *testing.T, p *testprog.Prog, more string) *editor {
	t.Helper()
	e := meet(t, adapter())
	e.ask("initialize", `{"adapterID": "gokprobe", "linesStartAt1": true, "pathFormat": "path"}`)
	e.ask("attach", `{"pid": `+strconv.Itoa(p.PID())+more+`}`)
	e.event("initialized")
	return e
}

// send sends a request with arguments in JSON.
func (e *editor) send(command, arguments string) {
	e.t.Helper()
	e.seq++
	m := map[string]any{"seq": e.seq, "type": "request", "command": command}
	if arguments != "" {
		m["arguments"] = json.RawMessage(arguments)
	}
	content, err := json.Marshal(m)
	if err != nil {
		e.t.Fatal(err)
	}
	if err := protocol.WriteBaseMessage(e.conn, content); err != nil {
		e.t.Fatal(err)
	}
}

// next is the next message that comes.
func (e *editor) next() protocol.Message {
	e.t.Helper()
	m, err := protocol.ReadProtocolMessage(e.in)
	if err != nil {
		e.t.Fatalf("%v, after %d messages that were kept; the server says %v", err, len(e.kept), <-e.ended)
	}
	return m
}

// answer sends a request, and waits for its answer.
func (e *editor) answer(command, arguments string) protocol.ResponseMessage {
	e.t.Helper()
	e.send(command, arguments)
	for {
		m := e.next()
		if r, ok := m.(protocol.ResponseMessage); ok {
			if r.GetResponse().RequestSeq != e.seq || r.GetResponse().Command != command {
				e.t.Fatalf("%s was answered by %+v", command, r)
			}
			return r
		}
		e.kept = append(e.kept, m)
	}
}

// ask is answer of a request that succeeds.
func (e *editor) ask(command, arguments string) protocol.ResponseMessage {
	e.t.Helper()
	r := e.answer(command, arguments)
	if !r.GetResponse().Success {
		e.t.Fatalf("%s %s: %s", command, arguments, r.GetResponse().Message)
	}
	return r
}

// refused is the sentence with which a request is refused.
func (e *editor) refused(command, arguments string) string {
	e.t.Helper()
	r := e.answer(command, arguments)
	if r.GetResponse().Success {
		e.t.Fatalf("%s %s was done", command, arguments)
	}
	return r.GetResponse().Message
}

// event waits for an event of a name.
func (e *editor) event(name string) protocol.EventMessage {
	e.t.Helper()
	for i := 0; ; i++ {
		if i == len(e.kept) {
			e.kept = append(e.kept, e.next())
		}
		if ev, ok := e.kept[i].(protocol.EventMessage); ok && ev.GetEvent().Event == name {
			e.kept = append(e.kept[:i], e.kept[i+1:]...)
			return ev
		}
	}
}

// line waits for the next line of a log point.
func (e *editor) line() protocol.OutputEventBody { return e.output("stdout") }

// output waits for the next output of a category.
func (e *editor) output(category string) protocol.OutputEventBody {
	e.t.Helper()
	var others []protocol.Message
	defer func() { e.kept = append(others, e.kept...) }()
	for {
		ev := e.event("output").(*protocol.OutputEvent)
		if ev.Body.Category == category {
			return ev.Body
		}
		others = append(others, ev)
	}
}

// set sets breakpoints of a source.
func (e *editor) set(source, breakpoints string) []protocol.Breakpoint {
	e.t.Helper()
	r := e.ask("setBreakpoints", `{"source": {"path": "`+source+`"}, "breakpoints": [`+breakpoints+`]}`)
	return r.(*protocol.SetBreakpointsResponse).Body.Breakpoints
}

// setFunctions sets breakpoints of functions.
func (e *editor) setFunctions(breakpoints string) []protocol.Breakpoint {
	e.t.Helper()
	return e.ask("setFunctionBreakpoints", `{"breakpoints": [`+breakpoints+`]}`).(*protocol.SetFunctionBreakpointsResponse).Body.Breakpoints
}

// leave disconnects.
func (e *editor) leave() {
	e.t.Helper()
	e.ask("disconnect", `{"terminateDebuggee": true}`)
	if err := <-e.ended; err != nil {
		e.t.Errorf("after disconnect: %v", err)
	}
}

// verified fails unless all are.
func verified(t *testing.T, all []protocol.Breakpoint, lines ...int) {
	t.Helper()
	if len(all) != len(lines) {
		t.Fatalf("%d breakpoints: %+v", len(all), all)
	}
	for i, b := range all {
		if !b.Verified || b.Line != lines[i] {
			t.Errorf("breakpoint %d: verified %t at line %d: %s", i, b.Verified, b.Line, b.Message)
		}
	}
}

// TestLogPointsOfAnEditorPrintAndGo, by their conditions, in a program of C: it works beside them and after them, and is left as it was.
func TestLogPointsOfAnEditorPrintAndGo(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "places", "-O0"))
	e := attach(t, p, "")
	const source = "/somebody/elses/checkout/places.c"
	verified(t, e.set(source, `{"line": 23, "logMessage": "{{{i}}} of {n}: \"{own.name}\" {part}", "condition": "own.weight == 7 && i >= 2"}`), 23)
	e.ask("configurationDone", "")
	p.Do("work 4", "sum 51")
	for _, want := range []string{"{2} of 4: \"own\" 14\n", "{3} of 4: \"own\" 21\n"} {
		out := e.line()
		if out.Output != want || out.Source == nil || out.Source.Path != source || out.Line != 23 {
			t.Errorf("%+v, want %q of line 23", out, want)
		}
	}
	// Another one comes: the first stays.
	verified(t, e.set(source, `{"line": 23, "logMessage": "{{{i}}} of {n}: \"{own.name}\" {part}", "condition": "own.weight == 7 && i >= 2"}, {"line": 14, "logMessage": "inner", "hitCondition": "%3"}`), 23, 14)
	p.Do("work 3", "sum")
	if got := e.line().Output + e.line().Output; got != "{2} of 3: \"own\" 14\ninner\n" {
		t.Errorf("with two: %q", got)
	}
	if all := e.set(source, ""); len(all) != 0 {
		t.Errorf("without any: %+v", all)
	}
	p.Do("work 4", "sum")
	e.leave()
	p.CheckClean()
	if sum := e.output("console").Output; !strings.Contains(sum, "detached from ") || !strings.Contains(sum, ": 4 lines\n") {
		t.Errorf("the summary is %q", sum)
	}
	for _, m := range e.kept {
		if o, ok := m.(*protocol.OutputEvent); ok {
			t.Errorf("after all were removed: %+v", o.Body)
		}
	}
}

// TestLogPointsOfOtherLanguages: C++ and Go, functions and returns.
func TestLogPointsOfOtherLanguages(t *testing.T) {
	for _, c := range []struct{ prog, point, call, want string }{
		{"cxx", `shop::thrower \"v={v}\" if v > 1`, "call 2", "v=2\n"},
		{"gosrv", `main.target%return \"{ret} of {v}\" if v > 100`, "call 303", "101 of 303\n"},
	} {
		p := testprog.Start(t, testprog.Build(t, c.prog))
		e := attach(t, p, "")
		all := e.setFunctions(`{"name": "` + c.point + `"}`)
		if len(all) != 1 || !all[0].Verified {
			t.Fatalf("%s: %+v", c.prog, all)
		}
		p.Do("call 1", "ret")
		p.Do(c.call, "ret")
		if got := e.line().Output; got != c.want {
			t.Errorf("%s: %q, want %q", c.prog, got, c.want)
		}
		e.setFunctions("")
		e.leave()
		p.CheckClean()
		p.Do(c.call, "ret")
	}
}

// TestAClientThatDiesLetsGo: in the middle of a message, and with garbage.
func TestAClientThatDiesLetsGo(t *testing.T) {
	for _, last := range []string{"", "Content-Length: 100\r\n\r\n{\"seq\"", "Content-Length: 99999999999\r\n\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "Content-Length: 3\r\n\r\nabc", strings.Repeat("x", 10_000)} {
		p := testprog.Start(t, testprog.Build(t, "places", "-O0"))
		e := attach(t, p, "")
		e.setFunctions(`{"name": "work \"{n}\""}`)
		go func() { // the pipe has no buffer
			_, _ = e.conn.Write([]byte(last))
			_ = e.conn.Close()
		}()
		err := <-e.ended
		if err == nil || last == "" && !errors.Is(err, dap.ErrGone) {
			t.Errorf("after %.20q: %v", last, err)
		}
		p.CheckClean()
	}
}
