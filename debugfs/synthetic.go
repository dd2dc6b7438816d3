package debugfs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/gokprobe/gokprobe/debugfs/dynevent"
	"github.com/gokprobe/gokprobe/debugfs/trigger"
	"github.com/gokprobe/gokprobe/expr/fetch"
)

// Synthetic events are events without probes: actions of histograms make them happen
// (kernel/trace/trace_events_synth.c).

// syntheticFamily is that of synthetic events: of the files of definitions only dynamic_events has it.
const syntheticFamily dynevent.Family = dynevent.Either + 1

// syntheticFile is synthetic_events.
func (t *Tree) syntheticFile() *node {
	return &node{
		mode: modeWrite,
		read: func() ([]byte, error) {
			t.mu.Lock()
			defer t.mu.Unlock()
			return []byte(t.syntheticList("")), nil
		},
		write: func(data []byte) error {
			for line, err := range dynevent.Lines(data) {
				if err == nil {
					err = t.syntheticCommand(line)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
		clear: func() error {
			t.mu.Lock()
			defer t.mu.Unlock()
			return t.removeSynthetics()
		},
	}
}

// syntheticList is a line for each synthetic event, with something in front. The caller holds Tree.mu.
func (t *Tree) syntheticList(prefix string) string {
	var b strings.Builder
	for _, ev := range t.synthetics() {
		b.WriteString(prefix + ev.synthetic.String() + "\n")
	}
	return b.String()
}

// synthetics are the synthetic events. The caller holds Tree.mu.
func (t *Tree) synthetics() []*event {
	return slices.DeleteFunc(slices.Clone(t.events), func(ev *event) bool { return ev.synthetic == nil })
}

// isSynthetic tells whether a line of dynamic_events is about a synthetic event.
func isSynthetic(line string) bool { return strings.HasPrefix(strings.TrimPrefix(line, "!"), "s:") }

// syntheticCommand defines or deletes a synthetic event.
func (t *Tree) syntheticCommand(line string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := trigger.ParseSynthetic(line)
	switch {
	case err != nil:
		return t.logged(err)
	case s.Removes():
		return t.removeSynthetic(s.Name)
	case t.event(trigger.SyntheticSystem, s.Name) != nil:
		return t.logged(s.Error(line, "EVENT_EXISTS", s.Name))
	}
	ev := &event{tree: t, family: syntheticFamily, group: trigger.SyntheticSystem, name: s.Name, synthetic: s}
	ev.fields = append(slices.Clone(common), s.Fields...)
	ev.join()
	t.events = append(t.events, ev)
	t.reindex()
	return nil
}

// removeSynthetic deletes one. The caller holds Tree.mu.
func (t *Tree) removeSynthetic(name string) error {
	ev := t.event(trigger.SyntheticSystem, name)
	switch {
	case ev == nil || ev.synthetic == nil:
		return fmt.Errorf("%w: there is no synthetic event %s", syscall.ENOENT, name)
	case ev.on || t.triggers.Makes(name):
		return fmt.Errorf("%w: %s is enabled, or histograms make it", syscall.EBUSY, ev.path())
	}
	t.forget(ev)
	return nil
}

// removeSynthetics deletes all, or none if one is in use.
func (t *Tree) removeSynthetics() error {
	for _, ev := range t.synthetics() {
		if ev.on || t.triggers.Makes(ev.name) {
			return fmt.Errorf("%w: %s is enabled, or histograms make it", syscall.EBUSY, ev.path())
		}
	}
	for _, ev := range t.synthetics() {
		t.forget(ev)
	}
	return nil
}

// removeNamed is remove of a name in dynamic_events, which may be a synthetic event's.
func (t *Tree) removeNamed(d *dynevent.Definition) error {
	err := t.remove(d)
	if errors.Is(err, syscall.ENOENT) && !d.Exact && (!d.GroupGiven || d.Group == trigger.SyntheticSystem) {
		if e := t.removeSynthetic(d.Event); !errors.Is(e, syscall.ENOENT) {
			return e
		}
	}
	return err
}

// forget takes an event away that has no probes any more.
func (t *Tree) forget(ev *event) {
	t.events = slices.DeleteFunc(t.events, func(o *event) bool { return o == ev })
	t.reindex()
	ev.triggers.Close()
}

// Synthetic implements trigger.Host.
func (h triggered) Synthetic(name string) ([]fetch.Field, bool) {
	ev := h.event(trigger.SyntheticSystem, name)
	if ev == nil || ev.synthetic == nil {
		return nil, false
	}
	return ev.synthetic.Fields, true
}

// Synthesize implements trigger.Host.
func (h triggered) Synthesize(name string, values []fetch.Value, by *trigger.Hit) {
	ev := (*h.index.Load())[trigger.SyntheticSystem+"/"+name]
	if ev == nil || ev.synthetic == nil || !ev.live.Load() {
		return
	}
	ev.hit(&hit{comm: by.Comm, tid: by.PID, cpu: by.CPU, when: h.began.Add(by.Time - h.uptime),
		values: ev.synthetic.Values(values), stack: by.Stack, depth: by.Depth + 1})
}
