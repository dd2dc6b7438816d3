// Package dap serves the Debug Adapter Protocol: an editor's log points and snapshots in a running process, which goes on meanwhile.
// The messages are those of https://microsoft.github.io/debug-adapter-protocol/specification.
package dap

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	protocol "github.com/google/go-dap"

	"github.com/gokprobe/gokprobe/internal/escape"
)

// Adapter serves clients.
type Adapter struct {
	// Attach takes hold of the process that a client means, until Session.Close or the end of ctx. tell tells the client a sentence.
	Attach func(ctx context.Context, a Target, tell func(string)) (Session, error)
}

// ErrGone tells that the client has gone without a disconnect request. The process was let go.
var ErrGone = errors.New("the client has gone without a disconnect request")

// client is one conversation.
type client struct {
	adapter Adapter
	ctx     context.Context
	work    context.Context // ends when the client wants to go, or has gone
	stop    context.CancelFunc
	over    chan struct{} // closed when nothing is answered any more
	out     *outbox
	first   int      // number of the first line of a file, as the client counts
	session *session // nil before it is attached, and of one goroutine
}

// Serve talks with one client until it disconnects, has gone, or ctx is done; then nothing is held any more. It does not close rw: a Read that waits
// is left behind. The error is ErrGone, one of rw, or why the input is not the protocol.
func (a Adapter) Serve(ctx context.Context, rw io.ReadWriter) error {
	work, stop := context.WithCancel(ctx)
	defer stop()
	broken := make(chan error, 1)
	c := &client{adapter: a, ctx: ctx, work: work, stop: stop, over: make(chan struct{}), first: 1}
	defer close(c.over)
	c.out = newOutbox(rw, func(err error) { broken <- err; stop() })
	defer context.AfterFunc(work, c.out.hurry)()
	requests, ended := make(chan request, runAhead), make(chan error, 1)
	go func() { ended <- c.read(bufio.NewReader(rw), requests) }()
	err := c.serve(requests, ended)
	c.end()
	c.out.finish()
	select {
	case failed := <-broken:
		if err == nil && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", ErrGone, failed)
		}
	default:
	}
	return err
}

// runAhead is how many requests may wait while one is answered: a disconnect, or the end of the input, is noticed meanwhile.
const runAhead = 64

// byUser are requests that a user has made knowingly; only their errors are worth a notification.
var byUser = []string{"launch", "next", "stepIn", "stepOut", "stepBack", "reverseContinue", "pause", "goto", "restart", "setVariable", "setExpression"}

// request is one message of the client.
type request struct {
	seq     int
	command string
	message protocol.Message // nil with err
	err     error            // why it can't be answered
	content []byte
}

// read hands on the client's requests. It returns why there are no more.
func (c *client) read(r *bufio.Reader, to chan<- request) error {
	for {
		content, err := readMessage(r)
		if err == nil {
			err = c.hand(content, to)
		}
		if err != nil {
			c.stop()
			return err
		}
	}
}

func (c *client) hand(content []byte, to chan<- request) error {
	var m struct {
		Seq           int
		Type, Command string
	}
	if err := json.Unmarshal(content, &m); err != nil {
		return &protocolError{"a message is no JSON object of the protocol: " + escape.Short(err.Error())}
	}
	if m.Type != "request" {
		return nil // an answer, though we ask nothing
	}
	if m.Command == "disconnect" {
		c.stop() // ends what the goroutine that answers may be arming
	}
	r := request{seq: m.Seq, command: m.Command, content: content}
	r.message, r.err = protocol.DecodeProtocolMessage(content)
	select {
	case to <- r:
	case <-c.over:
	}
	return nil
}

// serve answers requests until the conversation ends.
func (c *client) serve(requests <-chan request, ended <-chan error) error {
	for {
		select {
		case r := <-requests:
			if c.answer(r) {
				return nil
			}
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return ErrGone
			}
			return err
		case <-c.ctx.Done():
			return nil
		case <-c.out.done:
			return nil
		}
	}
}

// answer answers one request, and reports whether it is the last.
func (c *client) answer(r request) (last bool) {
	body, err := c.do(r)
	ok := err == nil
	m := message{Type: "response", RequestSeq: r.seq, Command: r.command, Success: &ok, Body: body}
	if err != nil {
		text := sentence(err)
		m.Message = text
		m.Body = protocol.ErrorResponseBody{Error: &protocol.ErrorMessage{Id: 1, Format: escapeFormat(text), ShowUser: slices.Contains(byUser, r.command)}}
	}
	if r.command == "disconnect" {
		c.end()
	}
	c.out.put(m)
	if r.command == "attach" && ok {
		c.session.begin()
	}
	return r.command == "disconnect"
}

