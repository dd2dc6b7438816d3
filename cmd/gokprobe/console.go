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
	// consoleLimit is how many bytes of messages wait for a stderr that nobody reads before more are lost.
	consoleLimit = 4 << 20
	// consolePiece is how many bytes of a text, at most, are handed over at once by who can wait.
	consolePiece = 64 << 10
)

// console is stderr for everybody: what is written to it is written on by a goroutine of its own. Handlers tell what is wrong on the
// tracer's thread, and a pipe that is full would hold that, and with it the target. Its methods may be called concurrently.
type console struct {
	out io.Writer

	mu      sync.Mutex
	ended   sync.Cond // writing has become false
	taken   sync.Cond // pending has become empty, or broken true
	pending []byte
	lost    int  // messages, since the last that was taken
	writing bool // there is a goroutine
	broken  bool // out takes nothing any more
}

// newConsole writes to out. A file is duplicated, if that can be done: a closed pipe is an error then, where Go's runtime lets SIGPIPE
// end a program that writes to its own stderr.
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

// duplicate is f under another descriptor, which started programs do not get. (f.Fd would change how f blocks.)
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

// Write takes one message, whatever its size, or loses it when too many wait. It never fails and never blocks.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full(len(p)) {
		c.lost++ // which the goroutine tells: it is still writing, since something waits
	} else {
		c.add(p)
	}
	return len(p), nil
}

// full tells that n bytes more are too many.
func (c *console) full(n int) bool {
	return !c.broken && len(c.pending) > 0 && len(c.pending)+n > consoleLimit
}

// add queues a text that begins and ends with whole characters, cleaned.
func (c *console) add(p []byte) {
	if c.broken {
		return
	}
	c.pending = clean.AppendText(c.pending, string(p))
	if !c.writing {
		c.writing = true
		go c.write()
	}
}

// patient is the console for those on whom no target waits: nothing is lost, a text of any size is handed over piece by piece, and a
// reader that is slow is waited for.
type patient struct{ *console }

// Write hands p over. It never fails.
func (c patient) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for rest := p; len(rest) > 0; {
		piece := rest[:min(len(rest), consolePiece)]
		if end := bytes.LastIndexByte(piece, '\n'); end >= 0 {
			piece = piece[:end+1]
		}
		rest = rest[len(piece):]
		for c.full(len(piece)) {
			c.taken.Wait()
		}
		c.add(piece)
	}
	return len(p), nil
}

// write is the goroutine's. It ends when nothing is left.
func (c *console) write() {
	for {
		text := c.take()
		if len(text) == 0 {
			return
		}
		if _, err := c.out.Write(text); err != nil {
			c.mu.Lock()
			c.broken, c.pending, c.lost = true, nil, 0
			c.taken.Broadcast()
			c.mu.Unlock()
		}
	}
}

// take is what waits. When it is nothing the goroutine has ended.
func (c *console) take() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := c.pending
	if c.lost > 0 {
		text = fmt.Appendf(text, "gokprobe: %s lost here, since stderr took them slower than they came\n", plural(c.lost, "message"))
	}
	c.pending, c.lost = nil, 0
	c.taken.Broadcast()
	if len(text) == 0 {
		c.writing = false
		c.ended.Broadcast()
	}
	return text
}

// flush waits until everything is written. On a pipe that nobody reads that takes for ever: nobody calls it on whom a target waits.
func (c *console) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.writing {
		c.ended.Wait()
	}
}
