package debugfs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// An event is on if its probes are, because its enable file says so or since a trigger wants it. In
// the latter case it is quiet: hits run triggers and are not recorded. The rules are those of
// __ftrace_event_enable_disable in kernel/trace/trace_events.c; Tree.mu is held.

// enable is writing 1 to the enable file.
func (ev *event) enable() error {
	if !ev.on {
		if err := ev.turnOn(); err != nil {
			return err
		}
	}
	ev.quiet.Store(false)
	return nil
}

// disable is writing 0.
func (ev *event) disable() error {
	if ev.soft {
		ev.quiet.Store(true)
		return nil
	}
	return ev.turnOff()
}

// hold keeps the event on for triggers.
func (ev *event) hold() error {
	if !ev.on {
		ev.quiet.Store(true)
		if err := ev.turnOn(); err != nil {
			ev.quiet.Store(false)
			return err
		}
	}
	ev.soft = true
	if err := ev.refilter(); err != nil {
		return errors.Join(err, ev.letGo())
	}
	return nil
}

// letGo is the opposite of hold. An event that is quiet goes off.
func (ev *event) letGo() error {
	ev.soft = false
	err := ev.refilter()
	if !ev.quiet.Load() {
		return err
	}
	defer ev.quiet.Store(false)
	return errors.Join(err, ev.turnOff())
}

// refilter makes the target filter hits if triggers do not want to see all.
func (ev *event) refilter() error {
	if ev.filter.Load() == nil {
		return nil
	}
	return ev.renew()
}

func (ev *event) turnOn() error {
	for i, p := range ev.probes {
		if err := p.enable(); err != nil {
			for _, done := range ev.probes[:i] {
				err = errors.Join(err, done.disable())
			}
			return err
		}
	}
	ev.on = true
	ev.live.Store(true)
	return nil
}

func (ev *event) turnOff() error {
	var errs []error
	for _, p := range ev.probes {
		errs = append(errs, p.disable())
	}
	ev.on = false
	ev.live.Store(false)
	return errors.Join(errs...)
}

// state is 0 or 1, with a * if triggers have the event on.
func (ev *event) state() string {
	s := "0"
	if ev.on && !ev.quiet.Load() {
		s = "1"
	}
	if ev.soft {
		s += "*"
	}
	return s
}

// enableFile is an enable file of events, whose state is shown by state.
func (t *Tree) enableFile(members func() []*event, state func([]*event) string) *node {
	return &node{
		mode: modeWrite,
		read: func() ([]byte, error) {
			events := members()
			t.mu.Lock()
			defer t.mu.Unlock()
			return []byte(state(events) + "\n"), nil
		},
		write: func(p []byte) error {
			v, err := number(p)
			if err != nil || v > 1 {
				return fmt.Errorf("%w: 0 or 1 is wanted", syscall.EINVAL)
			}
			return t.switchAll(members(), v == 1)
		},
	}
}

// stateOfOne is what the enable file of an event shows.
func stateOfOne(events []*event) string { return events[0].state() }

// stateOfAll is 0 or 1, X if some events are on, ? if there are none (system_enable_read).
func stateOfAll(events []*event) string {
	on := 0
	for _, ev := range events {
		if ev.on {
			on++
		}
	}
	switch on {
	case 0:
		if len(events) == 0 {
			return "?"
		}
		return "0"
	case len(events):
		return "1"
	}
	return "X"
}

// switchAll turns events on or off, as many as can be.
func (t *Tree) switchAll(events []*event, on bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, ev := range events {
		if !slices.Contains(t.events, ev) {
			continue // deleted meanwhile
		}
		if on {
			errs = append(errs, ev.enable())
		} else {
			errs = append(errs, ev.disable())
		}
	}
	return errors.Join(errs...)
}

// isOn tells whether hits of the event are recorded.
func (ev *event) isOn() bool {
	ev.tree.mu.Lock()
	defer ev.tree.mu.Unlock()
	return ev.on && !ev.quiet.Load()
}

// all are the events.
func (t *Tree) all() []*event {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.events)
}

// inGroup are the events of a group.
func (t *Tree) inGroup(group string) []*event {
	return slices.DeleteFunc(t.all(), func(ev *event) bool { return ev.group != group })
}

// groups are the names of groups that have events.
func (t *Tree) groups() []string {
	var names []string
	for _, ev := range t.all() {
		if !slices.Contains(names, ev.group) {
			names = append(names, ev.group)
		}
	}
	return names
}

// eventNames lists events, group:name, by group.
func (t *Tree) eventNames(which func(*event) bool) string {
	var b strings.Builder
	for _, group := range t.groups() {
		for _, ev := range t.inGroup(group) {
			if which(ev) {
				b.WriteString(ev.path() + "\n")
			}
		}
	}
	return b.String()
}
