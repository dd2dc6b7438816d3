package dap_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	protocol "github.com/google/go-dap"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/dap"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// fake is a process that has everything, and probes that are never hit.
type fake struct {
	mu     sync.Mutex
	armed  int
	closed bool
	done   chan struct{}
}

func (*fake) PID() int { return 1 }

func (f *fake) Probe(_ context.Context, spec string, _ ...trace.Want) (dap.Probe, error) {
	if strings.Contains(spec, "nope") {
		return nil, errors.New("there is no such place")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed++
	return &fakeProbe{f: f}, nil
}

func (*fake) Sources(_ context.Context, base string) ([]string, error) {
	return []string{"/src/" + base, "other/" + base}, nil
}
func (*fake) Line(arch.Addr) (file string, line int, ok bool) { return "/src/a.c", 7, true }
func (*fake) Threads() []dap.Thread                           { return []dap.Thread{{TID: 1, Name: "fake\x1b"}} }
func (f *fake) Done() <-chan struct{}                         { return f.done }
func (*fake) Exit() (code int, ended bool)                    { return 0, false }

func (f *fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		close(f.done)
	}
	return nil
}

type fakeProbe struct{ f *fake }

func (*fakeProbe) Stats() trace.Stats {
	return trace.Stats{Places: []trace.PlaceStats{{Addr: 0x1000, Mechanism: kprobes.Optimized}}}
}

func (p *fakeProbe) Close() error {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.f.armed--
	return nil
}

// FuzzServe: whatever comes, it ends; the process is let go; what goes out is the protocol, and each request has its answer.
func FuzzServe(f *testing.F) {
	f.Add([]byte(messages(`"initialize", "arguments": {"adapterID": "x"}`, `"attach", "arguments": {"pid": 1, "snapshots": true}`,
		`"setBreakpoints", "arguments": {"source": {"path": "/src/a.c"}, "breakpoints": [{"line": 7, "logMessage": "{x}", "condition": "x > 1", "hitCondition": "%3"}, {"line": 8}]}`,
		`"setFunctionBreakpoints", "arguments": {"breakpoints": [{"name": "f \"{ret}\" if ret > 1"}]}`, `"threads"`, `"disconnect"`)))
	f.Fuzz(func(t *testing.T, input []byte) {
		var held []*fake
		a := dap.Adapter{Attach: func(context.Context, dap.Target, func(string)) (dap.Session, error) {
			s := &fake{done: make(chan struct{})}
			held = append(held, s)
			return s, nil
		}}
		var out bytes.Buffer
		_ = a.Serve(t.Context(), struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(input), &out})
		for _, s := range held {
			if !s.closed {
				t.Error("a process was not let go")
			}
		}
		readAll(t, &out)
	})
}

// messages are requests as they are sent.
func messages(all ...string) string {
	var b strings.Builder
	for i, m := range all {
		_ = protocol.WriteBaseMessage(&b, fmt.Appendf(nil, `{"seq": %d, "type": "request", "command": %s}`, i+1, m))
	}
	return b.String()
}

// readAll fails unless everything is messages, in their order.
func readAll(t *testing.T, out *bytes.Buffer) {
	seq := 0
	for r := bufio.NewReader(out); ; {
		content, err := protocol.ReadBaseMessage(r)
		if errors.Is(err, io.EOF) {
			return
		}
		var m struct{ Seq int }
		if err != nil || json.Unmarshal(content, &m) != nil || m.Seq != seq+1 {
			t.Fatalf("message %d: %v: %.100q", seq+1, err, content)
		}
		seq++
		if _, err := protocol.DecodeProtocolMessage(content); err != nil {
			var unknown *protocol.DecodeProtocolMessageFieldError
			if !errors.As(err, &unknown) { // the answer to a request that nobody knows
				t.Fatalf("%v: %q", err, content)
			}
		}
	}
}