// escapeFormat makes a text a format of the protocol, in which {name} is a variable: the client has none to put there.
func escapeFormat(text string) string { return strings.NewReplacer("{", "(", "}", ")").Replace(text) }

// end lets the process go, if there is one.
func (c *client) end() {
	if c.session != nil {
		c.session.end()
	}
}

// errUnsupported answers requests that nothing here can do.
func errUnsupported(command string) error {
	return fmt.Errorf("gokprobe does not support the request %s", escape.Quote(command))
}

// halting are requests that would hold the program.
var halting = map[string]bool{
	"next": true, "stepIn": true, "stepOut": true, "stepBack": true, "pause": true, "goto": true, "restartFrame": true, "reverseContinue": true,
}

var errHalting = errors.New("gokprobe never holds the program: it can't be paused or stepped; use log points and snapshots")

var errLaunch = errors.New("gokprobe dap attaches to programs that run: start the program in a terminal, and attach to it")

var errNoSession = errors.New("no process is attached to: send an attach request first")

// do carries out a request, and returns the body of the answer.
func (c *client) do(r request) (any, error) {
	switch {
	case halting[r.command]:
		return nil, errHalting
	case r.command == "launch":
		return nil, errLaunch
	}
	var field *protocol.DecodeProtocolMessageFieldError
	switch {
	case errors.As(r.err, &field):
		return nil, errUnsupported(r.command)
	case r.err != nil:
		return nil, fmt.Errorf("the arguments of %s can't be read: %w", escape.Quote(r.command), r.err)
	}
	switch m := r.message.(type) {
	case *protocol.InitializeRequest:
		return c.initialize(m.Arguments, r.content)
	case *protocol.AttachRequest:
		return nil, c.attach(m.Arguments)
	case *protocol.DisconnectRequest, *protocol.ConfigurationDoneRequest:
		return nil, nil
	case *protocol.SetExceptionBreakpointsRequest:
		return protocol.SetExceptionBreakpointsResponseBody{}, nil
	}
	if c.session == nil {
		return nil, errNoSession
	}
	return c.session.do(r)
}

// do carries out a request about an attached process.
func (s *session) do(r request) (any, error) {
	switch m := r.message.(type) {
	case *protocol.SetBreakpointsRequest:
		return s.setBreakpoints(m.Arguments)
	case *protocol.SetFunctionBreakpointsRequest:
		return s.setFunctionBreakpoints(m.Arguments)
	case *protocol.ThreadsRequest:
		return s.threads()
	case *protocol.StackTraceRequest:
		return s.stackTrace(m.Arguments)
	case *protocol.ScopesRequest:
		return s.scopes(m.Arguments)
	case *protocol.VariablesRequest:
		return s.variables(m.Arguments)
	case *protocol.EvaluateRequest:
		return s.evaluate(m.Arguments)
	case *protocol.ContinueRequest:
		s.dismiss(m.Arguments.ThreadId)
		return protocol.ContinueResponseBody{}, nil
	}
	return nil, errUnsupported(r.command)
}

// initialize lists our capabilities.
func (c *client) initialize(a protocol.InitializeRequestArguments, content []byte) (any, error) {
	if a.PathFormat != "" && a.PathFormat != "path" {
		return nil, fmt.Errorf("gokprobe knows sources by paths only, not by %s", escape.Quote(a.PathFormat))
	}
	var m struct{ Arguments struct{ LinesStartAt1 *bool } }
	if json.Unmarshal(content, &m) == nil && m.Arguments.LinesStartAt1 != nil && !*m.Arguments.LinesStartAt1 {
		c.first = 0
	}
	return protocol.Capabilities{
		SupportsConfigurationDoneRequest:      true,
		SupportsFunctionBreakpoints:           true,
		SupportsConditionalBreakpoints:        true,
		SupportsHitConditionalBreakpoints:     true,
		SupportsLogPoints:                     true,
		SupportsEvaluateForHovers:             true,
		SupportsSingleThreadExecutionRequests: true,
	}, nil
}

// output is a text for the client: hits' lines as stdout, other sentences as console, losses as important.
func output(category, text string) protocol.OutputEventBody {
	return protocol.OutputEventBody{Category: category, Output: text + "\n"}
}

func event(name string, body any) message { return message{Type: "event", Event: name, Body: body} }

// tell tells the client a sentence.
func (c *client) tell(text string) { c.out.offer(said(text)) }

func said(text string) message { return event("output", output("console", escape.Line(text))) }
