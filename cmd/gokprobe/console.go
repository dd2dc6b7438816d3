package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// consoleLimit is how many bytes of messages wait for a stderr that nobody reads before more are lost.
const consoleLimit = 4 << 20

// console is stderr for everybody: what is written to it is written on by a goroutine of its own. Handlers tell what is wrong on the
// tracer's thread, and a pipe that is full would hold that, and with it the target. Its methods may be called concurrently.
type console struct {
	out io.Writer

	mu      sync.Mutex
	ended   sync.Cond // writing has become false
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
	c.ended.L = &c.mu
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

// Write takes one message, or loses it when too many wait. It never fails and never blocks.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.broken:
	case len(c.pending)+len(p) > consoleLimit:
		c.lost++
	default:
		c.pending = append(c.pending, p...)
		if !c.writing {
			c.writing = true
			go c.write()
		}
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
