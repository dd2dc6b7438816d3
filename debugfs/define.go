package debugfs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gokprobe/gokprobe/debugfs/dynevent"
	"github.com/gokprobe/gokprobe/debugfs/trigger"
	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/kprobes"
)

// eventsFile is kprobe_events or one of its like.
type eventsFile struct {
	parse  func(line string, c dynevent.Context) (*dynevent.Definition, error)
	family dynevent.Family // Either: all
}

var (
	kprobeEvents = eventsFile{dynevent.ParseKprobe, dynevent.Kprobe}
	uprobeEvents = eventsFile{dynevent.ParseUprobe, dynevent.Uprobe}
	allEvents    = eventsFile{dynevent.ParseDynamic, dynevent.Either}
)

// has tells whether the file lists events of a family.
func (f eventsFile) has(family dynevent.Family) bool {
	return f.family == dynevent.Either || f.family == family
}

// definitions is a file of definitions.
func (t *Tree) definitions(f eventsFile) *node {
	return &node{
		mode: modeWrite,
		read: func() ([]byte, error) {
			var b strings.Builder
			t.mu.Lock()
			defer t.mu.Unlock()
			for _, p := range t.probesOf(f) {
				b.WriteString(p.def.String() + "\n")
			}
			if f.has(syntheticFamily) {
				b.WriteString(t.syntheticList("s:" + trigger.SyntheticSystem + "/"))
			}
			return []byte(b.String()), nil
		},
		write: func(data []byte) error {
			for line, err := range dynevent.Lines(data) {
				switch {
				case err != nil:
				case f.has(syntheticFamily) && isSynthetic(line):
					err = t.syntheticCommand(line)
				default:
					err = t.command(f, line)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
		clear: func() error { return t.removeIdle(f) },
	}
}

// probesOf are the probes of a file's events, in the order of their definition.
func (t *Tree) probesOf(f eventsFile) []*probe {
	var all []*probe
	for _, ev := range t.events {
		if f.has(ev.family) {
			all = append(all, ev.probes...)
		}
	}
	slices.SortFunc(all, func(a, b *probe) int { return a.number - b.number })
	return all
}

// command does what one line says. error_log keeps its mistakes.
func (t *Tree) command(f eventsFile, line string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return kprobes.ErrClosed
	}
	d, err := f.parse(line, t.context())
	switch {
	case err != nil:
	case d.Kind == dynevent.Delete && f.has(syntheticFamily):
		err = t.removeNamed(d)
	case d.Kind == dynevent.Delete:
		err = t.remove(d)
	default:
		err = t.define(d)
	}
	return t.logged(err)
}

// logged keeps err in error_log, if it is one for it.
func (t *Tree) logged(err error) error {
	var e *caret.Error
	if errors.As(err, &e) {
		t.errors.Add(e, t.sinceBoot(time.Now()))
	}
	return err
}

// define makes an event, or adds a probe to the one of that name. It is off if it is new.
func (t *Tree) define(d *dynevent.Definition) error {
	ev := t.event(d.Group, d.Event)
	if err := d.Joins(siblings(ev)); err != nil {
		return err
	}
	if ev != nil && ev.synthetic != nil {
		return d.Error("EVENT_EXIST", dynevent.PartEvent)
	}
	if d.Group == "enable" || d.Event == "enable" || d.Event == "filter" {
		return fmt.Errorf("%w: %s is the name of a file", syscall.EEXIST, d.Name())
	}
	if err := t.sameSemaphore(d); err != nil {
		return err
	}
	fresh := ev == nil
	if fresh {
		ev = newEvent(t, d)
	}
	t.lastProbe++
	p := &probe{event: ev, def: d, number: t.lastProbe}
	if err := p.begin(); err != nil {
		if fresh {
			ev.triggers.Close()
		}
		return registration(d, err)
	}
	ev.probes = append(ev.probes, p)
	if fresh {
		t.events = append(t.events, ev)
		t.reindex()
	}
	return nil
}

func siblings(ev *event) []*dynevent.Definition {
	if ev == nil {
		return nil
	}
	var all []*dynevent.Definition
	for _, p := range ev.probes {
		all = append(all, p.def)
	}
	return all
}

// registration is what the kernel says of a probe that can't be registered
// (kernel/trace/trace_kprobe.c, trace_kprobe_create).
func registration(d *dynevent.Definition, err error) error {
	id := "FAIL_REG_PROBE"
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		errno = syscall.EINVAL
	}
	switch {
	case errors.Is(err, kprobes.ErrUnknownSymbol):
		id, errno = "BAD_PROBE_ADDR", syscall.ENOENT
	case errors.Is(err, kprobes.ErrAmbiguousSymbol):
		id, errno = "NON_UNIQ_SYMBOL", syscall.EADDRNOTAVAIL
	case errors.Is(err, kprobes.ErrNotEntry):
		id, errno = "BAD_RETPROBE", syscall.EINVAL
	case errors.Is(err, syscall.EILSEQ):
		id, errno = "BAD_INSN_BNDRY", syscall.EILSEQ
	}
	return fmt.Errorf("%w (%w)", d.ErrorAs(id, dynevent.PartPlace, errno), err)
}

// remove deletes what d says: all that is meant, or nothing.
func (t *Tree) remove(d *dynevent.Definition) error {
	found := false
	for _, ev := range t.events {
		n := len(ev.meant(d))
		found = found || n > 0
		if n > 0 && n == len(ev.probes) && ev.on {
			return fmt.Errorf("%w: %s is enabled", syscall.EBUSY, ev.path())
		}
	}
	if !found {
		return fmt.Errorf("%w: there is no such event: %s", syscall.ENOENT, d)
	}
	var errs []error
	for _, ev := range slices.Clone(t.events) {
		for _, p := range ev.meant(d) {
			errs = append(errs, t.drop(p))
		}
	}
	return errors.Join(errs...)
}

// meant are the probes that d deletes.
func (ev *event) meant(d *dynevent.Definition) []*probe {
	var all []*probe
	for _, p := range ev.probes {
		if d.Deletes(p.def) {
			all = append(all, p)
		}
	}
	return all
}

// drop takes p away, and its event with the last probe.
func (t *Tree) drop(p *probe) error {
	err := p.remove()
	p.noteLosses()
	ev := p.event
	ev.probes = slices.DeleteFunc(ev.probes, func(o *probe) bool { return o == p })
	if len(ev.probes) == 0 {
		t.forget(ev)
	}
	return err
}

// reindex lets hits find the events.
func (t *Tree) reindex() {
	all := map[string]*event{}
	for _, ev := range t.events {
		all[ev.group+"/"+ev.name] = ev
	}
	t.index.Store(&all)
}

// removeIdle deletes all events of a file, or none if one is on.
func (t *Tree) removeIdle(f eventsFile) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ev := range t.events {
		if f.has(ev.family) && ev.on {
			return fmt.Errorf("%w: %s is enabled", syscall.EBUSY, ev.path())
		}
	}
	if f.has(syntheticFamily) {
		if err := t.removeSynthetics(); err != nil {
			return err
		}
	}
	return t.dropAll(t.probesOf(f))
}

func (t *Tree) dropAll(probes []*probe) error {
	var errs []error
	for _, p := range probes {
		errs = append(errs, t.drop(p))
	}
	return errors.Join(errs...)
}
