package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/clean"
)

const (
	// consoleLimit is how many bytes of messages are kept for a stderr that nobody reads. Further messages are lost.
	consoleLimit = 4 << 20
	// consolePiece is how many bytes, at most, patient hands over at once.
	consolePiece = 64 << 10
)

// console is stderr for the whole command. Write only queues a message; a goroutine writes it
// on. Handlers warn on the tracer's thread, and a full pipe would block that thread, and
// with it the target. Its methods may be called concurrently.
type console struct {
	out io.Writer

	mu        sync.Mutex
	ended     sync.Cond // isWriting has become false
	taken     sync.Cond // pending has become empty, or isBroken true
	pending   []byte
	lost      int  // messages that were lost since take was last called
	isWriting bool // the goroutine is running
	isBroken  bool // a write to out has failed
}

// newConsole returns a console that writes to out. It uses a duplicate of a file's descriptor
// if it can: a write to a closed pipe ends a Go program with SIGPIPE if the descriptor is 1
// or 2, and is an error with any other.
func newConsole(out io.Writer) *console {
	c := &console{out: out}
	if f, ok := out.(*os.File); ok {
		if again, err := duplicate(f); err == nil {
			c.out = again
		}
	}
	c.ended.L, c.taken.L = &c.mu, &c.mu
	return c
}

// duplicate returns f under another descriptor, which is closed on exec. It does not use f.Fd,
// which would make f blocking.
func duplicate(f *os.File) (*os.File, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	const first = 3
	again := -1
	if cerr := conn.Control(func(fd uintptr) { again, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, first) }); cerr != nil || err != nil {
		return nil, errors.Join(cerr, err)
	}
	return os.NewFile(uintptr(again), f.Name()), nil
}

// Write queues one message of any size. If too many bytes are queued already, the message is
// lost. It never fails and never blocks.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isFull(len(p)) {
		c.lost++ // the goroutine, which still has something to write, will say so
	} else {
		c.add(p)
	}
	return len(p), nil
}

// isFull reports whether there is no room for n more bytes. A text of any size fits into an
// empty queue.
func (c *console) isFull(n int) bool {
	return !c.isBroken && len(c.pending) > 0 && len(c.pending)+n > consoleLimit
}

// add queues a text, cleaned of characters that control a terminal. The text must not begin
// or end within a character.
func (c *console) add(p []byte) {
	if c.isBroken {
		return
	}
	c.pending = clean.AppendText(c.pending, string(p))
	if !c.isWriting {
		c.isWriting = true
		go c.write()
	}
}

// patient is the console for texts that are written while no target waits for us. It loses
// nothing: it hands a text over in pieces and waits for a slow reader.
type patient struct{ *console }

// Write queues all of p. It never fails.
func (c patient) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for rest := p; len(rest) > 0; {
		piece := rest[:min(len(rest), consolePiece)]
		if end := bytes.LastIndexByte(piece, '\n'); end >= 0 {
			piece = piece[:end+1]
		}
		rest = rest[len(piece):]
		for c.isFull(len(piece)) {
			c.taken.Wait()
		}
		c.add(piece)
	}
	return len(p), nil
}

// write is the goroutine that writes the queue to out. It ends when the queue is empty, or
// out has failed.
func (c *console) write() {
	for {
		text := c.take()
		if len(text) == 0 {
			return
		}
		if _, err := c.out.Write(text); err != nil {
			c.mu.Lock()
			c.isBroken, c.pending, c.lost = true, nil, 0
			c.taken.Broadcast()
			c.mu.Unlock()
		}
	}
}

// take empties the queue and returns its bytes, for write. If there are none, it notes that
// the goroutine ends.
func (c *console) take() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := c.pending
	if c.lost > 0 {
		text = fmt.Appendf(text, "gokprobe: %s lost here, since stderr was read too slowly\n", plural(c.lost, "message"))
	}
	c.pending, c.lost = nil, 0
	c.taken.Broadcast()
	if len(text) == 0 {
		c.isWriting = false
		c.ended.Broadcast()
	}
	return text
}

// flush waits until everything is written, for ever if nobody reads the pipe. So it must not
// be called while the target waits for us.
func (c *console) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.isWriting {
		c.ended.Wait()
	}
}
