package dap

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// What the client may send at once. Clients' own messages have some kilobytes.
const (
	mostContent = 4 << 20
	mostHeader  = 4 << 10
)

// A protocolError is what no client of the protocol sends. Where the next message begins is not known then.
type protocolError struct{ what string }

func (e *protocolError) Error() string { return "this is not the Debug Adapter Protocol: " + e.what }

// readMessage reads the content of one message. The error is io.EOF where none begins.
func readMessage(r *bufio.Reader) ([]byte, error) {
	n, err := readHeader(r)
	if err != nil {
		return nil, err
	}
	content := make([]byte, n)
	if _, err := io.ReadFull(r, content); err != nil {
		return nil, cutShort(err)
	}
	return content, nil
}

// readHeader reads the lines in front of a content, and returns its length.
func readHeader(r *bufio.Reader) (length int, err error) {
	length = -1
	for room := mostHeader; ; {
		line, err := readLine(r, room)
		switch {
		case errors.Is(err, io.EOF) && line == "" && room == mostHeader:
			return 0, io.EOF
		case err != nil:
			return 0, cutShort(err)
		}
		room -= len(line) + 2
		if line == "" && length >= 0 {
			return length, nil
		}
		name, value, ok := strings.Cut(line, ":")
		switch {
		case !ok:
			return 0, &protocolError{"a message begins with Content-Length: and its number of bytes"}
		case strings.EqualFold(name, "Content-Length"):
			length, err = strconv.Atoi(strings.TrimSpace(value))
			if err != nil || length < 0 || length > mostContent {
				return 0, &protocolError{fmt.Sprintf("a message has 0 to %d bytes", mostContent)}
			}
		case !strings.EqualFold(name, "Content-Type"):
			return 0, &protocolError{"a message has no header but Content-Length and Content-Type"}
		}
	}
}

// readLine reads a line of a header, without its end.
func readLine(r *bufio.Reader, most int) (string, error) {
	var line []byte
	for len(line) < most {
		c, err := r.ReadByte()
		if err != nil {
			return string(line), err
		}
		if c == '\n' {
			return strings.TrimSuffix(string(line), "\r"), nil
		}
		line = append(line, c)
	}
	return "", &protocolError{"a header has no end"}
}

// cutShort is the error of a message that ended before it was whole.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &protocolError{"the input ends within a message"}
	}
	return err
}

// message is what goes to the client: a response or an event.
type message struct {
	Seq        int    `json:"seq"`
	Type       string `json:"type"`
	Event      string `json:"event,omitempty"`
	RequestSeq int    `json:"request_seq,omitempty"`
	Command    string `json:"command,omitempty"`
	Success    *bool  `json:"success,omitempty"`
	Message    string `json:"message,omitempty"`
	Body       any    `json:"body,omitempty"`
}

// pieceSize is how many bytes are written at once.
const pieceSize = 64 << 10

// mostPending is how many bytes wait for a client that does not read, before output is dropped.
const mostPending = 1 << 20

// outbox sends messages in their order. A client that does not read makes nobody wait who tells of hits.
type outbox struct {
	w      io.Writer
	failed func(error) // called once, by a goroutine of the outbox

	written atomic.Uint64 // pieces

	mu      sync.Mutex
	change  sync.Cond // of all below
	pending []byte
	seq     int
	unsent  uint64 // offers that were dropped, and not told of
	hurried bool   // nobody waits for room
	closed  bool
	done    chan struct{} // closed when nothing is written any more
}

func newOutbox(w io.Writer, failed func(error)) *outbox {
	o := &outbox{w: w, failed: failed, done: make(chan struct{})}
	o.change.L = &o.mu
	go o.write()
	return o
}

// put sends a message when there is room for it, and waits for that until it is hurried.
func (o *outbox) put(m message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.pending) >= 2*mostPending && !o.closed && !o.hurried {
		o.change.Wait()
	}
	o.add(m)
}

// offer sends a message if there is room for it. Else it is counted.
func (o *outbox) offer(m message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.pending) >= mostPending || o.closed {
		o.unsent++
		return false
	}
	o.add(m)
	return true
}

// takeUnsent is how many offers were dropped since it was asked before, as soon as there is room to tell it.
func (o *outbox) takeUnsent() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.pending) >= mostPending {
		return 0
	}
	n := o.unsent
	o.unsent = 0
	return n
}

func (o *outbox) add(m message) {
	if o.closed {
		return
	}
	o.seq++
	m.Seq = o.seq
	content, err := json.Marshal(m)
	if err != nil { // a number that JSON has not
		o.unsent++
		return
	}
	o.pending = fmt.Appendf(o.pending, "Content-Length: %d\r\n\r\n", len(content))
	o.pending = append(o.pending, content...)
	o.change.Broadcast()
}

// write writes what is pending until the outbox is closed and empty, or fails.
func (o *outbox) write() {
	defer close(o.done)
	for {
		o.mu.Lock()
		for len(o.pending) == 0 && !o.closed {
			o.change.Wait()
		}
		batch := o.pending
		o.pending = nil
		o.change.Broadcast()
		o.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for piece := range slices.Chunk(batch, pieceSize) {
			if _, err := o.w.Write(piece); err != nil {
				o.close()
				o.failed(err)
				return
			}
			o.written.Add(1)
		}
	}
}

// hurry ends the waits of put, now and later: the conversation is about to end.
func (o *outbox) hurry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hurried = true
	o.change.Broadcast()
}

// finish closes the outbox, and waits until all is written, or the client takes nothing for a while.
func (o *outbox) finish() {
	o.close()
	for before := o.written.Load(); ; before = o.written.Load() {
		select {
		case <-o.done:
			return
		case <-time.After(parting):
			if o.written.Load() == before {
				return
			}
		}
	}
}

// parting is how long a client has to take a piece of its last messages, when nothing of the process is held any more.
const parting = time.Second

// close lets in no more. What is pending is still written.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.change.Broadcast()
}
