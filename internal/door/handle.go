package door

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// handle is one open file of a mount. Reads are of a stream: one at the place where the last one ended goes on,
// any other starts over with a new content, as a seq_file does.
type handle struct {
	*site
	name     string
	nonblock bool

	turn chan struct{} // held by who reads

	mu     sync.Mutex // guards file and closed
	file   fs.File
	closed bool

	// Guarded by turn.
	off     int64  // of buf, in the content
	buf     []byte // bytes that were read but not taken
	err     error  // what came behind it
	pending *fetch // the Read that is under way, nil if there is none
}

// fetch is one Read of the file.
type fetch struct {
	done chan struct{} // closed when there is something in buf or err
	buf  []byte
	err  error
}

// patience is how long a reader that does not want to wait does wait: there may be something, but it is
// on its way.
const patience = 10 * time.Millisecond

// open opens the file anew.
func (h *handle) open(ctx context.Context) error {
	_, err := await(ctx, h.site, func() (struct{}, error) { return struct{}{}, h.reopen() })
	return err
}

func (h *handle) reopen() error {
	f, err := h.tree().Open(h.name)
	if err != nil {
		return err
	}
	h.mu.Lock()
	old := h.file
	gone := h.closed
	if !gone {
		h.file = f
	}
	h.mu.Unlock()
	if gone {
		old, err = f, unix.EBADF
	}
	if old != nil {
		_ = old.Close()
	}
	return err
}

// Read implements gofs.FileReader. An interrupted one loses nothing: bytes that come
// later are for the next.
func (h *handle) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, unix.EINTR
	}
	if err := h.seek(ctx, off); err != nil {
		return nil, Errno(err)
	}
	n, err := h.next(ctx, dest)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, Errno(err)
	}
	return fuse.ReadResultData(dest[:n]), 0
}

// seek goes to off, from the start of a new content unless it is there.
func (h *handle) seek(ctx context.Context, off int64) error {
	if off == h.off {
		return nil
	}
	if err := h.open(ctx); err != nil {
		return err
	}
	h.off, h.pending, h.buf, h.err = 0, nil, nil, nil
	skipped := make([]byte, 32<<10)
	for h.off < off {
		_, err := h.next(ctx, skipped[:min(int64(len(skipped)), off-h.off)])
		if errors.Is(err, io.EOF) {
			h.off = off // nothing is there
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// next copies the next bytes to dest, at least one, or returns an error, io.EOF at the
// end.
func (h *handle) next(ctx context.Context, dest []byte) (int, error) {
	if len(h.buf) == 0 && h.err == nil {
		if err := h.fetch(ctx, len(dest)); err != nil {
			return 0, err
		}
	}
	n := copy(dest, h.buf)
	h.buf = h.buf[n:]
	h.off += int64(n)
	if n > 0 || len(dest) == 0 {
		return n, nil
	}
	err := h.err
	h.err = nil
	return 0, err
}

// fetch waits until there is something in buf or err.
func (h *handle) fetch(ctx context.Context, size int) error {
	if h.pending == nil {
		h.pending = h.begin(size)
	}
	var late <-chan time.Time
	if h.nonblock {
		late = time.After(patience)
	}
	select {
	case <-h.pending.done:
		h.buf, h.err, h.pending = h.pending.buf, h.pending.err, nil
		return nil
	case <-late:
		return unix.EAGAIN
	case <-ctx.Done():
		return unix.EINTR
	}
}

// begin starts to read.
func (h *handle) begin(size int) *fetch {
	h.mu.Lock()
	file := h.file
	h.mu.Unlock()
	f := &fetch{done: make(chan struct{}), buf: make([]byte, size)}
	go func() {
		defer close(f.done)
		n := 0
		for n == 0 && f.err == nil {
			n, f.err = file.Read(f.buf)
		}
		f.buf = f.buf[:n]
	}()
	return f
}

// Write implements gofs.FileWriter. Where is all the same: a write is a command.
func (h *handle) Write(ctx context.Context, data []byte, _ int64) (uint32, syscall.Errno) {
	if h.waitsForUs(ctx) {
		return 0, unix.EDEADLK
	}
	if _, err := h.tree().Write(h.name, data); err != nil {
		return 0, Errno(err) // as the kernel's files do, even if some commands were taken
	}
	return uint32(len(data)), 0
}

// Release implements gofs.FileReleaser.
func (h *handle) Release(context.Context) syscall.Errno {
	h.mu.Lock()
	f := h.file
	h.file, h.closed = nil, true
	h.mu.Unlock()
	if f != nil {
		_ = f.Close()
	}
	return 0
}
