package trigger

import (
	"bytes"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gokprobe/gokprobe/expr/fetch"
)

// Host is the tree that triggers act on. Its methods are called by the goroutines that call Set.Write,
// Truncate, Close and Hit; the Table holds no lock that Hit takes, but Soft must not call Set.Write.
type Host interface {
	// Exists is whether there is such an event.
	Exists(system, event string) bool
	// Soft is called when an event gets into soft mode and out of it: while it has triggers or is
	// the target of some it must happen, be it recorded or not. Set.Write fails with the error.
	Soft(system, event string, on bool) error
	// Enable lets an event be recorded, or not. changed is whether it was not so before.
	Enable(system, event string, on bool) (changed bool)
	// Tracing is tracing_on.
	Tracing(on bool) (changed bool)
	// Snapshot copies the trace.
	Snapshot()
	// Stack records the stack of a hit behind its event.
	Stack(h *Hit)
	// Synthetic is the fields of a synthetic event.
	Synthetic(name string) (fields []fetch.Field, ok bool)
	// Synthesize makes a synthetic event happen, with values of its fields, due to a hit. The event's own Hit
	// has a Depth of one more.
	Synthesize(name string, values []fetch.Value, h *Hit)
}

// nobody is the Host of a Table that only parses.
type nobody struct{ Host }

func (nobody) Exists(string, string) bool             { return true }
func (nobody) Synthetic(string) ([]fetch.Field, bool) { return nil, false }

// Table is the triggers of all events of a tree.
type Table struct {
	host  Host
	write sync.Mutex // held by one change at a time
	soft  map[id]int // why events are in soft mode; guarded by write
	sets  sync.Map   // id → *Set
}

type id struct{ system, event string }

// NewTable is a table without events.
func NewTable(h Host) *Table { return &Table{host: h, soft: map[id]int{}} }

// Set is the triggers of one event.
type Set struct {
	table *Table
	event Event
	list  atomic.Pointer[[]*Trigger] // in the file's order; never changed in place
	gone  bool                       // guarded by table.write
}

// Add is the triggers of an event that has come: none. The event's fields must not change.
func (t *Table) Add(e Event) *Set {
	s := &Set{table: t, event: e}
	s.list.Store(new([]*Trigger))
	t.sets.Store(id{e.System, e.Name}, s)
	return s
}

// Soft is whether an event has triggers or is the target of some. It can't be deleted then (EBUSY).
func (t *Table) Soft(system, event string) bool {
	t.write.Lock()
	defer t.write.Unlock()
	return t.soft[id{system, event}] > 0
}

// Close forgets the event and its triggers.
func (s *Set) Close() {
	s.table.write.Lock()
	defer s.table.write.Unlock()
	for _, t := range s.triggers() {
		s.drop(t)
	}
	s.gone = true
	s.table.sets.CompareAndDelete(id{s.event.System, s.event.Name}, s)
}

func (s *Set) triggers() []*Trigger { return *s.list.Load() }

// Len is how many triggers the event has.
func (s *Set) Len() int { return len(s.triggers()) }

// String is the trigger file.
func (s *Set) String() string {
	list := s.triggers()
	if len(list) == 0 {
		return Available
	}
	var b bytes.Buffer
	for _, t := range list {
		b.WriteString(t.String() + "\n")
	}
	return b.String()
}

// Print writes the hist file.
func (s *Set) Print(w io.Writer, symbols Symbols) error {
	between := ""
	for _, t := range s.triggers() {
		if t.Kind != Histogram {
			continue
		}
		if _, err := io.WriteString(w, between); err != nil {
			return err
		}
		if err := t.table.Print(w, t.String(), symbols); err != nil {
			return err
		}
		between = "\n\n"
	}
	return nil
}

// Write does one command that was written to the trigger file. Errors are *caret.Error, ENODEV of an
// event that is gone, or the Host's.
func (s *Set) Write(text string) error {
	s.table.write.Lock()
	defer s.table.write.Unlock()
	if s.gone {
		return syscall.ENODEV
	}
	t, err := s.table.parse(text, s.event)
	if err != nil {
		return err
	}
	var old *Trigger
	if i := slices.IndexFunc(s.triggers(), t.Same); i >= 0 {
		old = s.triggers()[i]
	}
	switch {
	case t.Remove && old == nil:
		return nil
	case t.Remove && s.table.refers(old.table):
		return s.complain(t, "VAR_IN_USE", "")
	case t.Remove:
		s.drop(old)
		return nil
	case t.Kind == Histogram:
		return s.writeHist(t, old)
	case old != nil:
		return s.complain(t, "EXISTS", "")
	case t.Kind.targets() && !s.table.host.Exists(t.System, t.Event):
		return s.complain(t, "TARGET_NOT_FOUND", t.System+":"+t.Event)
	}
	return s.add(t)
}

func (s *Set) complain(t *Trigger, id, at string) error { return complain(s.event, t.command, id, at) }

// Truncate is what opening the trigger file with O_TRUNC does: histograms go, with what switches
// other events' histograms. Other triggers stay, and all histograms if one's variables are in use.
func (s *Set) Truncate() {
	s.table.write.Lock()
	defer s.table.write.Unlock()
	inUse := slices.ContainsFunc(s.triggers(), func(t *Trigger) bool { return s.table.refers(t.table) })
	for _, t := range s.triggers() {
		if t.Kind.group() == EnableHist || t.Kind == Histogram && !inUse {
			s.drop(t)
		}
	}
}

// add puts a trigger into the file: a histogram last, others first.
func (s *Set) add(t *Trigger) error {
	if err := s.table.wake(id{s.event.System, s.event.Name}); err != nil {
		return err
	}
	if t.Kind.targets() {
		if err := s.table.wake(id{t.System, t.Event}); err != nil {
			s.table.rest(id{s.event.System, s.event.Name})
			return err
		}
	}
	at := 0
	if t.Kind == Histogram {
		at = s.Len()
	}
	list := slices.Insert(slices.Clone(s.triggers()), at, t)
	s.list.Store(&list)
	return nil
}

func (s *Set) drop(t *Trigger) {
	list := slices.DeleteFunc(slices.Clone(s.triggers()), func(o *Trigger) bool { return o == t })
	s.list.Store(&list)
	if t.Kind.targets() {
		s.table.rest(id{t.System, t.Event})
	}
	s.table.rest(id{s.event.System, s.event.Name})
}

// wake is one more reason for soft mode.
func (t *Table) wake(e id) error {
	if t.soft[e] == 0 {
		if err := t.host.Soft(e.system, e.event, true); err != nil {
			return err
		}
	}
	t.soft[e]++
	return nil
}

// rest is one reason less. Leaving soft mode can't fail: nothing is asked for any more.
func (t *Table) rest(e id) {
	t.soft[e]--
	if t.soft[e] == 0 {
		delete(t.soft, e)
		_ = t.host.Soft(e.system, e.event, false)
	}
}

// histograms calls f with all histogram triggers of all events.
func (t *Table) histograms(f func(Event, *Trigger)) {
	t.sets.Range(func(_, s any) bool {
		set := s.(*Set)
		for _, tr := range set.triggers() {
			if tr.Kind == Histogram {
				f(set.event, tr)
			}
		}
		return true
	})
}
