package debugfs

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/escape"
)

// The work at a call of an injected function, on the tracer's thread.

// fail makes a call that was chosen return. It reports whether it could.
func (p *failPoint) fail(c *inject.Call) bool {
	var message string
	value := p.retval.Load()
	if c.Decision().Log > 0 { // which the return leaves no stack for
		message = p.message(value, c)
	}
	if err := c.Return(value); err != nil {
		if !p.warned { // as of a Go function that returns no number
			p.warned = true
			p.ff.tree.log(fmt.Sprintf("fail_function: %s can't return %#x: %v", p.name, value, err))
		}
		return false
	}
	if message != "" {
		p.ff.tree.log(message)
	}
	return true
}

// message is the kernel's fail_dump.
func (p *failPoint) message(value uint64, c *inject.Call) string {
	var attr fault.Attr
	p.ff.decider.Do(func(d *fault.Decider) { attr = d.Attr() })
	attr.Times = c.Decision().Times
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s returns %#x, PID: %d Comm: %s", attr.Message("fail_function"), p.name, value, c.TID(), escape.Line(c.Comm()))
	if c.Decision().Log > 1 {
		b.WriteString("\nCall Trace:")
		for _, at := range c.Callers() {
			b.WriteString("\n " + p.ff.tree.symbolize(arch.Addr(at)))
		}
	}
	return b.String()
}

// log tells whoever made the tree.
func (t *Tree) log(message string) {
	if t.logger == nil {
		slog.Warn(message, "pid", t.session.PID())
		return
	}
	t.logger(message)
}
