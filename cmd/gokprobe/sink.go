package main

import (
	"io"
	"sync"
	"time"

	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/trace"
)

const (
	// sinkPause is how long the writer lets records gather after it wrote. Waking
	// it costs the handler more than the record itself.
	sinkPause = 2 * time.Millisecond
	// sinkChunk is the size in bytes at which gathered records are written.
	sinkChunk = 64 << 10
	// sinkGrace is how long an output may take for the last records after a second signal,
	// by which the user ends the wait. An output that somebody reads needs less: timeout(1)
	// signals twice, and that must not cost a record.
	sinkGrace = 250 * time.Millisecond
)

// sink writes records to an output on a goroutine of its own, so that handlers, which put
// them, never wait for the output. Its methods may be called concurrently.
type sink struct {
	queue   *trace.Queue
	out     io.Writer
	printer event.Printer // prints into chunk
	chunk   chunk         // text that is not written yet
	grace   time.Duration // sinkGrace

	mu  sync.Mutex
	err error // the first one

	begun  chan struct{} // nothing is written before it is closed
	done   chan struct{} // closed when the writer has ended
	failed chan struct{} // closed at the first error
}

// newSink returns a sink whose records are printed to out by the printer that
// newPrinter makes.
func newSink(out io.Writer, newPrinter func(io.Writer) event.Printer) *sink {
	s := newHeldSink(out, newPrinter)
	s.begin()
	return s
}

// newHeldSink is newSink of records that are printed from begin on, and not at all if it is closed before.
func newHeldSink(out io.Writer, newPrinter func(io.Writer) event.Printer) *sink {
	s := &sink{
		queue: trace.NewQueue(), out: out, grace: sinkGrace,
		begun: make(chan struct{}), done: make(chan struct{}), failed: make(chan struct{}),
	}
	s.printer = newPrinter(&s.chunk)
	go s.write()
	return s
}

// begin lets records be written, from the first call on. A nil sink writes nothing.
func (s *sink) begin() {
	if s != nil && !s.hasBegun() {
		close(s.begun)
	}
}

// put hands over one record. It reports false if the record is lost: the queue is
// full or the output has failed.
func (s *sink) put(h *event.Hit) bool { return s.queue.Put(h) }

// write is the writer's goroutine.
func (s *sink) write() {
	defer close(s.done)
	select {
	case <-s.begun:
	case <-s.queue.Closed(): // it was not begun, or will not be
		if !s.hasBegun() {
			return
		}
	}
	for batch := s.queue.Take(); len(batch) > 0; batch = s.queue.Take() {
		s.writeBatch(batch)
		select {
		case <-time.After(sinkPause):
		case <-s.queue.Closed():
		}
	}
}

func (s *sink) hasBegun() bool {
	select {
	case <-s.begun:
		return true
	default:
		return false
	}
}

func (s *sink) writeBatch(batch []event.Hit) {
	for i := range batch {
		_ = s.printer.Hit(&batch[i]) // writing to a chunk never fails
		if len(s.chunk.buf) >= sinkChunk {
			s.flush()
		}
	}
	s.flush()
}

// flush writes the chunk. After an error it writes nothing more: a line may have been cut in
// two, and readers could not make sense of the lines after it.
func (s *sink) flush() {
	lost := len(s.chunk.ends)
	if s.firstError() == nil {
		var err error
		lost, err = s.chunk.writeTo(s.out)
		s.fail(err)
	}
	s.chunk.reset()
	s.queue.Lose(lost)
}

func (s *sink) firstError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// fail remembers the first error. Records that are put later are lost.
func (s *sink) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.err == nil {
		s.err = err
		s.queue.Close()
		close(s.failed)
	}
}

// close writes the records that are left and ends the writer. If giveUp is closed, it waits
// for no longer than grace: an output that nobody reads blocks for ever. It returns the
// number of lost records and the first error.
func (s *sink) close(giveUp <-chan struct{}) (lost uint64, err error) {
	s.queue.Close()
	select {
	case <-s.done:
	case <-giveUp:
		select {
		case <-s.done:
		case <-time.After(s.grace):
			s.fail(errOutputStuck)
		}
	}
	return s.queue.Lost() + uint64(s.queue.Waiting()), s.firstError()
}

// chunk gathers whole records.
type chunk struct {
	buf  []byte
	ends []int // of the records in buf
}

// Write takes one record, as event's printers write it.
func (c *chunk) Write(p []byte) (int, error) {
	c.buf = append(c.buf, p...)
	c.ends = append(c.ends, len(c.buf))
	return len(p), nil
}

// writeTo writes all records and returns how many of them did not reach w whole.
func (c *chunk) writeTo(w io.Writer) (lost int, err error) {
	if len(c.buf) == 0 {
		return 0, nil
	}
	n, err := w.Write(c.buf)
	if err == nil && n < len(c.buf) {
		err = io.ErrShortWrite
	}
	for _, end := range c.ends {
		if end > n {
			lost++
		}
	}
	return lost, err
}

func (c *chunk) reset() { c.buf, c.ends = c.buf[:0], c.ends[:0] }
