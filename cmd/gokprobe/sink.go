package main

import (
	"io"
	"sync"
	"time"

	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
)

const (
	// sinkDepth is how many records wait for a slow output before more are lost.
	// A handler never waits for the output: the target would.
	sinkDepth = 64 << 10
	// sinkPause is how long the writer lets records gather after it wrote. Waking
	// it costs the handler more than the record itself.
	sinkPause = 2 * time.Millisecond
	// sinkChunk is the size in bytes at which gathered records are written.
	sinkChunk = 64 << 10
	// sinkGrace is how long an output is given to take what is left when the user has
	// no more patience. One that is read needs less: timeout(1), which signals twice,
	// must not cost a record.
	sinkGrace = 250 * time.Millisecond
)

// sink takes records from handlers and writes them on a goroutine of its own. Its
// methods may be called concurrently.
type sink struct {
	out     io.Writer
	printer event.Printer // into chunk
	chunk   chunk
	grace   time.Duration // sinkGrace

	mu      sync.Mutex
	pending []event.Hit
	spare   []event.Hit
	lost    uint64
	err     error
	idle    bool // the writer waits for wake
	closed  bool

	wake   chan struct{}
	stop   chan struct{} // closed by close
	done   chan struct{} // closed when the writer has ended
	failed chan struct{} // closed at the first error
}

// newSink returns a sink whose records are printed to out by the printer that
// newPrinter makes.
func newSink(out io.Writer, newPrinter func(io.Writer) event.Printer) *sink {
	s := &sink{
		out: out, grace: sinkGrace,
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
		done: make(chan struct{}), failed: make(chan struct{}),
	}
	s.printer = newPrinter(&s.chunk)
	go s.write()
	return s
}

// put hands over one record. It reports false if the record is lost: the queue is
// full or the output has failed.
func (s *sink) put(h *event.Hit) bool {
	s.mu.Lock()
	if s.closed || s.err != nil || len(s.pending) >= sinkDepth {
		s.lost++
		s.mu.Unlock()
		return false
	}
	s.pending = append(s.pending, *h)
	wake := s.idle
	s.idle = false
	s.mu.Unlock()
	if wake {
		s.wake <- struct{}{}
	}
	return true
}

// write is the writer's goroutine.
func (s *sink) write() {
	defer close(s.done)
	for {
		batch, closed := s.take()
		switch {
		case len(batch) > 0:
			s.writeBatch(batch)
		case closed:
			return
		default:
			select {
			case <-s.wake:
			case <-s.stop:
			}
			continue
		}
		select {
		case <-time.After(sinkPause):
		case <-s.stop:
		}
	}
}

// take swaps the two buffers.
func (s *sink) take() (batch []event.Hit, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch = s.pending
	s.pending, s.spare = s.spare[:0], batch
	s.idle = len(batch) == 0
	return batch, s.closed
}

func (s *sink) writeBatch(batch []event.Hit) {
	for i := range batch {
		_ = s.printer.Hit(&batch[i]) // a chunk takes everything
		batch[i] = event.Hit{}
		if len(s.chunk.buf) >= sinkChunk {
			s.flush()
		}
	}
	s.flush()
}

// flush writes the chunk. After an error nothing more is written: what follows a
// torn line is of no use to anybody.
func (s *sink) flush() {
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	lost := len(s.chunk.ends)
	if err == nil {
		lost, err = s.chunk.writeTo(s.out)
		s.fail(err)
	}
	s.chunk.reset()
	s.mu.Lock()
	s.lost += uint64(lost)
	s.mu.Unlock()
}

// fail remembers the first error.
func (s *sink) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.err == nil {
		s.err = err
		close(s.failed)
	}
}

// close writes what is left and ends the writer. If giveUp is closed first, what
// can't be written soon is lost: an output that nobody reads blocks for good.
// It returns the number of lost records and the first error.
func (s *sink) close(giveUp <-chan struct{}) (lost uint64, err error) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	close(s.stop)
	select {
	case <-s.done:
	case <-giveUp:
		select {
		case <-s.done:
		case <-time.After(s.grace):
			s.fail(errOutputStuck)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost + uint64(len(s.pending)), s.err
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
