package debugfs

import (
	"bytes"
	"slices"
	"syscall"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/debugfs/trigger"
)

// triggerFile is an event's trigger file.
func (t *Tree) triggerFile(ev *event) *node {
	change := func(f func() error) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !slices.Contains(t.events, ev) {
			return syscall.ENODEV
		}
		if err := t.logged(f()); err != nil {
			return err
		}
		return ev.heedStacks()
	}
	return &node{
		mode:  modeWrite,
		read:  func() ([]byte, error) { return []byte(ev.triggers.String()), nil },
		write: func(p []byte) error { return change(func() error { return ev.triggers.Write(string(p)) }) },
		clear: func() error { return change(func() error { ev.triggers.Truncate(); return nil }) },
	}
}

// heedStacks makes the tracer handle hits whose stack a trigger or the option wants: the target can't unwind it.
func (ev *event) heedStacks() error {
	if want := ev.triggers.NeedsStack() || ev.tree.stacks.Load(); want != ev.stacks {
		ev.stacks = want
		return ev.renew()
	}
	return nil
}

// histText is the hist file.
func (ev *event) histText() string {
	ev.tree.tellLosses()
	var b bytes.Buffer
	_ = ev.triggers.Print(&b, func(addr uint64, offset bool) string {
		if offset {
			return ev.tree.symbolize(arch.Addr(addr))
		}
		return ev.tree.nameOf(arch.Addr(addr))
	})
	return b.String()
}

// triggered is the Tree to its triggers. Those that change hold Tree.mu; what hits do, they do on the tracer's thread.
type triggered struct{ *Tree }

// Exists implements trigger.Host.
func (h triggered) Exists(system, name string) bool { return h.event(system, name) != nil }

// Soft implements trigger.Host.
func (h triggered) Soft(system, name string, on bool) error {
	ev := h.event(system, name)
	switch {
	case ev == nil:
		return nil
	case on:
		return ev.hold()
	}
	return ev.letGo()
}

// Enable implements trigger.Host.
func (h triggered) Enable(system, name string, on bool) (changed bool) {
	ev := (*h.index.Load())[system+"/"+name]
	return ev != nil && ev.quiet.Swap(!on) == on
}

// Tracing implements trigger.Host.
func (h triggered) Tracing(on bool) (changed bool) { return h.on.Swap(on) != on }

// Snapshot implements trigger.Host.
func (h triggered) Snapshot() { h.snapshot() }

// Stack implements trigger.Host.
func (h triggered) Stack(hit *trigger.Hit) {
	if hit.Stack == nil || !h.on.Load() {
		return
	}
	e := &entry{comm: hit.Comm, tid: hit.PID, cpu: hit.CPU, when: hit.Time}
	for i, at := range hit.Stack() {
		if i > 0 {
			at-- // the call, not what comes behind: that may be another function
		}
		e.stack = append(e.stack, h.nameOf(arch.Addr(at)))
	}
	h.trace.add(e)
}
