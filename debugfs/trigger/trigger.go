// Package trigger is event triggers: what happens when an event does, above all histograms
// (Documentation/trace/events.rst §6 and histogram.rst; kernel/trace/trace_events_trigger.c,
// trace_events_hist.c).
//
// Parse reads one command of a trigger file. A Table holds the triggers of a tree's events and
// fires them; what they do to the tree is asked of its Host. A Hist is one histogram, whose actions
// may make a Synthetic event happen.
//
// The package is pure: no system call, no build tag. Everything is safe for concurrent use
// unless it says otherwise.
//
// Not part of the public promise: any version may change it.
package trigger

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/filter"
)

// Kind is what a trigger does.
type Kind uint8

const (
	TraceOn      Kind = iota // traceon: recording goes on
	TraceOff                 // traceoff: recording stops behind this event
	Snapshot                 // snapshot: the trace is copied
	Stacktrace               // stacktrace: the stack is recorded behind this event
	EnableEvent              // enable_event:SYSTEM:EVENT: another event is recorded
	DisableEvent             // disable_event:SYSTEM:EVENT
	EnableHist               // enable_hist:SYSTEM:EVENT: another event's histograms go on
	DisableHist              // disable_hist:SYSTEM:EVENT
	Histogram                // hist:keys=…
)

// names are the commands, as the file without triggers lists them.
var names = [...]string{"traceon", "traceoff", "snapshot", "stacktrace",
	"enable_event", "disable_event", "enable_hist", "disable_hist", "hist"}

// String is the command's name.
func (k Kind) String() string { return names[k] }

// group is the kind for which others count as the same: an event has one trigger of each.
func (k Kind) group() Kind {
	switch k {
	case TraceOff:
		return TraceOn
	case DisableEvent:
		return EnableEvent
	case DisableHist:
		return EnableHist
	}
	return k
}

// targets is whether the command names another event.
func (k Kind) targets() bool { return k >= EnableEvent && k <= DisableHist }

// enables is whether the command switches something on, not off.
func (k Kind) enables() bool { return k == TraceOn || k == EnableEvent || k == EnableHist }

// Available is what a trigger file without triggers shows.
const Available = "# Available triggers:\n" +
	"# traceon traceoff snapshot stacktrace enable_event disable_event enable_hist disable_hist hist\n"

// Unlimited is the count of a trigger that fires every time.
const Unlimited = -1

// Event is the event that a trigger file belongs to.
type Event struct {
	System, Name string
	Fields       []fetch.Field // what a Hit has values of
}

// Trigger is one command of a trigger file. What Parse sets does not change later; the count that
// is left and whether a histogram is paused do.
type Trigger struct {
	Kind          Kind
	Remove        bool           // '!': the trigger like this one goes
	System, Event string         // the event that is enabled or disabled
	Filter        *filter.Filter // nil: none
	Hist          *Spec          // of a Histogram

	command string // for error_log
	count   atomic.Int64
	paused  atomic.Bool
	table   *Hist // of a Histogram in a Set
}

// Count is how often the trigger will still fire, or Unlimited.
func (t *Trigger) Count() int { return int(t.count.Load()) }

// String is the trigger as its file lists it, without the newline.
func (t *Trigger) String() string {
	var b strings.Builder
	b.WriteString(t.Kind.String())
	if t.Kind == Histogram {
		b.WriteString(":" + t.Hist.String())
	}
	if t.Kind.targets() {
		fmt.Fprintf(&b, ":%s:%s", t.System, t.Event)
	}
	if t.Kind != Histogram {
		if n := t.count.Load(); n == Unlimited {
			b.WriteString(":unlimited")
		} else {
			fmt.Fprintf(&b, ":count=%d", n)
		}
	}
	if t.Filter != nil {
		b.WriteString(" if " + t.Filter.String())
	}
	if t.Kind == Histogram {
		b.WriteString(map[bool]string{false: " [active]", true: " [paused]"}[t.paused.Load()])
	}
	return b.String()
}

// Same is whether the two are one trigger of an event: the second is refused with EEXIST, and '!'
// before it removes the first. Counts play no part, filters only for histograms.
func (t *Trigger) Same(o *Trigger) bool {
	switch {
	case t.Kind.group() != o.Kind.group():
		return false
	case t.Kind.targets():
		return t.System == o.System && t.Event == o.Event
	case t.Kind == Histogram:
		return t.Hist.Name == o.Hist.Name && t.Hist.same(o.Hist) && filterText(t) == filterText(o)
	}
	return true
}

func filterText(t *Trigger) string {
	if t.Filter == nil {
		return ""
	}
	return t.Filter.String()
}

// take is whether the trigger may fire once more, which then counts.
func (t *Trigger) take() bool {
	for {
		n := t.count.Load()
		if n == Unlimited {
			return true
		}
		if n == 0 {
			return false
		}
		if t.count.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// giveBack undoes a take that led to nothing.
func (t *Trigger) giveBack() {
	if t.count.Load() != Unlimited {
		t.count.Add(1)
	}
}
