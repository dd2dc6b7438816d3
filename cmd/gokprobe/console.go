package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/escape"
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
//
// On a terminal there may be a line below all messages, which is rewritten in place (setLine).
type console struct {
	out      io.Writer
	rewrites bool // out is a terminal in which a line can be rewritten

	mu        sync.Mutex
	ended     sync.Cond // isWriting has become false
	taken     sync.Cond // pending has become empty, or isBroken true
	pending   []byte
	line      []byte // the line below all messages; empty for none
	taking    []byte // the line that take has returned last
	lost      int    // messages that were lost since take was last called
	isWriting bool   // the goroutine is running
	isBroken  bool   // a write to out has failed

	screen sync.Mutex // held by whoever writes to the terminal
	below  []byte     // the line that it shows; guarded by screen
}

// newConsole returns a console that writes to out. It uses a duplicate of a file's descriptor
// if it can: a write to a closed pipe ends a Go program with SIGPIPE if the descriptor is 1
// or 2, and is an error with any other.
func newConsole(out io.Writer) *console {
	c := &console{out: out}
	if f, ok := out.(*os.File); ok {
		c.rewrites = isTerminal(f)
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

// isTerminal tells of a terminal that knows the sequence which erases a line.
func isTerminal(f *os.File) bool {
	conn, err := f.SyscallConn()
	if err != nil || os.Getenv("TERM") == "dumb" {
		return false
	}
	is := false
	_ = conn.Control(func(fd uintptr) {
		_, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		is = err == nil
	})
	return is
}

// setLine shows a line below all messages, in place of the one that is there. An empty one takes it away. Only a console that rewrites has such a line.
func (c *console) setLine(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.rewrites || c.isBroken {
		return
	}
	c.line = escape.AppendText(nil, escape.Line(line))
	c.begin()
}

// begin starts the goroutine, unless it is running.
func (c *console) begin() {
	if !c.isWriting {
		c.isWriting = true
		go c.write()
	}
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
	c.pending = escape.AppendText(c.pending, string(p))
	c.begin()
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
		text, line, any := c.take()
		if !any {
			return
		}
		if err := c.put(text, line); err != nil {
			c.mu.Lock()
			c.isBroken, c.pending, c.line, c.taking, c.lost = true, nil, nil, nil, 0
			c.taken.Broadcast()
			c.mu.Unlock()
		}
	}
}

// put writes what take has returned.
func (c *console) put(text, line []byte) error {
	c.screen.Lock()
	defer c.screen.Unlock()
	if len(c.below) > 0 {
		text = append([]byte(eraseLine), text...)
	}
	c.below = line
	_, err := c.out.Write(append(text, line...))
	return err
}

// above is out, whose lines appear above the console's line when both are terminals.
func (c *console) above(out io.Writer) io.Writer {
	if f, ok := out.(*os.File); !ok || !c.rewrites || !isTerminal(f) {
		return out
	}
	return above{c, out}
}

type above struct {
	c   *console
	out io.Writer
}

// Write takes whole lines.
func (a above) Write(p []byte) (int, error) {
	a.c.screen.Lock()
	defer a.c.screen.Unlock()
	if len(a.c.below) > 0 {
		_, _ = io.WriteString(a.c.out, eraseLine)
		defer func() { _, _ = a.c.out.Write(a.c.below) }()
	}
	return a.out.Write(p)
}

// eraseLine goes to the beginning of the line and erases it.
const eraseLine = "\r\x1b[K"

// take empties the queue and returns its bytes, for write, and the line that is to stand below them. If there is nothing to do, it notes that
// the goroutine ends.
func (c *console) take() (text, line []byte, any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, line = c.pending, c.line
	if c.lost > 0 {
		text = fmt.Appendf(text, "gokprobe: %s lost here, since stderr was read too slowly\n", escape.Count(c.lost, "message"))
	}
	any = len(text) > 0 || !bytes.Equal(line, c.taking)
	c.pending, c.lost, c.taking = nil, 0, line
	c.taken.Broadcast()
	if !any {
		c.isWriting = false
		c.ended.Broadcast()
	}
	return text, line, any
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
