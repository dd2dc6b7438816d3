package debugfs

import (
	"fmt"
	"strings"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/clean"
	"github.com/gokprobe/gokprobe/kprobes"
)

// The work at a call of an injected function, on the tracer's thread.

// hit decides a call, and makes it return if it is to fail. If decided is set, the
// target has already asked the counters.
func (p *failPoint) hit(kp *kprobes.Kprobe, regs *kprobes.Regs, decided bool) int {
	d, before, done := p.ff.decide(regs, decided)
	if !d.Fail {
		return 0
	}
	if done {
		_ = p.ff.disarm() // there will be nothing to decide
	}
	var message string
	value := p.retval.Load()
	if d.Log > 0 { // which the return leaves no stack for
		message = p.message(value, regs, before, d.Log)
	}
	if err := p.ff.ending.ReturnNumber(regs, kp.Addr, int64(value)); err != nil {
		if !p.warned { // as of a Go function that returns no number
			p.warned = true
			p.ff.tree.log(fmt.Sprintf("fail_function: %s can't return %#x: %v", p.name, value, err))
		}
		return 0
	}
	if d.Log > 0 {
		p.ff.tree.log(message)
	}
	return 1
}

// decide also returns the attributes as they were, and whether no call can fail any more.
func (ff *failFunction) decide(regs *kprobes.Regs, decided bool) (d fault.Decision, before fault.Attr, done bool) {
	call := fault.Call{Process: regs.PID(), Thread: regs.TID(), Size: 1, Now: time.Now(), Stack: func() []uint64 { return callers(regs) }}
	ff.mu.Lock()
	defer ff.mu.Unlock()
	before, call.Task = ff.decider.Attr(), ff.tasks[call.Thread]
	if decided {
		d = ff.decider.Confirm(call)
	} else {
		d = ff.decider.Decide(call)
	}
	return d, before, d.Fail && ff.decider.Done(call.Now)
}

// callers are the return addresses of the call, innermost first.
func callers(regs *kprobes.Regs) []uint64 {
	frames := regs.Backtrace(fault.MaxStackDepth + 1)
	addrs := make([]uint64, 0, len(frames))
	for _, f := range frames[min(1, len(frames)):] {
		addrs = append(addrs, uint64(f.Addr))
	}
	return addrs
}

// message is the kernel's fail_dump.
func (p *failPoint) message(value uint64, regs *kprobes.Regs, attr fault.Attr, verbosity int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s returns %#x, PID: %d Comm: %s", attr.Message("fail_function"), p.name, value, regs.TID(), clean.Line(regs.Comm()))
	if verbosity > 1 {
		b.WriteString("\nCall Trace:")
		for _, at := range callers(regs) {
			b.WriteString("\n " + p.ff.tree.symbolize(arch.Addr(at)))
		}
	}
	return b.String()
}

// log tells whoever made the tree.
func (t *Tree) log(message string) {
	if t.logger != nil {
		t.logger(message)
	}
}
