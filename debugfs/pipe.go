package debugfs

import (
	"io"
	"io/fs"
	"sync"

	"github.com/gokprobe/gokprobe/internal/escape"
)

// pipe reads and consumes: each entry goes to one of all pipes.
type pipe struct {
	b      *buffer
	wait   bool   // for more, instead of ending
	losses func() // tells b the losses elsewhere
	closed bool   // guarded by b.mu

	reading sync.Mutex
	rest    []byte
}

// pipeChunk is about how many bytes a Read of a pipe consumes at once, at most.
const pipeChunk = 1 << 16

// Read implements io.Reader. It returns at least one whole line, if p has room for it.
func (r *pipe) Read(p []byte) (int, error) {
	r.reading.Lock()
	defer r.reading.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	for len(r.rest) == 0 {
		if err := r.await(); err != nil {
			return 0, err
		}
		r.losses()
		r.rest = escape.AppendText(nil, string(r.next(min(len(p), pipeChunk))))
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// await returns when there is something, or an error when there will be nothing.
func (r *pipe) await() error {
	b := r.b
	if !r.wait {
		r.losses()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.empty() && r.wait && !b.ended && !r.closed {
		b.more.Wait()
	}
	switch {
	case r.closed:
		return fs.ErrClosed
	case b.empty():
		return io.EOF
	}
	return nil
}

// empty: there is nothing to tell. The caller holds b.mu.
func (b *buffer) empty() bool { return b.head == len(b.entries) && b.lost == 0 }

// next consumes the waiting entries, up to about size bytes.
func (r *pipe) next(size int) []byte {
	b := r.b
	b.mu.Lock()
	out := appendLost(nil, b.lost)
	b.lost = 0
	var taken []*entry
	for n := len(out); n < size && b.head < len(b.entries); {
		e := b.pop()
		taken = append(taken, e)
		n += len(e.comm) + 64 // a line is hardly shorter
	}
	b.mu.Unlock()
	for _, e := range taken {
		out = e.appendTo(out)
	}
	return out
}

// Close lets a Read that waits return.
func (r *pipe) Close() error {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.closed = true
	r.b.more.Broadcast()
	return nil
}
