package debugfs

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/filter"
	"github.com/gokprobe/gokprobe/expr/values"
)

// filterFile is an event's filter file.
func (t *Tree) filterFile(ev *event) *node {
	return &node{
		mode: modeWrite,
		read: func() ([]byte, error) {
			t.mu.Lock()
			defer t.mu.Unlock()
			switch f := ev.filter.Load(); {
			case f != nil:
				return []byte(f.String() + "\n"), nil
			case ev.refused != nil:
				return []byte(filter.Shown(ev.refused) + "\n"), nil
			}
			return []byte("none\n"), nil
		},
		write: func(p []byte) error {
			t.mu.Lock()
			defer t.mu.Unlock()
			if !slices.Contains(t.events, ev) {
				return syscall.ENODEV
			}
			return t.logged(ev.setFilter(string(p)))
		},
	}
}

// setFilter makes text the event's filter. After an error it has none: the filter file says why.
func (ev *event) setFilter(text string) error {
	ev.refused = nil
	if filter.Clears(text) {
		return ev.apply(nil)
	}
	f, err := ev.parseFilter(text)
	if err != nil {
		errors.As(err, &ev.refused)
		return errors.Join(err, ev.apply(nil))
	}
	return ev.apply(f)
}

func (ev *event) parseFilter(text string) (*filter.Filter, error) {
	if len(text) >= filter.MaxLen {
		return nil, fmt.Errorf("%w: a filter has less than %d bytes", syscall.EINVAL, filter.MaxLen)
	}
	return filter.Parser{Fields: ev.queried, Function: ev.tree.function}.Parse(text)
}

// apply has hits filtered by f, also in the target.
func (ev *event) apply(f *filter.Filter) error {
	if ev.filter.Swap(f) == f {
		return nil
	}
	return ev.renew()
}

// renew registers the event's probes anew, since hits have something else to do.
func (ev *event) renew() error {
	var errs []error
	for _, p := range ev.probes {
		errs = append(errs, p.replace())
	}
	return errors.Join(errs...)
}

const groupFilterHelp = `### global filter ###
# Use this to set filters for multiple events.
# Only events with the given fields will be affected.
# If no events are modified, an error message will be displayed here
`

// groupFilterFile is the filter file of a group: it filters the events that have the fields.
func (t *Tree) groupFilterFile(group string, members func() []*event) *node {
	return &node{
		mode: modeWrite,
		read: func() ([]byte, error) {
			t.mu.Lock()
			defer t.mu.Unlock()
			if e := t.groupRefused[group]; e != nil {
				return []byte(filter.Shown(e) + "\n"), nil
			}
			return []byte(groupFilterHelp), nil
		},
		write: func(p []byte) error {
			events := members()
			t.mu.Lock()
			defer t.mu.Unlock()
			return t.logged(t.filterGroup(group, events, string(p)))
		},
	}
}

// filterGroup filters those of a group's events that can be. There must be one.
func (t *Tree) filterGroup(group string, events []*event, text string) error {
	delete(t.groupRefused, group)
	var refused, errs []error
	for _, ev := range events {
		if _, err := ev.parseFilter(text); err != nil && !filter.Clears(text) {
			refused = append(refused, err)
			continue
		}
		errs = append(errs, ev.setFilter(text))
	}
	if len(errs) > 0 || len(refused) == 0 {
		return errors.Join(errs...)
	}
	var e *caret.Error
	if errors.As(refused[0], &e) {
		t.groupRefused[group] = e
	}
	return refused[0]
}

// function is filter.Parser's Function.
func (t *Tree) function(name string) (start, end uint64, ok bool) {
	return values.Function(t.session.Symbols(), name)
}
